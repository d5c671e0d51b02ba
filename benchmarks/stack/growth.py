"""Growth of the stack's memory, files and rows by launch, and the rule for a leak: the pure part of ``soak``.

Slopes are Theil and Sen's (the median over pairs of samples), with their 95% interval: one sample that met a busy
moment moves neither. Samples before ``WARM_UP`` launches do not count (imports, pools of connections, caches).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from matplotlib.axes import Axes
from scipy.stats import theilslopes

from reports.figures.style import COLOURS, svg

WARM_UP = 8
# What must not grow with launches, and the growth of one launch below which nobody would ever notice: at 50 launches a
# week and a restart a month, 50 MiB and 20 open files.
FLAT = {
    "memory": ("MiB", 0.25),
    "files": ("", 0.1),
    "threads": ("", 0.1),
    "connections": ("", 0.1),
    "processes": ("", 0.1),
    "queue": ("", 0.1),
    "left": ("", 0.1),
}
# What every launch adds to: as much by the last as by the first.
CONSTANT = {"rows": "", "database": "KiB", "disk": "KiB", "count": ""}
MOST_RATIO = 1.25
# Tasks that have ended: how far launches are that are under way.
WORK = "rows/airflow.celery_taskmeta"
# Rows are shown of the databases and of this many that grow most, all tables are judged.
MOST_TABLES = 12
TITLES = {
    "memory": "memory of its own",
    "files": "open files",
    "threads": "threads",
    "connections": "connections to database",
    "processes": "processes",
    "queue": "Redis",
    "left": "left behind",
    "rows": "rows",
    "database": "database",
    "disk": "disk",
    "count": "files on disk",
}


@dataclass(frozen=True)
class Sample:
    """Measurements once ``launches`` had ended; ``values`` by names as in ``memory/mlflow``."""

    launches: int
    seconds: float
    values: dict[str, float]


@dataclass(frozen=True)
class Slope:
    """Growth by one launch, with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Trend:
    """One quantity over the launches.

    Attributes:
      before, after: medians of the first and the last three samples that count.
      at_rest: before any launch, and after all.
      slope: over all samples that count; halves: over the earlier and the later half of them.
    """

    name: str
    before: float
    after: float
    at_rest: tuple[float, float]
    slope: Slope
    halves: tuple[Slope, Slope]

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]

    @property
    def unit(self) -> str:
        return FLAT[self.kind][0] if self.kind in FLAT else CONSTANT[self.kind]

    @property
    def leaks(self) -> bool:
        """True if it surely grows where it must not, or surely faster and faster."""
        if self.kind in FLAT:
            return self.slope.low > FLAT[self.kind][1]
        earlier, later = self.halves
        return later.low > MOST_RATIO * max(earlier.high, 0.0)

    @property
    def said(self) -> str:
        """The verdict in words."""
        earlier, later = self.halves
        if self.kind in FLAT:
            if self.leaks:
                return "grows"
            return "flat" if self.slope.high <= FLAT[self.kind][1] else "not told: its interval is too wide"
        if self.leaks:
            return f"faster and faster: {number(earlier.value)} a launch, then {number(later.value)}"
        return "constant" if later.value <= MOST_RATIO * earlier.value + 0.05 else "not told: its interval is too wide"


def trends(samples: Sequence[Sample], warm_up: int = WARM_UP) -> list[Trend]:
    """Every quantity that samples hold; the first sample and the last are taken at rest and are in no slope.

    Raises:
      ValueError: fewer than six samples after warm-up, of which no half has a slope.
    """
    samples = [with_totals(sample) for sample in samples]
    counted = [sample for sample in samples[1:-1] if sample.launches >= warm_up]
    if len(counted) < 6:
        raise ValueError(f"{len(counted)} samples after {warm_up} launches; a slope needs six: let more launches run")
    names = sorted({name for sample in samples for name in sample.values if name.partition("/")[0] in FLAT | CONSTANT})
    return [_trend(name, samples, counted) for name in names]


def with_totals(sample: Sample) -> Sample:
    """A sample with the rows of each database beside those of its tables, as in ``rows/ledger, all tables``."""
    totals: dict[str, float] = {}
    for name, value in sample.values.items():
        if name.startswith("rows/"):
            database = f"{name.partition('.')[0]}, all tables"
            totals[database] = totals.get(database, 0.0) + value
    return replace(sample, values=sample.values | totals)


def _trend(name: str, samples: Sequence[Sample], counted: Sequence[Sample]) -> Trend:
    launches = [float(sample.launches) for sample in counted]
    if name.partition("/")[0] in CONSTANT and WORK in samples[-1].values:
        # Launches under way have added too, by how far they are.
        launches = [sample.values[WORK] * samples[-1].launches / samples[-1].values[WORK] for sample in counted]
    values = [sample.values.get(name, 0.0) for sample in counted]
    half = len(counted) // 2
    return Trend(
        name,
        median(values[:3]),
        median(values[-3:]),
        (samples[0].values.get(name, 0.0), samples[-1].values.get(name, 0.0)),
        slope(launches, values),
        (slope(launches[: half + 1], values[: half + 1]), slope(launches[half:], values[half:])),
    )


def slope(launches: Sequence[float], values: Sequence[float]) -> Slope:
    fitted = theilslopes(values, launches, alpha=0.95)
    return Slope(float(fitted.slope), float(fitted.low_slope), float(fitted.high_slope))


def table(samples: Sequence[Sample], warm_up: int = WARM_UP) -> str:
    """The trends as Markdown: everything that must be flat, then what grows, largest tables alone."""
    every = trends(samples, warm_up)
    return "\n".join(_rows(every, samples))


def _rows(every: Sequence[Trend], samples: Sequence[Sample]) -> Iterator[str]:
    last = samples[-1]
    yield f"{last.launches} launches in {last.seconds / 60:.0f} minutes, {len(samples)} samples\n"
    yield "| what must not grow | at rest, before | early | late | at rest, after | a launch adds (95%) | |"
    yield "|---|---|---|---|---|---|---|"
    for kind in FLAT:
        for trend in every:
            if trend.kind == kind and max(trend.before, trend.after, *trend.at_rest) > 0:
                yield _row(trend, (trend.at_rest[0], trend.before, trend.after, trend.at_rest[1]))
    yield "\n| what every launch adds to | before | after | a launch adds (95%) | earlier half, later half | |"
    yield "|---|---|---|---|---|---|"
    for kind in CONSTANT:
        grown = [trend for trend in every if trend.kind == kind and (trend.slope.value > 0 or trend.leaks)]
        shown = sorted(grown, key=lambda trend: -trend.slope.value)
        if kind == "rows":
            shown = [
                trend for at, trend in enumerate(shown) if at < MOST_TABLES or "all tables" in trend.name or trend.leaks
            ]
        for trend in shown:
            earlier, later = trend.halves
            yield _row(trend, trend.at_rest, f" {number(earlier.value)}, {number(later.value)} |")


def _row(trend: Trend, values: Sequence[float], more: str = "") -> str:
    unit = f", {trend.unit}" if trend.unit else ""
    name = f"{TITLES[trend.kind]}: {trend.name.partition('/')[2]}{unit}"
    slope = f"{number(trend.slope.value)} ({number(trend.slope.low)} to {number(trend.slope.high)})"
    return f"| {name} | {' | '.join(map(number, values))} | {slope} |{more} {trend.said} |"


def number(value: float) -> str:
    """Three digits or all before the point; a zero is a zero."""
    if abs(value) < 0.0005:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def picture(samples: Sequence[Sample]) -> str:
    """Memory and open files of each service, and rows, by launches that ended, on white paper."""
    named = {name.partition("/")[2] for name in samples[0].values if name.startswith("memory/")}
    services = sorted(name for name in named if not name.endswith("a process"))
    flat = {name: [sample.values.get(f"memory/{name}", 0.0) for sample in samples] for name in services}
    spoken = "; ".join(f"{name} {values[0]:.0f} to {values[-1]:.0f} MiB" for name, values in flat.items())
    alone = svg("A soak of the stack", f"Memory by launches: {spoken}.", _drawing(samples, services), 3.6, 10.5)
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return alone.replace("currentColor", "#202020").replace("</desc>", f"</desc>{paper}", 1) + "\n"


def _drawing(samples: Sequence[Sample], services: Sequence[str]) -> Callable[[Axes], None]:
    launches = [sample.launches for sample in samples]

    def draw(axes: Axes) -> None:
        figure = axes.figure
        axes.remove()
        memory, files, rows = figure.subplots(1, 3)
        for name, colour in zip(services, COLOURS, strict=False):
            for panel, kind in ((memory, "memory"), (files, "files")):
                panel.plot(
                    launches, [sample.values.get(f"{kind}/{name}", 0.0) for sample in samples], color=colour, label=name
                )
        for name, colour in zip(("ledger", "airflow", "mlflow"), COLOURS, strict=False):
            kept = [with_totals(sample).values.get(f"rows/{name}, all tables", 0.0) / 1000 for sample in samples]
            rows.plot(launches, kept, color=colour, label=name)
        for panel, title in ((memory, "memory, MiB"), (files, "open files"), (rows, "rows, thousands")):
            panel.set(xlabel="launches that ended", title=title)
            panel.set_ylim(bottom=0)
            panel.grid(visible=True)
        rows.legend(fontsize=8)
        figure.legend(*memory.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)

    return draw
