"""Pictures of the committed table of ``words.py``: coverage against what one device loses, locally and centrally.

Read from the table, so that a picture never says other than the numbers beside it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from reports.figures.style import svg

RESULTS = Path("benchmarks/results")
TABLE = RESULTS / "2026-11-22-words.md"
# Okabe and Ito's: told apart by everybody, and each has a mark of its own besides.
_LOOKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"))
_INK, _PAPER = "#202020", "#ffffff"


@dataclass(frozen=True)
class Curve:
    """Coverage in per cent on one population, with its standard deviation where keys were redrawn.

    Attributes:
      local: epsilon of a device and coverage of the local discovery; central: the same by epsilon.
    """

    name: str
    local: tuple[float, float, float]
    central: tuple[tuple[float, float, float], ...]


def curves(page: str) -> list[Curve]:
    """The populations of a page of results, in its order.

    Raises:
      ValueError: a table without a local or a central row.
    """
    drawn = []
    for section in page.split("\n## ")[1:]:
        for part in re.split(r"\n(?=[\d,]+ devices answer)", section):
            rows = re.findall(r"^\| ([a-z, ]+) \| ([\d.]+) \| [^|]+ \| ([\d.]+)(?: ± ([\d.]+))? \|", part, re.MULTILINE)
            if not rows:
                continue
            points = {name: [] for name, *_ in rows}
            for name, *numbers in rows:
                points[name].append(tuple(float(number or 0) for number in numbers))
            size = re.search(r"([\d,]+) devices answer", part)
            if size is None or len(points.get("local", ())) != 1 or not points.get("central"):
                raise ValueError(f"{section.splitlines()[0]}: expected devices, one local row and central ones")
            name = re.split(r"[,:(]", section.splitlines()[0])[0].strip()
            drawn.append(Curve(f"{name}, {size[1]} devices", points["local"][0], tuple(sorted(points["central"]))))
    return drawn


def picture(title: str, drawn: Sequence[Curve]) -> str:
    """Central as a line over epsilon, local as one hollow mark, on white paper."""
    spoken = "; ".join(
        f"{curve.name}: local {curve.local[1]:g}% at epsilon {curve.local[0]:g}, central "
        + ", ".join(f"{share:g}% at {epsilon:g}" for epsilon, share, _ in curve.central)
        for curve in drawn
    )
    alone = svg(title, f"Coverage of unknown words by epsilon of a device. {spoken}.", _drawing(drawn), height=3.4)
    alone = alone.replace("currentColor", _INK)
    paper = f'<rect width="100%" height="100%" fill="{_PAPER}"/>'
    return alone.replace("</desc>", f"</desc>{paper}", 1) + "\n"


def _drawing(drawn: Sequence[Curve]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for curve, (colour, mark) in zip(drawn, _LOOKS, strict=False):
            epsilons, shares, spreads = zip(*curve.central, strict=True)
            axes.errorbar(epsilons, shares, spreads, color=colour, marker=mark, capsize=2, label=curve.name)
            epsilon, share, spread = curve.local
            axes.errorbar(
                epsilon, share, spread, color=colour, marker=mark, markerfacecolor=_PAPER, markersize=8, capsize=2
            )
            axes.axhline(share, color=colour, linewidth=0.8, linestyle=":")
        axes.set(
            xscale="log", xlim=(0.4, 120), xticks=[0.5, 1, 2, 4, 10, 20, 40, 80],
            xticklabels=["0.5", "1", "2", "4", "10", "20", "40", "80"], xlabel="ε that one device loses (log scale)",
            ylabel="unknown running words\nthat are found (%)",
        )  # fmt: skip
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid(visible=True)
        axes.set_title("line: central; hollow mark and dotted line: local, messages at ε₀ 8", fontsize=9, loc="left")
        axes.legend(loc="best", fontsize=9)

    return draw


def write(table: Path = TABLE, folder: Path = RESULTS) -> list[Path]:
    """``words-real.svg`` and ``words-synthetic.svg``, of real people and of made-up ones by population size."""
    every = curves(table.read_text(encoding="utf-8"))
    made_up = [curve for curve in every if curve.name.startswith("Synthetic")]
    parts = {
        "real": ("Words found of real people", [curve for curve in every if curve not in made_up]),
        "synthetic": ("Words found of synthetic people", made_up),
    }
    written = []
    for name, (title, drawn) in parts.items():
        written.append(folder / f"words-{name}.svg")
        written[-1].write_text(picture(title, drawn), encoding="utf-8")
    return written
