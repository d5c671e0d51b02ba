"""The report of a rehearsal as Markdown."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pipeline.rehearsal.rehearse import Report
from pretrain.files import write_text


def write(report: Report, folder: Path) -> Path:
    """Write ``rehearsal.md`` into the folder, and return its path."""
    path = folder / "rehearsal.md"
    # No address of this machine, so that the page can be shown.
    write_text(path, ("\n".join(_lines(report)) + "\n").replace(str(folder.resolve()), "FOLDER"))
    return path


def _lines(report: Report) -> Iterable[str]:
    own, exercised = report.launch_file, len(report.gates) - len(report.not_exercised)
    minutes = sum(step.seconds for step in report.steps) / 60
    yield f"# Rehearsal of {own}"
    yield ""
    yield (
        f"On {datetime.now(UTC):%Y-%m-%d}, at commit {(report.commit or 'unknown')[:12]}, with {report.people:,} "
        f"made-up people where the file counts on {report.own_people:,}: {minutes:.0f} minutes on {report.processor}, "
        f"{report.memory_gib:.0f} GiB. The network, its vocabulary and its public training have {report.scale:g} of "
        f"their sizes, each sum {report.noise:.3g} of its noise. Launched, proved, published, replaced by a second "
        f"launch ({' and '.join(report.launches)}), rolled back; the first verified and erased."
    )
    yield ""
    yield (
        "Made-up people type words by their frequency, and no grammar. So this speaks of stages, gates, proofs, time "
        "and memory at this size alone, and not of what people would gain. "
        f"A made-up device loses {report.loss}."
    )
    yield from _table(
        "Stand-ins",
        ("field", "launch file", "rehearsal", "why"),
        [(each.field, _short(each.own), _short(each.here), each.why) for each in report.stand_ins],
    )
    yield from _table(
        "Steps",
        ("step", "minutes", "MiB", "command"),
        [
            (
                step.name,
                f"{step.seconds / 60:.1f}",
                "" if step.memory_mib is None else f"{step.memory_mib:,.0f}",
                step.seen or f"`{step.command.partition(' --')[0]}`",
            )
            for step in report.steps
        ],
    )
    yield from _table(
        f"Gates: {exercised} of {len(report.gates)} exercised, all passed",
        ("gate", "value", "bound", "passed"),
        [
            (
                gate.title,
                _number(gate.value),
                _number(gate.threshold),
                "not exercised" if gate.title in report.not_exercised else "yes",
            )
            for gate in report.gates
        ],
    )


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield from ("", f"## {title}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|")
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = (
        "" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."
