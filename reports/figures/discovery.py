"""Figures of word discovery: coverage by epsilon, words and noise by layer."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from reports.disclosure.findings import CentralBlock, DiscoveryBlock
from reports.figures.style import BLUE, COLOURS, ORANGE, RED, legend_above, svg

_MARKS = "osD^"  # of passes
_LAYER = "layer (letters, end of word included)"


def of_discovery(discovery: DiscoveryBlock | CentralBlock) -> dict[str, str]:
    """The report's figures of a discovery: SVG by name; none without layers or with more passes than marks."""
    if isinstance(discovery, CentralBlock):
        return {}
    rows = [row for row in discovery.layers if row.messages]
    passes = sorted({row.pass_number for row in rows})
    if not 0 < len(passes) <= len(_MARKS):
        return {}
    by_pass = [[row for row in rows if row.pass_number == number] for number in passes]
    projected = [(point.epsilon0, point.coverage) for point in discovery.projection]
    measured = None
    if discovery.coverage is not None and discovery.coverage_low is not None and discovery.coverage_high is not None:
        measured = (discovery.epsilon0, discovery.coverage, discovery.coverage_low, discovery.coverage_high)
    coverage = {"projected on public text": projected}
    return ({"coverage_by_epsilon": coverage_by_epsilon(coverage, measured)} if projected else {}) | {
        "words_by_layer": words_by_layer([[row.finished for row in layers] for layers in by_pass]),
        "domain_and_noise": domain_and_noise(
            [[row.domain for row in layers] for layers in by_pass],
            [[row.noise / row.messages for row in layers] for layers in by_pass],
        ),
    }


def coverage_by_epsilon(
    curves: Mapping[str, Sequence[tuple[float, float]]], measured: tuple[float, float, float, float] | None = None
) -> str:
    """Share of out-of-vocabulary tokens covered, against the local epsilon of a message.

    Args:
      curves: name -> (epsilon, coverage from 0 to 1), ascending; at most four.
      measured: epsilon, coverage and the ends of its interval, of a real discovery.

    Raises:
      ValueError: no curve, an empty one, or more than four.
    """
    if not 0 < len(curves) <= len(_MARKS) or not all(curves.values()):
        raise ValueError(f"curves: got {len(curves)}; give 1 to {len(_MARKS)}, each with a point")

    def draw(axes: Axes) -> None:
        for colour, (name, points) in zip(COLOURS, curves.items(), strict=False):
            epsilons, shares = zip(*points, strict=True)
            axes.plot(epsilons, [100 * share for share in shares], "o-", markersize=4, color=colour, label=name)
        if measured:
            epsilon, share, low, high = measured
            reach = [[100 * (share - low)], [100 * (high - share)]]
            axes.errorbar([epsilon], [100 * share], reach, fmt="D", color=RED, capsize=3, label="measured")
        axes.set(xlabel="local ε of a message", ylabel="tokens covered (%)")
        axes.set_ylim(0, 100)
        axes.grid(visible=True)
        axes.legend(loc="lower right" if measured is None else "upper left")

    ends = "; ".join(
        f"{name}: {100 * points[0][1]:.1f}% at {points[0][0]:g} to {100 * points[-1][1]:.1f}% at {points[-1][0]:g}"
        for name, points in curves.items()
    )
    if measured:
        ends += f"; measured: {100 * measured[1]:.1f}% at {measured[0]:g}"
    return svg("Coverage by epsilon", f"{ends}.", draw)


def words_by_layer(words: Sequence[Sequence[int]], false: Sequence[Sequence[int]] | None = None) -> str:
    """Words found in each layer, one colour a pass; false ones, where they are known, below the axis.

    Args:
      words: those found by each pass, layer by layer from 1.
      false: of those, the ones that nobody types; known only where the truth is, as in a benchmark.

    Raises:
      ValueError: no pass, more than four, or false words without their pass.
    """
    if not 0 < len(words) <= len(_MARKS):
        raise ValueError(f"words: got {len(words)} passes; give 1 to {len(_MARKS)}")
    if false is not None and [len(row) for row in false] != [len(row) for row in words]:
        raise ValueError("false: it must have the passes and layers of 'words'")
    first_wrong = next((number for number, row in enumerate(false or ()) if any(row)), None)
    names = ["words found"] if len(words) == 1 else [f"pass {number}" for number in range(1, len(words) + 1)]

    def draw(axes: Axes) -> None:
        width = 0.8 / len(words)
        for number, row in enumerate(words):
            places = [layer - 0.4 + width * (number + 0.5) for layer in range(1, len(row) + 1)]
            axes.bar(places, row, width, color=COLOURS[number], label=names[number])
            if false is not None:
                wrong = [-count for count in false[number]]
                axes.bar(places, wrong, width, color=RED, label="false words" if number == first_wrong else None)
        axes.axhline(0, color="#808080", linewidth=0.8)
        depth = max(map(len, words))
        axes.set(xlabel=_LAYER, ylabel="words found", xticks=range(1, depth + 1))
        axes.set_xlim(0.4, depth + 0.6)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
        legend_above(axes, 4)

    total = sum(map(sum, words))
    wrong = "" if false is None else f", {sum(map(sum, false))} of them false"
    return svg("Words by layer", f"{total} words over {len(words[0])} layers{wrong}.", draw)


def domain_and_noise(domains: Sequence[Sequence[int]], noises: Sequence[Sequence[float]]) -> str:
    """Size of the domain of each layer, and the standard deviation of its estimates as a share of its messages.

    Args:
      domains: items of each pass, layer by layer from 1.
      noises: of the same shape; noise in messages over messages received, from 0 to 1.

    Raises:
      ValueError: no pass, more than four, or noises of another shape.
    """
    if not 0 < len(domains) <= len(_MARKS):
        raise ValueError(f"domains: got {len(domains)} passes; give 1 to {len(_MARKS)}")
    if [len(row) for row in noises] != [len(row) for row in domains]:
        raise ValueError("noises: they must have the passes and layers of 'domains'")
    loudest = 100 * max(max(row) for row in noises)

    def draw(axes: Axes) -> None:
        right = axes.twinx()
        for number, (domain, noise) in enumerate(zip(domains, noises, strict=True)):
            layers = range(1, len(domain) + 1)
            suffix = "" if len(domains) == 1 else f", pass {number + 1}"
            line = _MARKS[number] + ("-" if number == 0 else "--")
            shares = [100 * share for share in noise]
            # The left axes have the legend, so what the right ones show gets a name there too.
            axes.plot(layers, domain, line, color=BLUE, markersize=4, label=f"domain{suffix}")
            axes.plot([], [], line, color=ORANGE, markersize=4, label=f"noise{suffix}")
            right.plot(layers, shares, line, color=ORANGE, markersize=4)
        axes.set(xlabel=_LAYER, ylabel="candidates", yscale="log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=16))
        right.set_ylabel("noise (% of messages)")
        right.set_ylim(0, 1.4 * loudest)
        right.spines["right"].set_visible(True)
        axes.grid(visible=True)
        legend_above(axes, 2)

    most = max(map(max, domains))
    spoken = f"At most {most:,} items; noise at most {loudest:.3f}%."
    return svg("Domain and noise by layer", spoken, draw, height=2.9)
