"""Shared parts of all figures: arguments, a paper's statements and numbers with ours, panels, and result files."""

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from federated.accounting.published_rows import agrees
from reports.figures.style import COLOURS, svg

EXPECTED = "The paper prints no numbers of this: judged is what its text says."
NUMBERS, HEADS = "## Printed numbers", ("where", "what", "printed", "here", "agrees", "if not, why")
RESULTS = Path(__file__).parent / "results"
Draw = Callable[[Axes], None]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, what came out here, and whether the one follows from the other."""

    says: str
    here: str
    holds: bool


@dataclass(frozen=True)
class Number:
    """A number that a paper prints, beside ours.

    Attributes:
      where: paper, and table, figure or section.
      printed: its digits; ``637e3`` where thousands were printed.
      here: None where nothing here computes it.
      why: known reason of a difference, or of no number.
    """

    where: str
    what: str
    printed: str
    here: float | None
    why: str = ""

    @property
    def agrees(self) -> bool | None:
        """True if ours is at most half a unit of the last printed digit away; None without ours."""
        return None if self.here is None else agrees(self.printed, self.here)

    @property
    def row(self) -> list[str]:
        """Cells of the table of numbers; ours has three digits more than were printed."""
        verdict = {True: "yes", False: "**no**", None: "**not computed**"}[self.agrees]
        digits = len(Decimal(self.printed).as_tuple().digits) + 3
        ours = "" if self.here is None else f"{self.here:.{digits if abs(self.here) < 1000 else 8}g}"
        return [self.where, self.what, self.printed, ours, verdict, "" if self.agrees else self.why]


@dataclass(frozen=True)
class Result:
    """The output of one command: ``NAME.svg`` and ``NAME.md``.

    Attributes:
      name: of the files.
      title: of the page and, read aloud, of the picture.
      paper: which figure or table of which paper this stands for.
      setting: a sentence on what was done here.
      table: heads first.
      draws: one a panel; none where a table says it all.
      columns: panels in a row.
      printed: the claims hold printed numbers; otherwise the page says that only the paper's text is judged.
      numbers: every number that the paper prints of this.
    """

    name: str
    title: str
    paper: str
    setting: str
    table: Sequence[Sequence[object]]
    claims: Sequence[Claim]
    draws: Sequence[Draw] = ()
    columns: int = 2
    panel: tuple[float, float] = (3.6, 2.9)
    printed: bool = False
    numbers: Sequence[Number] = ()


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the module's own words."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--results", type=Path, default=RESULTS, help="folder of the picture and its page")
    return made


def verdicts(claims: Iterable[Claim]) -> list[str]:
    """The line of what agrees and the line of what does not."""
    lines = []
    for head, kept in (("Agrees", True), ("Does not", False)):
        listed = [f"{claim.says} (here {claim.here})" for claim in claims if bool(claim.holds) is kept]
        lines.append(f"**{head}:** {'; '.join(listed) or 'nothing'}.")
    return lines


def markdown(table: Sequence[Sequence[object]]) -> list[str]:
    """Rows as a Markdown table; numbers with four digits, None as an empty cell."""
    heads, *rows = ([shown(cell) for cell in row] for row in table)
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def number_table(numbers: Iterable[Number]) -> list[str]:
    """Printed numbers as a Markdown table."""
    return markdown([HEADS, *(one.row for one in numbers)])


def shown(cell: object) -> str:
    """A cell as text."""
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


@dataclass(frozen=True)
class Line:
    """One line of a panel: its points, and how it looks; a name that begins with ``_`` stays out of the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    style: str = "-"


def lines(
    drawn: Iterable[Line],
    x_label: str,
    y_label: str,
    log: str = "",
    mark: float | None = None,
    y_limits: tuple[float, float] | None = None,
) -> Draw:
    """A panel of lines.

    Args:
      log: which axes are logarithmic, as in ``xy``.
      mark: where a vertical line stands, such as what was planned.
    """
    kept = list(drawn)

    def draw(axes: Axes) -> None:
        for line in kept:
            axes.plot(
                line.x, line.y, line.style, marker="o", markersize=2.5, color=COLOURS[line.colour], label=line.name
            )
        if mark is not None:
            axes.axvline(mark, color="#7a7a7a", linewidth=0.8, linestyle="--")
        if "x" not in log:
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # rounds, words: nothing comes in halves
        for name in log:
            axes.set(**{f"{name}scale": "log"})
            axis = axes.xaxis if name == "x" else axes.yaxis
            values = [value for line in kept for value in (line.x if name == "x" else line.y)]
            crowded = name == "x" and max(values) > 30 * min(values)
            axis.set_major_locator(LogLocator(subs=(1, 3) if crowded else (1, 2, 5)))
            axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
            axis.set_minor_locator(NullLocator())
        axes.set(xlabel=x_label, ylabel=y_label)
        if y_limits is not None:
            axes.set_ylim(y_limits)
        axes.grid(visible=True)

    return draw


def picture(result: Result) -> str:
    """All panels in one SVG, their common legend below."""

    def draw(axes: Axes) -> None:
        figure = axes.figure
        assert isinstance(figure, Figure)
        axes.remove()
        columns = min(result.columns, len(result.draws))
        rows = math.ceil(len(result.draws) / columns)
        width, height = result.panel
        for number, panel in enumerate(result.draws):
            panel(figure.add_subplot(rows, columns, number + 1))
        lines = {}
        for one in figure.axes:
            handles, labels = one.get_legend_handles_labels()
            lines |= dict(zip(labels, handles, strict=True))
        beside = 3 if columns > 1 else 2
        figure.set_size_inches(columns * width, rows * height + 0.25 * math.ceil(len(lines) / beside))
        if lines:
            figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=beside, fontsize=9)

    spoken = " ".join(line.replace("*", "") for line in verdicts(result.claims))
    return svg(result.title, f"{result.paper}. {spoken}", draw)


def write(result: Result, command: str, folder: Path) -> None:
    """Write the two files and print the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = [f"# {result.title}", "", f"{result.paper}. {result.setting}", "", f"`{command}`", ""]
    page += [] if result.printed or result.numbers else [EXPECTED, ""]
    if result.draws:
        (folder / f"{result.name}.svg").write_text(picture(result), encoding="utf-8")
        page += [f"![{result.title}]({result.name}.svg)", ""]
    page += [*(line + "\n" for line in verdicts(result.claims)), *markdown(result.table)]
    if result.numbers:
        page += ["", NUMBERS, "", *number_table(result.numbers)]
    (folder / f"{result.name}.md").write_text("\n".join(page) + "\n", encoding="utf-8")
    print("\n".join(page))
