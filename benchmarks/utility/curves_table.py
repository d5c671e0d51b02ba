"""Curves of ``learning_curves.py`` as a picture, a table and numbers; and their way to disk while they grow."""

import csv
import json
import re
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from evaluation.comparison.intervals import Estimate, bucket_of, interval, ratios
from reports.figures.style import BLUE, GREEN, INK, ORANGE, svg

POINT = ("round", "validation_top1", "validation_recall", "validation_loss")
LABEL = "SIMULATED REPORT GOAL: NOT A PRIVATE RUN"
BUCKETS, CONFIDENCE = 20, 0.95
_LINES = {1: "-", 4: "--", 16: ":"}
_COLOURS = {"tree": BLUE, "blt": ORANGE, "none": GREEN}


def read(work: Path, arm: str) -> dict:
    """What is known of an arm; {} before its first point. Private: it may hold hits by device."""
    path = _path(work, arm)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save(work: Path, arm: str, content: dict) -> None:
    """Replace what is known of an arm."""
    path = _path(work, arm)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def write(about: dict, arms: Sequence[dict], start_D: Sequence[int], words_D: Sequence[int], folder: Path) -> None:
    """Picture, table and numbers of the arms that have points; devices appear in sums alone.

    Args:
      start_D: hits of the pretrained model, by device; ``words_D``: words of each device.
    """
    arms = [arm for arm in arms if arm.get("points")]
    public = [{name: value for name, value in arm.items() if name != "final_hits_D"} for arm in arms]
    measured = [("pretrained, no round", np.array(start_D))]
    measured += [(arm["name"], np.array(arm["final_hits_D"])) for arm in arms if "final_hits_D" in arm]
    ends = {name: _values(hits_D, np.array(words_D)) for name, hits_D in measured}
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{date.today()}-learning-curves"
    final = {name: vars(interval(values, CONFIDENCE)) for name, values in ends.items()}
    numbers = json.dumps({"about": about, "arms": public, "final_top1": final}, indent=1) + "\n"
    (folder / f"{stem}.json").write_text(numbers, encoding="utf-8")
    for name, title, kept, from_zero in (
        (
            "start",
            "Accuracy by round and start",
            [arm for arm in arms if arm["noise"] != "none" and arm.get("noise_times", 1) == 1],
            True,
        ),
        ("noise", "Accuracy by round and noise", [arm for arm in arms if arm["start"] == "pretrained"], False),
    ):
        drawn = picture(kept, title, from_zero=from_zero)
        (folder / f"learning-curves-{name}.svg").write_text(drawn, encoding="utf-8")
    (folder / f"{stem}.md").write_text("\n".join(table(about, arms, ends)) + "\n", encoding="utf-8")
    with (folder / f"{stem}.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("arm", *POINT))
        rows.writerows((arm["name"], *(point[name] for name in POINT)) for arm in arms for point in arm["points"])


def picture(arms: Sequence[dict], title: str, *, from_zero: bool) -> str:
    """Accuracy by round, one line an arm: colour by noise, dashes from scratch."""

    def draw(axes: Axes) -> None:
        for arm in arms:
            rounds = [point["round"] for point in arm["points"]]
            top1 = [100 * point["validation_top1"] for point in arm["points"]]
            line = "--" if arm["start"] == "scratch" else _LINES[arm.get("noise_times", 1)]
            axes.plot(rounds, top1, line, marker="o", markersize=2.5, color=_COLOURS[arm["noise"]], label=arm["name"])
        axes.set(xlabel="round", ylabel="next words right on\nheld-out devices (%)")
        axes.set_title(LABEL, fontsize=9, color=INK, loc="left")
        axes.set_xlim(left=0)
        if from_zero:
            axes.set_ylim(bottom=0)
        axes.grid(visible=True)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)

    ends = "; ".join(f"{arm['name']} {100 * arm['points'][-1]['validation_top1']:.2f}%" for arm in arms)
    return svg(title, f"{LABEL.capitalize()}. Accuracy at the last round: {ends}.", draw, height=3.0)


def table(about: dict, arms: Sequence[dict], ends: dict[str, np.ndarray]) -> Iterable[str]:
    """The same for people, in Markdown."""
    yield f"# Accuracy by round of a federated run, measured {date.today()}: 2 shared cores, no GPU\n"
    command = "-m benchmarks.utility.learning_curves --users USERS.parquet --public PUBLIC.parquet --work FOLDER"
    yield f"`OMP_NUM_THREADS=1 .venv/stages/bin/python {command}`\n"
    large, local = about["simulated_report_goal"], about["local_training"]
    yield (
        f"**{LABEL}.** Rounds of {about['report_goal']:,} devices get the noise of rounds of {large:,}; nobody is "
        f"protected. rho and epsilon (delta {about['delta']:g}, zero-out, device) are those of a launch with {large:,} "
        f"devices a round, {about['rounds']} rounds, min_sep {about['min_sep']} and at most "
        f"{about['max_participations']} participations, and of nothing else.\n"
    )
    yield "From public text or from scratch, as in Xu et al. 2023, figure 3:\n"
    yield "![Accuracy by round and start](learning-curves-start.svg)\n"
    yield "Tree or BLT at equal rho, as in McMahan et al. 2024, figure 7; the axis does not begin at 0:\n"
    yield "![Accuracy by round and noise](learning-curves-noise.svg)\n"
    yield (
        f"{about['train_devices']:,} real devices to train on, {local['max_words']} words of each a round, batches of "
        f"{local['batch_sentences']} sentences, local rate {local['learning_rate']:g}, clip norm "
        f"{about['clip_norm']:g}, momentum {about['momentum']:g}; vocabulary of {about['vocabulary']:,} from public "
        f"text, model of {about['parameters']:,} parameters. Pretraining: {about['public_words']:,} public words, then "
        f"{100 * about['pretraining_top1']:.2f}% right on held-out public text. Seed {about['seed']}, once.\n"
    )
    yield (
        f"Curve: {about['curve_devices']} held-out devices, {about['curve_words']:,} words. Last column: "
        f"{about['final_devices']} others, {about['final_words']:,} words, with 95% jackknife intervals over "
        f"{BUCKETS} buckets of devices. Both count words of the vocabulary, "
        f"{100 * about['coverage']:.1f}% of what was typed; a word is right if the model has it first.\n"
    )
    yield "| arm | server rate | z | rho | epsilon | noise-to-signal | rounds | curve, last % | other devices % |"
    yield "|---" * 9 + "|"
    if "pretrained, no round" in ends:
        yield f"| pretrained, no round | | | | | | 0 | | {_cell(interval(ends['pretrained, no round'], CONFIDENCE))} |"
    for arm in arms:
        last = arm["points"][-1]
        worth = [f"{arm[name]:.4g}" if name in arm else "" for name in ("rho", "epsilon", "noise_to_signal")]
        multiplier = f"{arm['mechanism']['noise_multiplier']:g}" if arm["noise"] != "none" else "none"
        end = _cell(interval(ends[arm["name"]], CONFIDENCE)) if arm["name"] in ends else "not finished"
        yield (
            f"| {arm['name']} | {arm['server_rate']:g} | {multiplier} | {' | '.join(worth)} | {last['round']} "
            f"| {100 * last['validation_top1']:.2f} | {end} |"
        )
    pairs = [(new, old) for number, old in enumerate(ends) for new in list(ends)[number + 1 :]]
    yield "\n## Paired differences on the other devices, percentage points\n"
    yield "| | |\n|---|---|"
    for new, old in pairs:
        yield f"| {new} minus {old} | {_cell(interval(ends[new] - ends[old], CONFIDENCE), '+')} |"
    yield "\nThe intervals are about devices, not about noise: every arm drew its noise and its cohorts once."
    yield "\n## Every point, % right\n"
    rounds = sorted({point["round"] for arm in arms for point in arm["points"]})
    yield "| round | " + " | ".join(arm["name"] for arm in arms) + " |"
    yield "|---" * (len(arms) + 1) + "|"
    for number in rounds:
        cells = [{point["round"]: point["validation_top1"] for point in arm["points"]}.get(number) for arm in arms]
        yield f"| {number} | " + " | ".join("" if cell is None else f"{100 * cell:.2f}" for cell in cells) + " |"


def _values(hits_D: np.ndarray, words_D: np.ndarray) -> np.ndarray:
    """Share of words that are right, on all devices and without each bucket of them."""
    keys = [str(device) for device in range(len(words_D))]
    return ratios(hits_D, words_D, bucket_of(keys, "learning curves", BUCKETS), BUCKETS)


def _cell(estimate: Estimate, sign: str = "") -> str:
    return f"{100 * estimate.value:{sign}.2f} ± {50 * (estimate.high - estimate.low):.2f}"


def _path(work: Path, arm: str) -> Path:
    return work / "curves" / (re.sub(r"\W+", "-", arm) + ".json")
