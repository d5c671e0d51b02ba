"""Rehearsal verdicts on launch files: the plan reads them, and a negative one refuses the first spend.

A verdict holds for every launch file with the same inputs of a rehearsal, so pasting its suggested blocks needs no new
rehearsal. Verdicts are in ``runs/*/public/rehearsal/verdict.json``; one that is to be found on every machine is kept
beside its launch file, in ``rehearsals/NAME.json``. The kept one informs the plan and refuses nothing, as it may have
been played on another start than the launch's own.
"""

import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

from federated.config.planning import PlanningConfig, SmallLaunch
from federated.planning.verdict import Outcome, Verdict, as_json, from_json, refusal, run_of
from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.releases.release import asked_for
from pipeline.releases.training import TRAINING
from pretrain.files import write_text
from pretrain.packaged import PackagedText, typed_text

NAME, FILE = "rehearsal", "verdict.json"
_BESIDE = "rehearsals"
# Fields that make a start: public text and its language, and what learns from it.
_START = ("locale", "seed", "public_text", "vocabulary", "model", "pretrain", "local_training", "runtime")
# Version of the rehearsal's method, part of the digest.
_RULES = 6


@dataclass(frozen=True)
class Kept:
    """A rehearsal that is kept beside a launch file.

    Attributes:
      start: launch file whose start stood in for the launch's own, relative to the launch file; empty for its own.
      verdict: None if a field that it depends on has changed since.
    """

    file: Path
    start: str
    verdict: Verdict | None


def rho_to_spend(config: LaunchConfig, planning: PlanningConfig) -> float:
    """Largest rho that a launch may cost: the planning target, and at most its policy's ceiling."""
    return min(planning.target_rho, config.policy.max_rho)


def played(config: LaunchConfig) -> LaunchConfig:
    """The launch as it is rehearsed: its start has not read typed chat, which plays the people."""
    if config.public_text.source != "sample-with-chat":
        return config
    public_text = config.public_text.model_copy(update={"source": "sample"})
    return config.model_copy(update={"public_text": public_text})


def typed(config: LaunchConfig) -> PackagedText | None:
    """Packaged text that pseudo-users type; None if they can only have the launch's public text.

    It is text of people, in the language of the start, that pretraining does not read: what a model has read it cannot
    learn again. Text that is also the launch's private text plays no part in a rehearsal.

    Raises:
      ValueError: its package is missing or of another version.
    """
    return None if config.private_text.source == "chitchat" else typed_text(config.locale)


def inputs_digest(config: LaunchConfig, planning: PlanningConfig, limits: SmallLaunch) -> str:
    """SHA-256 over the inputs of a verdict, without the settings that it compares."""
    config = played(config)
    names = ("locale", "seed", "public_text", "model", "pretrain", "local_training")
    stated, text = config.model_dump(mode="json"), typed(config)
    content = {
        **{name: stated[name] for name in names},
        "typed": "" if text is None else text.name,
        "planning": planning.model_dump(mode="json"),
        "base_size": config.vocabulary.base_size,  # new words play no part
        "server": config.server.model_dump(mode="json", exclude={"learning_rate"}),
        "max_words_per_device": config.private_text.max_words_per_device,
        "test_fraction": config.private_text.test_fraction,
        "rho": rho_to_spend(config, planning),
        "min_top1_gain": config.policy.min_top1_gain,
        "limits": repr(limits),
        "rules": _RULES,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def find(
    config: LaunchConfig, runs_dir: Path, planning: PlanningConfig | None = None, limits: SmallLaunch | None = None
) -> Verdict | None:
    """Return the newest verdict with this file's inputs; None if it was not rehearsed here.

    Args:
      planning: in place of the file's own block.

    Raises:
      ValueError: a verdict file is damaged, which may be this file's.
    """
    planning = planning or config.planning
    if planning is None:
        return None
    digest = inputs_digest(config, planning, limits or SmallLaunch())
    paths = runs_dir.glob(f"*/public/{NAME}/{FILE}")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["inputs"] == digest:
                return from_json(content)
        except (ValueError, KeyError, TypeError) as error:
            # A damaged verdict may have been negative, so it must not be ignored.
            raise ValueError(
                f"{path}: not a verdict of a rehearsal; delete it and run 'tacit rehearse' again"
            ) from error
    return None


def on_start(config: LaunchConfig, start: LaunchConfig) -> LaunchConfig:
    """The launch with the start of another one, in that one's language: for text or a model that are out of reach."""
    return config.model_copy(update={name: getattr(start, name) for name in _START})


def keep(verdict: Verdict, file: Path, start: Path | None) -> Path:
    """Write a verdict beside its launch file."""
    stand_in = "" if start is None else Path(os.path.relpath(start, file.parent)).as_posix()
    path = _beside(file)
    write_text(path, json.dumps({"start": stand_in, "verdict": as_json(verdict)}, indent=1) + "\n")
    return path


def kept(config: LaunchConfig, file: Path) -> Kept | None:
    """Return the rehearsal that is kept beside a launch file; None if there is none.

    Raises:
      ValueError: the file is damaged, or the launch file of its start is.
    """
    path, planning = _beside(file), config.planning
    if planning is None or not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        start, verdict = content["start"], from_json(content["verdict"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a rehearsal; run 'tacit rehearse {file} --keep' again") from error
    other = file.parent / start
    if start and not other.is_file():
        return Kept(path, start, None)
    rehearsed = on_start(config, load_launch(other)) if start else config
    fresh = verdict.inputs == inputs_digest(rehearsed, planning, SmallLaunch())
    return Kept(path, start, verdict if fresh else None)


def _beside(file: Path) -> Path:
    return file.parent / _BESIDE / f"{file.stem}.json"


def outcome_of_file(verdict: Verdict, config: LaunchConfig) -> Outcome | None:
    """Return the rehearsed outcome of this file's own setting; None if it was not rehearsed."""
    if not TRAINING.asked(config):
        alone = [one for one in verdict.outcomes if not one.gradient_rho and one.ships == config.ships]
        counted = asked_for(config.counts).rho
        return next((one for one in alone if math.isclose(one.counts_rho, counted, rel_tol=1e-3)), None)
    return verdict.of(run_of(config.mechanism, config.server.learning_rate, config.counts))


def in_words(verdict: Verdict, outcome: Outcome) -> str:
    """Sentence about the rehearsed outcome of one setting, for a record."""
    if verdict.answer == "inconclusive":
        return verdict.sentence
    return (
        f"Rehearsed on {verdict.pseudo_users:,} pseudo-users of public text: {100 * outcome.gain:+.2f} points "
        f"(± {200 * outcome.error:.2f}) of top-1 recall for rho {outcome.rho:.3g}."
    )


def require_worth(config: LaunchConfig, runs_dir: Path) -> tuple[Verdict, Outcome] | None:
    """Return the verdict of a rehearsal of exactly this run, or None; refuse a run that it found not worthwhile.

    Only another launch file overrides it: reviewers see a smaller ``policy.min_top1_gain`` or a larger ``target_rho``
    in the file, and readers see them in the disclosure; a command-line flag would be visible to neither.

    Raises:
      ValueError: the rehearsal found the run not worthwhile.
    """
    verdict = find(config, runs_dir)
    outcome = None if verdict is None else outcome_of_file(verdict, config)
    if verdict is None or outcome is None:
        return None
    reason = refusal(verdict, outcome)
    if reason is not None:
        raise ValueError(
            f"planning: the rehearsal of exactly this run says no. {reason} Change the launch file; 'tacit plan FILE' "
            "shows every split that was rehearsed"
        )
    return verdict, outcome
