"""From rows to tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.private_training.settings import SETTINGS
from benchmarks.private_training.training import START, Row, averaged


@dataclass(frozen=True)
class Gain:
    """Points of recall above the start.

    Attributes:
      error: standard error over draws of the noise; None with a single draw.
    """

    mean: float
    error: float | None

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")


def gain(values: Sequence[float], start: float) -> Gain:
    """Mean difference from the start."""
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None
    return Gain(float(np.mean(values)) - start, error)


def tables(rows: Iterable[Row], draws: int) -> Iterator[str]:
    """A table a population, then what has not been measured."""
    by_population: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        by_population.setdefault(row.population, {}).setdefault(row.setting, []).append(row)
    for population, by_setting in by_population.items():
        if START not in by_setting:
            continue
        start = by_setting[START][0]
        yield f"## {population}: {start.devices:,} devices to train on\n"
        yield from table(start, by_setting)
        yield f"\n{_missing(by_setting, draws)}\n"


def table(start: Row, by_setting: dict[str, list[Row]]) -> Iterator[str]:
    """All settings with a row, in the order of ``SETTINGS``: gains above the start, and first the start's recalls."""
    metrics = "chosen by | top-1 | top-3 | first word | other words | distinct"
    yield f"| setting | draws | rounds x devices, each device | z | {metrics} | CPU s |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    judged, test = start.validation, start.test
    own = f"{judged.top1:.2f} | {test.top1:.2f} | {test.top3:.2f} | {test.first:.2f} | {test.rest:.2f}"
    yield f"| start | | | | {own} | {test.distinct:,} | |"
    group = ""
    for setting in SETTINGS:
        names = (setting.name, *(averaged(setting, last) for last in setting.averages))
        measured = [name for name in names if name in by_setting]
        if measured and setting.group != group:
            group = setting.group
            yield f"| *{group}* | | | | | | | | | | |"
        for name in measured:
            yield line(name, by_setting[name], start)


def line(name: str, rows: Sequence[Row], start: Row) -> str:
    """One setting."""

    def of(metric: str, split: str = "test") -> Gain:
        return gain([getattr(getattr(row, split), metric) for row in rows], getattr(getattr(start, split), metric))

    first = rows[0]
    shape = f"{first.rounds} x {first.goal}, {first.max_participations}"
    noise = "0" if first.rho is None else f"{first.noise_multiplier:.3g}"
    gains = " | ".join(str(of(metric)) for metric in ("top1", "top3", "first", "rest"))
    distinct = np.mean([row.test.distinct for row in rows])
    cpu = np.mean([row.cpu for row in rows])
    chosen_by = of("top1", "validation")
    return f"| {name} | {len(rows)} | {shape} | {noise} | {chosen_by} | {gains} | {distinct:,.0f} | {cpu:.0f} |"


def _missing(by_setting: dict[str, list[Row]], draws: int) -> str:
    absent = [setting.name for setting in SETTINGS if setting.name not in by_setting]
    fewer = [
        setting.name
        for setting in SETTINGS
        if setting.name not in absent and setting.noise and len(by_setting[setting.name]) < draws
    ]
    said = f"Not measured: {'; '.join(absent)}." if absent else "Every setting is measured."
    return f"{said} With fewer than {draws} draws of the noise: {len(fewer)} of {len(SETTINGS) - len(absent)}."
