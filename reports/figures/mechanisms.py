"""Figure of mechanisms: the noise of each prefix sum, at one guarantee."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from reports.figures.style import BLUE, COLOURS, ORANGE

_LOOKS = ((BLUE, "-"), (ORANGE, "--"), (COLOURS[5], ":"))


def draw_prefix_noise(axes: Axes, curves: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Draw the standard deviation of the noise in the sum of the first rounds, for up to three mechanisms.

    Args:
      curves: name -> points (rounds summed, standard deviation in clip norms), all at one mu.
    """
    for (name, points), (colour, line) in zip(curves.items(), _LOOKS, strict=False):
        rounds, deviations = zip(*points, strict=True)
        axes.plot(rounds, deviations, line, color=colour, linewidth=2, label=name)
    axes.set(xlabel="rounds summed", ylabel="noise of the sum at $\\mu = 1$\n(standard deviation, clip norms)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True)
    axes.legend(loc="upper left")
