"""Figures of word discovery as inline SVG, from plain numbers, in the style of ``reports.figures.training``."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from reports.disclosure.findings import DiscoveryBlock
from reports.figures.style import BLUE, GREEN, ORANGE, RED, svg

_COLOURS = (BLUE, ORANGE, GREEN, RED)


def of_discovery(discovery: DiscoveryBlock) -> dict[str, str]:
    """The report's figures of a discovery: SVG by name; none without layers or with more passes than colours."""
    rows = [row for row in discovery.layers if row.messages]
    passes = sorted({row.pass_number for row in rows})
    if not 0 < len(passes) <= len(_COLOURS):
        return {}
    by_pass = [[row for row in rows if row.pass_number == number] for number in passes]
    projected = [(point.epsilon0, point.coverage) for point in discovery.projection]
    measured = None
    if None not in (discovery.coverage, discovery.coverage_low, discovery.coverage_high):
        measured = (discovery.epsilon0, discovery.coverage, discovery.coverage_low, discovery.coverage_high)
    coverage = {"projected on public text": projected}
    return ({"coverage_by_epsilon": coverage_by_epsilon(coverage, measured=measured)} if projected else {}) | {
        "words_by_layer": words_by_layer([[row.finished for row in own] for own in by_pass]),
        "domain_and_noise": domain_and_noise(
            [[row.domain for row in own] for own in by_pass],
            [[row.noise / row.messages for row in own] for own in by_pass],
        ),
    }


def coverage_by_epsilon(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    label: str = "local ε of a message",
    measured: tuple[float, float, float, float] | None = None,
) -> str:
    """Share of out-of-vocabulary tokens covered, against epsilon.

    Args:
      curves: name -> (epsilon, coverage from 0 to 1), ascending; at most four.
      measured: epsilon, coverage and the ends of its interval, of a real discovery.

    Raises:
      ValueError: no curve, an empty one, or more than there are colours.
    """
    if not 0 < len(curves) <= len(_COLOURS) or not all(curves.values()):
        raise ValueError(f"curves: got {len(curves)}; give 1 to {len(_COLOURS)}, each with a point")

    def draw(axes: Axes) -> None:
        for colour, (name, points) in zip(_COLOURS, curves.items(), strict=False):
            epsilons, shares = zip(*points, strict=True)
            axes.plot(epsilons, [100 * share for share in shares], "o-", markersize=4, color=colour, label=name)
        if measured:
            epsilon, share, low, high = measured
            reach = [[100 * (share - low)], [100 * (high - share)]]
            axes.errorbar([epsilon], [100 * share], reach, fmt="D", color=RED, capsize=3, label="measured")
        axes.set(xlabel=label, ylabel="tokens covered (%)")
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


def words_by_layer(found: Sequence[Sequence[int]], false: Sequence[Sequence[int]] | None = None) -> str:
    """Words found in each layer, one colour a pass; false ones, where they are known, below the axis.

    Args:
      found: words of each pass, layer by layer from 1.
      false: of those, the ones that nobody types; known only where the truth is, as in a benchmark.

    Raises:
      ValueError: no pass, more than there are colours, or false words without their pass.
    """
    if not 0 < len(found) <= len(_COLOURS):
        raise ValueError(f"found: got {len(found)} passes; give 1 to {len(_COLOURS)}")
    if false is not None and [len(row) for row in false] != [len(row) for row in found]:
        raise ValueError("false: it must have the passes and layers of 'found'")
    first_wrong = next((number for number, row in enumerate(false or ()) if any(row)), None)
    names = ["words found"] if len(found) == 1 else [f"pass {number}" for number in range(1, len(found) + 1)]

    def draw(axes: Axes) -> None:
        width = 0.8 / len(found)
        for number, row in enumerate(found):
            places = [layer - 0.4 + width * (number + 0.5) for layer in range(1, len(row) + 1)]
            axes.bar(places, row, width, color=_COLOURS[number], label=names[number])
            if false is not None:
                wrong = [-count for count in false[number]]
                axes.bar(places, wrong, width, color=RED, label="false words" if number == first_wrong else None)
        axes.axhline(0, color="#808080", linewidth=0.8)
        depth = max(map(len, found))
        axes.set(xlabel="layer (letters, end of word included)", ylabel="words", xticks=range(1, depth + 1))
        axes.set_xlim(0.4, depth + 0.6)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)

    total = sum(map(sum, found))
    wrong = "" if false is None else f", {sum(map(sum, false))} of them false"
    return svg("Words by layer", f"{total} words over {len(found[0])} layers{wrong}.", draw)


def domain_and_noise(domains: Sequence[Sequence[int]], noises: Sequence[Sequence[float]]) -> str:
    """Size of the domain of each layer, and the standard deviation of its estimates as a share of its messages.

    Args:
      domains: items of each pass, layer by layer from 1.
      noises: of the same shape; noise in messages over messages received, from 0 to 1.

    Raises:
      ValueError: no pass, more than there are colours, or noises of another shape.
    """
    if not 0 < len(domains) <= len(_COLOURS):
        raise ValueError(f"domains: got {len(domains)} passes; give 1 to {len(_COLOURS)}")
    if [len(row) for row in noises] != [len(row) for row in domains]:
        raise ValueError("noises: they must have the passes and layers of 'domains'")
    marks = "osD^"

    def draw(axes: Axes) -> None:
        right = axes.twinx()
        for number, (domain, noise) in enumerate(zip(domains, noises, strict=True)):
            layers = range(1, len(domain) + 1)
            suffix = "" if len(domains) == 1 else f", pass {number + 1}"
            style = marks[number] + ("-" if number == 0 else "--")
            axes.plot(layers, domain, style, color=BLUE, markersize=4, label=f"domain{suffix}")
            right.plot(
                layers, [100 * share for share in noise], style, color=ORANGE, markersize=4, label=f"noise{suffix}"
            )
        axes.set(xlabel="layer (letters, end of word included)", ylabel="items in the domain", yscale="log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=16))
        right.set_ylabel("noise (% of messages)")
        right.set_ylim(0, 140 * max(max(row) for row in noises))
        right.spines["right"].set_visible(True)
        axes.grid(visible=True)
        lines = [*axes.get_lines(), *right.get_lines()]
        axes.legend(lines, [line.get_label() for line in lines], loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    most = max(map(max, domains))
    loudest = max(max(row) for row in noises)
    said = f"At most {most:,} items; noise at most {100 * loudest:.3f}%."
    return svg("Domain and noise by layer", said, draw, height=2.9)
