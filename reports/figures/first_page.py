"""The picture of the first page: correct first suggestions before, after, and without privacy."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from matplotlib.axes import Axes

from reports.disclosure.document import Disclosure
from reports.disclosure.utility import NON_PRIVATE
from reports.figures.style import BLUE, INK, svg
from reports.languages import PICTURES, in_digits_of, languages

_GREY = "#7a7a7a"
_METRIC = "top1_recall"
Kind = Literal["start", "champion", "private", "simulated", "forecast"]


class Bar(NamedTuple):
    """Share of typed words that are the first suggestion, in percent; ``forecast`` was not measured.

    Attributes:
      error: half the interval, or two standard deviations of a forecast.
    """

    kind: Kind
    value: float
    error: float


def of_first_page(disclosure: Disclosure) -> dict[str, str]:
    """The picture in each language of the first page; none without a comparison."""
    bars = bars_of(disclosure)
    return {f"first_page_{language}": _drawn(bars, language) for language in languages(disclosure)} if bars else {}


def bars_of(disclosure: Disclosure) -> tuple[Bar, ...]:
    """The model before, this launch, and the same without privacy: measured in simulations, else forecast.

    A forecast that this launch has passed (``Disclosure.forecast_is_passed``) is not drawn.
    """
    utility = disclosure.utility
    if utility is None:
        return ()
    had = utility.champion
    before = had.arm if had and not had.left_out and utility.value(had.arm, _METRIC) else "start"
    arms: tuple[tuple[Kind, str], ...] = (
        ("start" if before == "start" else "champion", before),
        ("private", "private"),
        ("simulated", NON_PRIVATE),
    )
    bars = [
        Bar(kind, 100 * row.value, 50 * (row.high - row.low))
        for kind, arm in arms
        if (row := utility.value(arm, _METRIC)) is not None
    ]
    start, free = utility.value("start", _METRIC), disclosure.accounting.without_privacy
    if start is not None and free is not None and not disclosure.forecast_is_passed:
        bars.append(Bar("forecast", 100 * start.value + free.points, 2 * free.error))
    return tuple(bars) if any(bar.kind == "private" for bar in bars) else ()


def _drawn(bars: Sequence[Bar], language: str) -> str:
    words = PICTURES[language]
    places = list(range(len(bars), 0, -1))

    def shown(bar: Bar) -> str:
        return in_digits_of(language, f"{bar.value:.1f}% ± {bar.error:.1f}")

    def draw(axes: Axes) -> None:
        for place, bar in zip(places, bars, strict=True):
            guessed = bar.kind == "forecast"
            fill, line = ("none", "--") if guessed else (_colour(bar), "-")
            axes.barh(place, bar.value, 0.44, facecolor=fill, edgecolor=_colour(bar), linewidth=1.2, linestyle=line)
            axes.errorbar(bar.value, place, xerr=bar.error, fmt="none", ecolor=INK, elinewidth=1.2, capsize=2)
            axes.annotate(shown(bar), (bar.value + bar.error, place), (6, 0), textcoords="offset points", va="center")
            # Above its bar: beside it, a phone would have to show both in small.
            axes.annotate(words[bar.kind], (0, place), (2, 15), textcoords="offset points", va="center")
        axes.set(yticks=[], xticks=[], ylim=(0.7, len(bars) + 0.7))
        axes.set_xlim(0, 1.5 * max(bar.value + bar.error for bar in bars))
        axes.spines["bottom"].set_visible(False)

    spoken = "; ".join(f"{words[bar.kind]}: {shown(bar)}" for bar in bars)
    return svg(words["title"], f"{spoken}.", draw, height=0.5 * len(bars), width=3.2)


def _colour(bar: Bar) -> str:
    return BLUE if bar.kind == "private" else _GREY
