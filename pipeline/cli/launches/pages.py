"""``tacit site``: every launch, here or known to the ledger, as static pages."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.cli.launches import known, named, spent
from pipeline.cli.support import AsJson, answer, command
from pipeline.ground import settings
from pipeline.ground.settings import Settings
from pipeline.ledger.entries import SPENDING, Entry
from pipeline.run.run_dir import RunDir

if TYPE_CHECKING:
    from reports.site import Launches, LedgerLaunch, PublishedFiles

# Entries that are about a population, or whose registered model a name is.
_NO_LAUNCH = frozenset({"register", "budget", "devices", "model"})


@command
def site(as_json: AsJson = False) -> None:
    """Write an index of all launches into the runs directory, and keyboards to try published ones on.

    It lists what 'tacit runs' does, with links, and figures of what was spent and gained over time.

    Example: tacit site
    """
    from evaluation.keyboard import layouts  # with numpy, as all below: slow to import
    from pretrain import text
    from reports import site as core
    from reports.keyboard import Writing

    here = settings.load()
    made = core.build(
        here.runs_dir,
        here.web_dir,
        lambda locale: Writing(layouts.rows(locale), text.for_browsers(locale)),
        _published(here),
        _launches(here),
    )
    lines = [f"index: {made.index}", *(f"keyboard: {page}" for page in made.keyboards)]
    if made.without:
        lines.append(
            f"keyboards: {made.without} not made, as {here.web_dir} holds no onnxruntime-web; "
            "'make web' installs it by npm, then 'tacit site' again"
        )
    content = {"index": str(made.index), "keyboards": [str(page) for page in made.keyboards], "without": made.without}
    answer(content, as_json, text="\n".join(lines))


def _published(here: Settings) -> "PublishedFiles":
    """Publications of launches, by records that the ledger holds."""
    from pipeline.run.known import ledger_belief_now

    believes = ledger_belief_now(here.ledger_url)

    def files(run_id: str) -> Mapping[str, str]:
        record = RunDir(here.runs_dir, run_id, believes).record("publish")
        return record.outputs if record and record.result["published"] else {}

    return files


def _launches(here: Settings) -> "Launches":
    from pipeline.cli.launches.courses import courses
    from reports.site import Launches

    entries = known.entries_of(here)
    rows = known.rows(here, entries)
    populations = dict.fromkeys(row["population"] for row in rows)
    drawn = [course for name in populations for course in courses(entries or (), name)]
    return Launches(rows, _elsewhere(entries or (), named.begun(here)), drawn)


def _elsewhere(entries: Sequence[Entry], begun: Sequence[str]) -> "list[LedgerLaunch]":
    """Launches that only the ledger knows, the newest first."""
    from pipeline.publication.approvals import approvers
    from reports.site import LedgerLaunch

    others: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.does not in _NO_LAUNCH and entry.launch_id not in begun:
            others.setdefault(entry.launch_id, []).append(entry)
    listed = [
        LedgerLaunch(
            launch_id=name,
            populations=tuple(dict.fromkeys(entry.population for entry in theirs if entry.does in SPENDING)),
            spent=tuple(map(str, spent.of_launch(theirs, name))),
            began=theirs[0].created_at,
            ended=theirs[-1].created_at,
            approvers=approvers(name, theirs),
        )
        for name, theirs in others.items()
    ]
    return sorted(listed, key=lambda each: each.began, reverse=True)
