"""Launches from Python: the functions behind ``tacit check``, ``plan``, ``launch``, ``audit``, ``ab`` and ``verify``.

A launch is named by its launch file, its id, or the beginning of its id. What spends goes through the privacy ledger,
for a registered population; a finished stage does not run again, so a second call releases nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.answers import Answer, Plot, Table, drawn

if TYPE_CHECKING:
    from pipeline.preflight.plan import LaunchPlan
    from pipeline.preflight.readiness import Check
    from pipeline.publication.prediction import Prediction
    from pipeline.stages.launch import Ending
    from pipeline.verify.check import Verification

_RECALL = "top1_recall"


@dataclass(frozen=True, repr=False)
class Plan(Table[Any]):
    """Worst-case loss of a launch file and, with a planning block, its forecast gain."""

    value: "LaunchPlan"

    def rows(self) -> list[dict[str, Any]]:
        """Forecast gain of the file itself by total epsilon; empty where none is known."""
        return [{"epsilon": epsilon, **asdict(each)} for epsilon, each in self.value.forecast.items()]

    def plot(self) -> Plot:
        """Draw the forecast gain over the starting point against the total epsilon of one device.

        Raises:
          ValueError: the plan has no forecast.
        """
        from pipeline.preflight.plan import ForecastPlan, frontier_figure

        if not isinstance(self.value, ForecastPlan) or self.value.frontier is None:
            raise ValueError("planning: this plan has no forecast to draw; add a planning block to its launch file")
        return Plot(frontier_figure(self.value.frontier, self.value))


@dataclass(frozen=True, repr=False)
class LaunchEnding(Table[Any]):
    """Outcome of a launch: its decision, its guarantee, and its files."""

    value: "Ending"

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Arms of the comparison, as of ``compare``."""
        return compare(self.value.launch_id).rows()

    def plot(self) -> Plot:
        """Draw the recall of the launched model and of its baselines, as ``compare`` does."""
        return compare(self.value.launch_id).plot()


@dataclass(frozen=True, repr=False)
class Audit(Table[dict[str, Any]]):
    """Result of a launch's audit: canaries of each population, and verdicts on the noise."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Canaries with rank and exposure."""
        return self.value["canaries"]

    def plot(self) -> Plot:
        """Draw the exposure of the canaries that obey the participation timer, with their ceilings.

        Raises:
          ValueError: the launch planted none.
        """
        from reports.disclosure.findings import CanaryResult
        from reports.figures.audit import draw_exposure

        rows = [row for row in self.value["canaries"] if row["population"] == "compliant"]
        if not rows:
            raise ValueError("audit: this launch planted no compliant canaries, so there is none to draw")
        canaries = [CanaryResult.model_validate(row, extra="ignore") for row in rows]
        random = self.value["random_continuations"]
        height = 1.3 + 0.3 * len({(row.n_u, row.n_e) for row in canaries})
        return drawn(partial(draw_exposure, canaries=canaries, random_continuations=random), height)


@dataclass(frozen=True, repr=False)
class Comparison(Table[dict[str, Any]]):
    """Arms of a launch on its held-out devices, with intervals and verdicts."""

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Metrics of every arm, with intervals."""
        return self.value["arms"]

    def plot(self) -> Plot:
        """Draw the top-1 recall of every arm, in percent, with intervals."""
        from reports.figures.comparison import draw_arms

        rows = [
            (row["arm"], row["low"], row["value"], row["high"])
            for row in self.value["arms"]
            if row["metric"] == _RECALL
        ]
        return drawn(partial(draw_arms, arms=rows, label="top-1 recall (%)"), 0.9 + 0.3 * len(rows))


def check(launch: str | Path, *, alone: bool = False) -> Answer["Check"]:
    """Check a launch file, its data, its budget and this installation (``tacit check``).

    Args:
      alone: check the file alone.

    Raises:
      ValueError: every problem, one line each, with the field, the value and the fix.
    """
    from pipeline.ground import settings
    from pipeline.preflight import readiness
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES

    named = to_run(str(launch))
    if alone:
        done = readiness.check_file(named.config, named.run_id)
    else:
        done = readiness.check(named.config, named.run_id, settings.load(), STAGES)
    return Answer(done, "\n".join((f"{launch}: ok, launch {done.launch_id}", *done.notes, *map(str, done.reuse))))


def plan(launch: str | Path, devices: int | None = None) -> Plan:
    """Compute the worst-case loss of a launch file and, with a planning block, forecast its gain (``tacit plan``).

    It reads no text.

    Args:
      devices: that may take part; None for those of the launch's data, or the planning block's estimate.

    Raises:
      ValueError: the file is invalid, or the number of devices is unknown.
    """
    from pipeline.cli.plan import plan_text
    from pipeline.ground import settings
    from pipeline.preflight import plan as core
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES

    named = to_run(str(launch))
    done = core.plan(named.config, named.run_id, settings.load(), STAGES, devices=devices)
    return Plan(done, plan_text(done))


def launch(launch: str | Path) -> LaunchEnding:
    """Run every stage of a launch in this process, or resume it (``tacit launch``).

    Guarantee: that of the launch file's policy. Every release is reserved in the ledger before its noise is drawn.

    Raises:
      ValueError: preflight refuses the launch, one line for each problem, an unregistered population among them.
      LaunchError: there is no ledger, or a stage fails.
    """
    from pipeline.cli.display import ending
    from pipeline.ground import settings
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES
    from pipeline.stages.launch import ending_of
    from pipeline.stages.launch import launch as core
    from pipeline.verify.expiry import sweep

    named, here = to_run(str(launch)), settings.load()
    core(named.config, named.run_id, here, STAGES, erase_expired=sweep)
    done = ending_of(named.config, named.run_id, here, STAGES)
    return LaunchEnding(done, ending(done))


def audit(launch: str | Path) -> Audit:
    """Return the audit of a launch that has run it (``tacit audit``).

    Exposure in bits: Carlini et al. 2019, *The Secret Sharer*; Ramaswamy et al. 2020, section 4.

    Raises:
      ValueError: there is no such launch.
      LaunchError: the launch has not been audited.
    """
    from pipeline.cli.results import audit_text
    from pipeline.cli.support import open_existing

    audited = open_existing(str(launch))[1].result("audit")
    return Audit(audited, audit_text(audited))


def compare(launch: str | Path, feature: str | None = None) -> Comparison:
    """Return the comparison of a launch's arms on held-out devices (``tacit ab``).

    Shares of words, with user-bucketed jackknife intervals (Ramaswamy et al. 2020).

    Args:
      feature: NWP, SC or OTF; None for the launch's main one.

    Raises:
      ValueError: there is no such launch or feature.
      LaunchError: the launch has not been compared.
    """
    from pipeline.cli.results import comparison_text
    from pipeline.cli.support import open_existing

    config, run, _ = open_existing(str(launch))
    compared = run.result("ab_test")
    return Comparison(compared, comparison_text(compared, config.features, feature))


def verify(launch: str | Path, *, thorough: bool = False) -> Answer["Verification"]:
    """Derive a finished launch again, from its files, its records and the ledger (``tacit verify``).

    Args:
      thorough: also repeat public and private training, which takes as long as before.

    Raises:
      ValueError: there is no such launch.
    """
    from pipeline.cli.support import open_existing
    from pipeline.verify.check import verification
    from pipeline.verify.launch import SUBJECTS, THOROUGH
    from pipeline.verify.launch import verify as checks

    done = verification(list(checks(*open_existing(str(launch)), THOROUGH if thorough else SUBJECTS)))
    return Answer(done, str(done))


def predict(launch: str | Path, text: str) -> Answer["Prediction"]:
    """Predict the three likeliest next words (``tacit predict``).

    Args:
      launch: a published launch; a locale, for its champion in the ledger; or the folder of a published model.

    Raises:
      ValueError: there is no such launch or champion, or it published no model.
    """
    from pipeline.ground import settings
    from pipeline.publication.prediction import predict as core

    done = core(str(launch), text, settings.load())
    return Answer(done, " | ".join(done.words))
