"""A small simulated launch on public text, to find clip norm, server learning rate and bearable noise.

Xu et al. 2023, section 2.5. First their algorithm 1 with adaptive clipping and next to no noise finds
the clip norm (the median of the updates' norms) for each server learning rate; then, with clip norm
and rate fixed, the noise grows until accuracy on held-out text suffers. What carries over to a launch
is the clip norm, the rate and the noise-to-signal ratio, not the noise multiplier.

Nothing here is private: every text is public, cut into pieces that play devices, and noise comes from a public seed.

Shape legend: N tokens, S sentences, D pseudo-users.
"""

import copy
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from federated.config.mechanism import MechanismConfig, TreeMechanism
from federated.config.planning import SmallLaunch
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.planning import search as plan_search
from federated.rounds import server
from federated.rounds.rule import RoundRule
from federated.rounds.validation import CurvePoint
from federated.train import TrainingData, Workplace, fine_tune
from pretrain.files import write_text
from pretrain.model import KeyboardLM
from pretrain.randomness.noise import seeded_key
from pretrain.vocabulary import EOS, TokenStream

# Noise that changes nothing; a mechanism has to have some.
_NEXT_TO_NONE = 1e-6
# The papers use 0.2 over thousands of rounds; a dozen rounds must get there in larger steps.
_CLIP_STEP = 1.0
_MEDIAN = 0.5
_DELTA = 1e-10  # a placeholder: nothing is accounted


@dataclass(frozen=True)
class Setting:
    """Common setting of all trials; everything here is public."""

    model: KeyboardLM
    users: TokenStream
    held_out: TokenStream
    config: SmallLaunch
    local_training: LocalTrainingConfig
    server: ServerConfig
    runtime: RuntimeConfig
    seed: int


@dataclass(frozen=True)
class Trial:
    """Settings of one simulated run on public text, and the accuracy it reached.

    Attributes:
      name: by which an interrupted rehearsal finds it again.
      noise_to_signal: 0 for next to none.
      noise_multiplier: of the simulation, at its own report goal.
      clip_norm: as given, or where adaptive clipping ended.
      start_accuracy, accuracy: top-1 on held-out text before the first and after the last round, over
        words of the vocabulary; 0 at the end if training diverged.
    """

    name: str
    server_learning_rate: float
    noise_to_signal: float
    noise_multiplier: float
    clip_norm: float
    start_accuracy: float
    accuracy: float


@dataclass(frozen=True)
class Rehearsal:
    """Best clip norm, server rate and bearable noise, with all trials.

    Attributes:
      clip_norm: in the launch file's units, two digits.
      noise_to_signal: see ``acceptable``; None if even the least noise costs too much.
      noiseless_accuracy: at the chosen clip norm and rate, with next to no noise.
      clip_trials: one for each server learning rate.
      noise_trials: by ratio, ascending, up to the second in a row that costs too much.
      pseudo_users, words: division of the public text.
    """

    clip_norm: float
    server_learning_rate: float
    noise_to_signal: float | None
    start_accuracy: float
    noiseless_accuracy: float
    clip_trials: tuple[Trial, ...]
    noise_trials: tuple[Trial, ...]
    pseudo_users: int
    words: int


def rehearse(
    setting: Setting, directory: Path, work: Path, on_progress: Callable[[str], None] = lambda line: None
) -> Rehearsal:
    """Run the trials that have not been run yet, and choose.

    A killed rehearsal resumes: finished trials stand in ``directory/trials.json``, and the
    one that was running has its checkpoint in ``work``.

    Args:
      work: for checkpoints; emptied as trials end.
      on_progress: progress callback, called with a line after each trial.

    Raises:
      ValueError: too few pseudo-users for a round.
      ArithmeticError: training diverged at every server learning rate.
    """
    config = setting.config
    if len(setting.users) < config.report_goal:
        raise ValueError(
            f"public_text: it makes only {len(setting.users)} pseudo-users, but a round takes "
            f"{config.report_goal}; use more text"
        )
    path, digest = directory / "trials.json", _digest(setting)
    done = _finished(path, digest)
    total = len(config.server_learning_rates) + 1 + len(config.noise_to_signal)

    places = itertools.count(1)

    def run(name: str, rate: float, ratio: float, clip_norm: float | None) -> Trial:
        trial = done.get(name)
        # Other rates in the configuration can lead to another choice, and that to other trials.
        if trial is None or trial.server_learning_rate != rate or clip_norm not in (None, trial.clip_norm):
            done[name] = trial = _run(setting, work / name.replace(" ", "-"), name, rate, ratio, clip_norm)
            _save(path, digest, done)
        place = next(places)
        numbers = f"clip norm {trial.clip_norm:.3g}, accuracy {trial.start_accuracy:.4f} to {trial.accuracy:.4f}"
        on_progress(f"trial {place} of at most {total}, {name}: {numbers}")
        return trial

    clip_trials = tuple(run(f"server rate {rate:g}", rate, 0.0, None) for rate in config.server_learning_rates)
    best = max(clip_trials, key=lambda trial: trial.accuracy)
    if not best.accuracy:
        raise ArithmeticError(
            "server.learning_rate: training diverged at each of "
            f"{', '.join(f'{rate:g}' for rate in config.server_learning_rates)}; lower local_training.learning_rate"
        )
    rate, clip_norm = best.server_learning_rate, float(f"{best.clip_norm:.2g}")
    noiseless = run("no noise", rate, 0.0, clip_norm)
    noise_trials: list[Trial] = []
    for ratio in sorted(config.noise_to_signal):
        noise_trials.append(run(f"noise-to-signal {ratio:g}", rate, ratio, clip_norm))
        # Twice too much is enough to see where it ends.
        least = noiseless.accuracy - config.max_accuracy_loss
        if sum(trial.accuracy < least for trial in noise_trials[-2:]) == 2:
            break
    return Rehearsal(
        clip_norm=clip_norm,
        server_learning_rate=rate,
        noise_to_signal=acceptable(noise_trials, noiseless.accuracy, config.max_accuracy_loss),
        start_accuracy=noiseless.start_accuracy,
        noiseless_accuracy=noiseless.accuracy,
        clip_trials=clip_trials,
        noise_trials=tuple(noise_trials),
        pseudo_users=len(setting.users),
        words=int(np.sum(setting.users.tokens_N != EOS)),
    )


def acceptable(noise_trials: Sequence[Trial], noiseless: float, max_loss: float) -> float | None:
    """The largest ratio such that it and all smaller ones have an accuracy within ``max_loss`` of no noise.

    The second half keeps one lucky trial from standing for a ratio that training cannot bear.
    """
    largest = None
    for trial in sorted(noise_trials, key=lambda trial: trial.noise_to_signal):
        if trial.accuracy < noiseless - max_loss:
            break
        largest = trial.noise_to_signal
    return largest


def simulate(
    setting: Setting, mechanism: MechanismConfig, server_rate: float, work: Path
) -> tuple[KeyboardLM, tuple[CurvePoint, ...]]:
    """Train a copy of the model on the pseudo-users; the model, and its curve's two ends on held-out text.

    A killed simulation resumes from its checkpoint in ``work``, which is removed at the end.

    Raises:
      ArithmeticError: training diverged: a server rate that is too high, or far too much noise.
    """
    model = copy.deepcopy(setting.model)
    try:
        result = fine_tune(
            model,
            TrainingData(setting.users, np.zeros(len(setting.users), dtype=bool), setting.held_out),
            RoundRule(mechanism, setting.seed, seeded_key(setting.seed)),
            setting.local_training,
            setting.server.model_copy(update={"learning_rate": server_rate}),
            Workplace(work, setting.runtime.model_copy(update={"evaluate_every_rounds": mechanism.rounds})),
        )
    except ArithmeticError:
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(work, ignore_errors=True)
    return model, result.curve


def _run(setting: Setting, work: Path, name: str, rate: float, ratio: float, clip_norm: float | None) -> Trial:
    """One run from the pretrained model; with adaptive clipping where no clip norm is given."""
    mechanism = _mechanism(setting, ratio, clip_norm)
    try:
        _, curve = simulate(setting, mechanism, rate, work)
        start, accuracy, estimate = curve[0].validation_top1, curve[-1].validation_top1, curve[-1].clip_estimate
    except ArithmeticError:
        # An answer, not a failure.
        start, accuracy, estimate = 0.0, 0.0, mechanism.clip_norm
    return Trial(
        name=name,
        server_learning_rate=rate,
        noise_to_signal=ratio,
        noise_multiplier=mechanism.noise_multiplier,
        clip_norm=estimate if clip_norm is None else clip_norm,
        start_accuracy=start,
        accuracy=accuracy,
    )


def _mechanism(setting: Setting, ratio: float, clip_norm: float | None) -> TreeMechanism:
    """A tree at the rehearsal's report goal, with the noise multiplier that the ratio asks for.

    Adaptive clipping wants restarts: a new tree every round, so that the clip norm follows at once.
    """
    config = setting.config
    min_sep = min(len(setting.users) // config.report_goal, config.rounds)
    limits = (config.rounds, min_sep, plan_search.most_participations(config.rounds, min_sep))
    adaptive = {
        "target_quantile": _MEDIAN,
        "learning_rate": _CLIP_STEP,
        "bit_noise_std": config.report_goal / 20,
    }
    return TreeMechanism(
        kind="tree",
        noise_multiplier=ratio * config.report_goal / plan_search.tree(*limits).rms_error if ratio else _NEXT_TO_NONE,
        clip_norm=config.start_clip_norm if clip_norm is None else clip_norm,
        rounds=config.rounds,
        report_goal=config.report_goal,
        min_sep=min_sep,
        max_participations=limits[2],
        delta=_DELTA,
        randomness="seeded",
        restarts=tuple(range(1, config.rounds)) if clip_norm is None else (),
        adaptive_clipping=adaptive if clip_norm is None else None,
    )


def digest_of(setting: Setting, content: Mapping[str, object]) -> str:
    """Digest of a simulation's inputs, but for its mechanism and server rate; ``content`` is JSON values."""
    total = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    total.update(setting.local_training.model_dump_json().encode())
    total.update(setting.server.model_dump_json(exclude={"learning_rate"}).encode())
    total.update(str(setting.seed).encode())
    for stream in (setting.users, setting.held_out):
        total.update(np.ascontiguousarray(stream.tokens_N).data)
        total.update(np.ascontiguousarray(stream.offsets_D1).data)
    total.update(np.ascontiguousarray(server.flat_weights(setting.model)).data)
    return total.hexdigest()


def _digest(setting: Setting) -> str:
    # Another tolerance or another grid judges and adds trials; it does not change those that are done.
    judged = ("server_learning_rates", "noise_to_signal", "max_accuracy_loss")
    return digest_of(setting, {name: value for name, value in asdict(setting.config).items() if name not in judged})


def _finished(path: Path, digest: str) -> dict[str, Trial]:
    """Trials by name in the order they were run; {} if the file is another rehearsal's or there is none."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {row["name"]: Trial(**row) for row in content["trials"]} if content["digest"] == digest else {}


def _save(path: Path, digest: str, done: dict[str, Trial]) -> None:
    content = {"digest": digest, "trials": [asdict(trial) for trial in done.values()]}
    write_text(path, json.dumps(content, indent=1) + "\n")


# Spread of log word budgets: with 1 the top tenth of users holds about 40% of all words.
_SPREAD = 1.0
_LEAST_WORDS, _MOST_MEDIANS = 5, 20


def pseudo_users(
    text: TokenStream,
    count: int,
    words_per_user: Literal["heavy-tailed", "fixed"],
    median_words: int,
    seed: int,
    most_words: int | None = None,
) -> TokenStream:
    """Partition documents, in an order drawn from ``seed``, into owners of whole sentences.

    A pseudo-user is a run of consecutive sentences, so it has topics of its own, as people do. Its
    last sentence is the one that reaches its budget. No sentence has two owners.

    Args:
      text: owners are documents.
      count: most pseudo-users; fewer if the text ends before.
      words_per_user: budgets from a log-normal law with this median, or all the same.
      most_words: cap on a budget, as a launch caps its devices.

    Returns:
      At most ``count`` owners, every one with a sentence or more.
    """
    rng = np.random.default_rng([seed, len(text)])
    shuffled = text.select(rng.permutation(len(text)))
    ends_S = np.flatnonzero(shuffled.tokens_N == EOS) + 1
    if not len(ends_S):
        return TokenStream(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
    words_S = ends_S - np.arange(1, len(ends_S) + 1)  # words up to each sentence's end
    budgets_D = np.full(count, median_words)
    if words_per_user == "heavy-tailed":
        drawn_D = median_words * np.exp(_SPREAD * rng.standard_normal(count))
        budgets_D = np.clip(drawn_D, _LEAST_WORDS, _MOST_MEDIANS * median_words).astype(np.int64)
    if most_words is not None:
        budgets_D = np.minimum(budgets_D, most_words)
    offsets = [0]
    sentence, before = 0, 0
    for budget in budgets_D:
        last = int(np.searchsorted(words_S, before + budget))
        if last >= len(ends_S):
            break
        offsets.append(int(ends_S[last]))
        sentence, before = last + 1, int(words_S[last])
    if sentence == 0:
        # Less text than one budget: one user has it all.
        offsets.append(int(ends_S[-1]))
    return TokenStream(shuffled.tokens_N[: offsets[-1]], np.array(offsets, dtype=np.int64))
