"""Figures of the report as inline SVG: no file, no script, no date, the same bytes every time.

Colours are mid-tones and text follows ``currentColor``, so one picture serves light and dark.
"""

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from reports.disclosure.document import Accounting, Curves, Disclosure, Participation, Utility
from reports.figures.style import BLUE, GREEN, INK, ORANGE, RED, rows_down, svg
from reports.formats import arm_name, metric_name, up

_RECALLS = ("top1_recall", "top3_recall")


def all_figures(disclosure: Disclosure) -> dict[str, str]:
    """SVG by name; a figure without data is left out."""
    curves, utility = disclosure.curves, disclosure.utility
    figures = {}
    if curves.pretraining or curves.adaptation:
        figures["training"] = _public_training(curves)
    if curves.fine_tuning:
        figures["fine_tuning"] = _fine_tuning(curves)
        if len({point["clip_norm"] for point in curves.fine_tuning if "clip_norm" in point}) > 1:
            figures["clip_norm"] = _clip_norm(curves)
    if disclosure.accounting.curve:
        figures["epsilon"] = _epsilon(disclosure.accounting)
    if disclosure.participation.participation_histogram:
        figures["participation"] = _participation(disclosure.participation)
    if utility and any(row.metric in _RECALLS for row in utility.differences):
        figures["utility"] = _utility(utility)
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

    def draw(axes: Axes) -> None:
        axes.plot(rounds, recall, marker="o", markersize=3, color=GREEN)
        axes.set(xlabel="round", ylabel="top-1 recall on\nvalidation devices (%)")
        axes.set_ylim(bottom=0, top=1.08 * max(*recall, 1e-6))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True)

    description = f"Top-1 recall goes from {recall[0]:.2f}% to {recall[-1]:.2f}% at round {rounds[-1]:g}."
    return svg("Private training by round", description, draw)


def _clip_norm(curves: Curves) -> str:
    rounds = [point["step"] for point in curves.fine_tuning]
    norms = [point["clip_norm"] for point in curves.fine_tuning]

    def draw(axes: Axes) -> None:
        axes.step(rounds, norms, where="pre", color=BLUE, label="in use")
        axes.plot(rounds, [point["clip_estimate"] for point in curves.fine_tuning], color=GREEN, label="estimate")
        axes.set(xlabel="round", ylabel="clip norm")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
        axes.grid(visible=True)

    return svg("Clip norm by round", f"The clip norm goes from {norms[0]:.3g} to {norms[-1]:.3g}.", draw)


def _epsilon(accounting: Accounting) -> str:
    label = f"ε ≤ {up(accounting.epsilon)} at δ = {accounting.delta:g}"

    def draw(axes: Axes) -> None:
        deltas, epsilons = zip(*accounting.curve, strict=True)
        axes.semilogx(deltas, epsilons, color=BLUE, marker="o", markersize=3)
        axes.plot([accounting.delta], [accounting.epsilon], marker="o", color=RED)
        place = (accounting.delta, accounting.epsilon)
        axes.annotate(label, place, textcoords="offset points", xytext=(8, 8))
        axes.set(xlabel="δ", ylabel="ε")
        axes.set_ylim(bottom=0, top=1.15 * max(*epsilons, accounting.epsilon, 1e-9))
        axes.grid(visible=True)

    return svg("Epsilon for every delta", f"The exact Gaussian curve; {label}.", draw)


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


def _utility(utility: Utility) -> str:
    rows = [row for row in utility.differences if row.metric in _RECALLS and row.candidate == "private"]

    def draw(axes: Axes) -> None:
        places = rows_down(len(rows))
        for row, place in zip(rows, places, strict=True):
            colour = BLUE if row.metric == _RECALLS[0] else ORANGE
            axes.plot([100 * row.low, 100 * row.high], [place, place], color=colour, linewidth=2)
            axes.plot([100 * row.value], [place], "o", color=colour)
        labels = [f"− {arm_name(row.baseline)},\n{metric_name(row.metric)}" for row in rows]
        axes.axvline(0, color=INK, linewidth=1)
        axes.set(xlabel="difference in recall (percentage points)", yticks=places, yticklabels=labels)
        axes.set_ylim(0.4, len(rows) + 0.6)
        axes.grid(visible=True, axis="x")

    listed = "; ".join(
        f"{metric_name(row.metric)} minus {arm_name(row.baseline)} {100 * row.low:+.2f} to {100 * row.high:+.2f}"
        for row in rows
    )
    return svg("Differences between arms", f"{listed} points.", draw, height=0.9 + 0.42 * len(rows))
