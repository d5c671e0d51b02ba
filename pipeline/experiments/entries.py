"""A live experiment between publication and promotion: its ledger entries, and the aliases that follow from them.

Two entries, each written once: its beginning (versions, control versions, share, days) and its end (promoted or rolled
back, by whom and why). Aliases are moved after the entry is written; after a crash they are moved again by the entry.
To the rest of the pipeline the launch is a candidate, then published, or rolled back as by ``tacit rollback``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pydantic import BaseModel, ConfigDict

from pipeline.ground.errors import ReleaseRefused
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import undo
from pipeline.publication.registry import Registry, promote

ALIAS = "experiment"
_SHARE = "experiment.share"  # a tag of the registered model
_KIND, _BEGAN, _ENDED = "note", "experiment began", "experiment ended"


class ExperimentStart(BaseModel):
    """Ledger entry of a begun experiment.

    Attributes:
      versions: versions of the treatment arm, by name of the registered model.
      controls: versions of the control arm: the champion at that time; None without an earlier publication.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    versions: dict[str, int]
    controls: dict[str, int | None]
    share: float
    days: int


class ExperimentEnd(BaseModel):
    """Ledger entry of an experiment's end.

    Attributes:
      by: account that decided or stopped it.
      logs: SHA-256 of the log files of the decision; empty if a person stopped it.
      result: SHA-256 of the file with the gates' evidence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    promoted: bool
    reasons: tuple[str, ...]
    by: str
    logs: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class Experiment:
    """An experiment, from its ledger entries.

    Attributes:
      first, last: days whose logs count.
      ended: None while it is running.
      ended_at: in UTC, to the second; empty while it is running.
    """

    began: ExperimentStart
    first: date
    last: date
    ended: ExperimentEnd | None
    ended_at: str

    def over(self, today: date | None = None) -> bool:
        """Return whether all its days are over, in UTC."""
        return (today or datetime.now(UTC).date()) > self.last

    @property
    def said(self) -> str:
        """Describe the versions and days of a running experiment, or the end of a finished one."""
        if self.ended is not None:
            return f"by {self.ended.by} at {self.ended_at}Z: {'; '.join(self.ended.reasons)}"
        each = " and ".join(f"version {version} of {name}" for name, version in self.began.versions.items())
        return f"{self.began.share:.2%} of devices have {each}; logs of {self.first} to {self.last} decide"


def of(config: LaunchConfig, launch_id: str, entries: Iterable[Entry]) -> Experiment | None:
    """Return the experiment of a launch; None if it never began one."""
    by_stage = {entry.stage: entry for entry in entries if (entry.kind, entry.launch_id) == (_KIND, launch_id)}
    if _BEGAN not in by_stage:
        return None
    began, ended = ExperimentStart.model_validate_json(by_stage[_BEGAN].binding), by_stage.get(_ENDED)
    first, last = window(config, datetime.fromisoformat(by_stage[_BEGAN].created_at).date(), began.days)
    return Experiment(
        began,
        first,
        last,
        ended=None if ended is None else ExperimentEnd.model_validate_json(ended.binding),
        ended_at="" if ended is None else ended.created_at[:19],
    )


def window(config: LaunchConfig, began: date, days: int) -> tuple[date, date]:
    """First and last day whose logs count: whole days after the beginning.

    For a simulated population they are the days before, as a simulator writes their logs at once.
    """
    first = began - timedelta(days=days) if config.private_text.simulated else began + timedelta(days=1)
    return first, first + timedelta(days=days - 1)


def begin(
    config: LaunchConfig, launch_id: str, versions: Mapping[str, int], registry: Registry, ledger: PrivacyLedger
) -> None:
    """Begin the experiment of a candidate's versions; repeating the call changes nothing.

    Raises:
      ReleaseRefused: another launch is in an experiment of the same model, or the ledger holds no such bundle.
    """
    assert config.experiment is not None, "the caller checks that the launch is a candidate"
    before = of(config, launch_id, ledger.entries_of_launch(launch_id))
    if before is None:
        for name, version in versions.items():
            registry.require_of(name, config.population)
            registry.require_known(registry.published(name, version))
            _require_free(name, version, registry, ledger)
        began = ExperimentStart(
            versions=dict(versions),
            controls={name: registry.alias(name, "champion") for name in versions},
            share=config.experiment.share,
            days=config.experiment.days,
        )
        ledger.note(_KIND, config.population, launch_id, _BEGAN, began.model_dump(mode="json"))
    elif before.ended is not None:
        return
    else:
        versions = before.began.versions
    for name, version in versions.items():
        registry.set_alias(name, ALIAS, version)
        registry.describe(name, _SHARE, f"{config.experiment.share:g}")


def _require_free(name: str, version: int, registry: Registry, ledger: PrivacyLedger) -> None:
    """Refuse a second experiment of one model: both would share a control, and only one could be promoted."""
    other = registry.alias(name, ALIAS)
    if other in (None, version):
        return
    launch = registry.launch_of(name, other)
    if ledger.noted(_KIND, launch, _ENDED) is None:
        raise ReleaseRefused(
            f"experiment: {name} is in that of {launch}, version {other}; let it end ('tacit experiment decide "
            f"{launch}'), or stop it ('tacit experiment stop {launch}'), then begin this one again"
        )


def end(config: LaunchConfig, launch_id: str, how: ExperimentEnd, ledger: PrivacyLedger) -> None:
    """Record the end of an experiment, permanently.

    Raises:
      LedgerConflict: the ledger holds another end.
    """
    ledger.note(_KIND, config.population, launch_id, _ENDED, how.model_dump(mode="json"))


def carry_out(
    config: LaunchConfig, launch_id: str, tried: Experiment, registry: Registry, ledger: PrivacyLedger
) -> None:
    """Move the aliases by the ledger's entry; repeating the call changes nothing.

    Guarantee: only a version that the ledger holds, with the approved bundle, becomes champion; a version that lost is
    rolled back in the ledger, so that no repeated publication or experiment brings it back.

    Raises:
      ReleaseRefused: the ledger holds no such bundle.
    """
    assert tried.ended is not None, "the experiment has ended"
    for name, version in tried.began.versions.items():
        if tried.ended.promoted:
            registry.require_known(registry.published(name, version))
            promote(config, registry, name, version)
        else:
            why = {"reason": f"experiment: {'; '.join(tried.ended.reasons)}", "by": tried.ended.by}
            content = {"registered_model": name, "version": version, "to_version": tried.began.controls[name]} | why
            undo(ledger, config.population, launch_id, content)
        if registry.alias(name, ALIAS) == version:
            registry.describe(name, _SHARE, "0")
            registry.delete_alias(name, ALIAS)
