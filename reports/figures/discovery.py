"""Figures of word discovery: words and noise by layer."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from reports.disclosure.document import Disclosure
from reports.disclosure.releases import LocalWords
from reports.figures.style import BLUE, COLOURS, ORANGE, RED, interval, legend_above, rows, svg

_LAYER = "layer (letters, end of word included)"


def of_discovery(disclosure: Disclosure) -> dict[str, str]:
    """The report's figures of a discovery: SVG by name; none without layers."""
    local = disclosure.release(LocalWords)
    rows = [row for row in local.layers if row.messages] if local else []
    if not rows:
        return {}
    return {
        "words_by_layer": words_by_layer([row.finished for row in rows]),
        "domain_and_noise": domain_and_noise([row.domain for row in rows], [row.noise / row.messages for row in rows]),
    }


def words_by_layer(words: Sequence[int], false: Sequence[int] | None = None) -> str:
    """Words found in each layer; false ones, where they are known, below the axis.

    Args:
      words: those found, layer by layer from 1.
      false: those among them that nobody types, layer by layer; known only in simulations such as a benchmark.

    Raises:
      ValueError: no layer, or false words of other layers.
    """
    if not words:
        raise ValueError("words: got no layer; give one or more")
    if false is not None and len(false) != len(words):
        raise ValueError("false: it must have the layers of 'words'")
    layers = range(1, len(words) + 1)

    def draw(axes: Axes) -> None:
        axes.bar(layers, words, 0.8, color=COLOURS[0], label="words found")
        if false is not None:
            axes.bar(layers, [-count for count in false], 0.8, color=RED, label="false words" if any(false) else None)
        axes.axhline(0, color="#808080", linewidth=0.8)
        axes.set(xlabel=_LAYER, ylabel="words found", xticks=layers)
        axes.set_xlim(0.4, len(words) + 0.6)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
        legend_above(axes, 4)

    wrong = "" if false is None else f", {sum(false)} of them false"
    return svg("Words by layer", f"{sum(words)} words over {len(words)} layers{wrong}.", draw)


def domain_and_noise(domains: Sequence[int], noises: Sequence[float]) -> str:
    """Size of the domain of each layer, and the standard deviation of its estimates as a share of its messages.

    Args:
      domains: items, layer by layer from 1.
      noises: of the same layers; noise in messages over messages received, from 0 to 1.

    Raises:
      ValueError: no layer, or noises of other layers.
    """
    if not domains:
        raise ValueError("domains: got no layer; give one or more")
    if len(noises) != len(domains):
        raise ValueError("noises: they must have the layers of 'domains'")
    layers, loudest = range(1, len(domains) + 1), 100 * max(noises)

    def draw(axes: Axes) -> None:
        right = axes.twinx()
        # The left axes hold the legend, so they also get the label of the right axes.
        axes.plot(layers, domains, "o-", color=BLUE, markersize=4, label="domain")
        axes.plot([], [], "o-", color=ORANGE, markersize=4, label="noise")
        right.plot(layers, [100 * share for share in noises], "o-", color=ORANGE, markersize=4)
        axes.set(xlabel=_LAYER, ylabel="candidates", yscale="log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=16))
        right.set_ylabel("noise (% of messages)")
        right.set_ylim(0, 1.4 * loudest)
        right.spines["right"].set_visible(True)
        axes.grid(visible=True)
        legend_above(axes, 2)

    spoken = f"At most {max(domains):,} items; noise at most {loudest:.3f}%."
    return svg("Domain and noise by layer", spoken, draw, height=2.9)


def draw_shares(axes: Axes, words: Sequence[tuple[str, float, float, float]]) -> None:
    """Draw found words as rows, each with its share of what devices contribute and the interval, in percent.

    Args:
      words: word, then low, value and high of its share, from 0 to 1; the first on top.
    """
    places = rows(axes, [word for word, *_ in words], "share of what devices contribute (%)")
    for (_, low, share, high), place in zip(words, places, strict=True):
        interval(axes, place, (100 * low, 100 * share, 100 * high), BLUE, thin=True)
    axes.set_xlim(left=0)
