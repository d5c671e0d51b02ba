"""Figures of training: its curves, its guarantee and its participation."""

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from reports.disclosure.document import Disclosure
from reports.disclosure.guarantee import Accounting, Curves
from reports.disclosure.releases import Participation, Timetable, Training
from reports.figures.style import BLUE, COLOURS, GREEN, ORANGE, RED, svg
from reports.losses import up

_LOOKS = ((BLUE, "-"), (ORANGE, "--"), (COLOURS[5], ":"))


def of_training(disclosure: Disclosure) -> dict[str, str]:
    """SVG by name; a figure without data is left out."""
    curves = disclosure.curves
    figures = {}
    if curves.pretraining or curves.adaptation:
        figures["training"] = _public_training(curves)
    if curves.fine_tuning:
        figures["fine_tuning"] = _fine_tuning(curves)
        if len({point["clip_norm"] for point in curves.fine_tuning if "clip_norm" in point}) > 1:
            figures["clip_norm"] = _clip_norm(curves)
    if disclosure.accounting.curve:
        figures["epsilon"] = _epsilon(disclosure.accounting)
    trained = disclosure.release(Training)
    if trained is not None and trained.participation.participation_histogram:
        figures["participation"] = _participation(trained.participation)
    if trained is not None and trained.participation.timetable is not None:
        figures["round_minutes"] = _round_minutes(trained.participation.timetable)
    return figures


def _public_training(curves: Curves) -> str:
    phases = (("pretraining", curves.pretraining, BLUE), ("adaptation to new words", curves.adaptation, ORANGE))
    drawn = [phase for phase in phases if phase[1]]

    def draw(axes: Axes) -> None:
        before = 0.0
        for name, points, colour in drawn:
            steps = [before + point["step"] for point in points]
            losses = [point["validation_loss"] for point in points]
            axes.plot(steps, losses, marker="o", markersize=3, color=colour, label=name)
            before += points[-1]["step"]
        axes.set(xlabel="step", ylabel="loss on held-out\npublic text (nats)")
        axes.grid(visible=True)
        axes.legend()

    ends = "; ".join(f"{name} ends at {points[-1]['validation_loss']:.3f} nats" for name, points, _ in drawn)
    return svg("Public training", f"Loss by step: {ends}.", draw)


def _fine_tuning(curves: Curves) -> str:
    rounds = [point["step"] for point in curves.fine_tuning]
    recall = [100 * point["validation_recall"] for point in curves.fine_tuning]

    description = f"Top-1 recall goes from {recall[0]:.2f}% to {recall[-1]:.2f}% at round {rounds[-1]:g}."
    return svg("Private training by round", description, partial(draw_recall, rounds=rounds, recall=recall))


def draw_recall(axes: Axes, rounds: Sequence[float], recall: Sequence[float]) -> None:
    """Draw top-1 recall on held-out text, in percent, by round."""
    axes.plot(rounds, recall, marker="o", markersize=3, color=GREEN)
    _by_round(axes, "top-1 recall on\nheld-out text (%)", 1.08 * max(*recall, 1e-6))


def _clip_norm(curves: Curves) -> str:
    rounds = [point["step"] for point in curves.fine_tuning]
    norms = [point["clip_norm"] for point in curves.fine_tuning]

    def draw(axes: Axes) -> None:
        axes.step(rounds, norms, where="pre", color=BLUE, label="in use")
        axes.plot(rounds, [point["clip_estimate"] for point in curves.fine_tuning], color=GREEN, label="estimate")
        _by_round(axes, "clip norm")
        axes.legend()

    return svg("Clip norm by round", f"The clip norm goes from {norms[0]:.3g} to {norms[-1]:.3g}.", draw)


def _by_round(axes: Axes, label: str, top: float | None = None) -> None:
    axes.set(xlabel="round", ylabel=label)
    axes.set_ylim(bottom=0, top=top)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True)


def _epsilon(accounting: Accounting) -> str:
    stated = (accounting.delta, accounting.epsilon)
    draw = partial(draw_epsilon, curve=accounting.curve, stated=stated)
    return svg("Epsilon for every delta", f"The exact Gaussian curve; {_at(stated)}.", draw)


def _at(stated: tuple[float, float]) -> str:
    return f"ε ≤ {up(stated[1])} at δ = {stated[0]:g}"


def draw_epsilon(axes: Axes, curve: Sequence[tuple[float, float]], stated: tuple[float, float]) -> None:
    """Draw epsilon against delta, both of ``curve``, and the point that is stated."""
    deltas, epsilons = zip(*curve, strict=True)
    axes.semilogx(deltas, epsilons, color=BLUE, marker="o", markersize=3)
    axes.plot(*stated, marker="o", color=RED)
    axes.annotate(_at(stated), stated, textcoords="offset points", xytext=(8, 8))
    axes.set(xlabel="δ", ylabel="ε")
    axes.set_ylim(bottom=0, top=1.15 * max(*epsilons, stated[1], 1e-9))
    axes.grid(visible=True)


def _participation(seen: Participation) -> str:
    counts = {int(key): value for key, value in seen.participation_histogram.items()}
    limit = seen.enforced_max_participations

    def draw(axes: Axes) -> None:
        axes.bar(list(counts), list(counts.values()), color=BLUE, width=0.7)
        axes.axvline(limit + 0.5, color=RED, linestyle="--")
        place = (limit + 0.5, 1.02)
        axes.annotate(
            f"enforced: at most {limit}", place, xycoords=("data", "axes fraction"), color=RED, ha="right", va="bottom"
        )
        axes.set(xlabel="rounds one device joined", ylabel="devices,\nrounded down to tens")
        axes.set_xlim(min(counts) - 0.6, max(*counts, limit) + 0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))

    most = seen.observed_max_participations
    return svg("Participation of protected devices", f"At most {most} rounds of {limit} allowed.", draw)


def _round_minutes(table: Timetable) -> str:
    minutes = table.median_minutes_by_part
    tenths = [(part + 0.5) * 100 / len(minutes) for part in range(len(minutes))]

    def draw(axes: Axes) -> None:
        axes.bar(tenths, minutes, color=BLUE, width=80 / len(minutes))
        axes.set(xlabel="rounds done (%)", ylabel="minutes a round,\nmedian of a tenth")
        axes.set_xlim(0, 100)
        axes.grid(visible=True, axis="y")

    return svg("How long rounds took", f"From {min(minutes):g} to {max(minutes):g} minutes a round.", draw)


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
