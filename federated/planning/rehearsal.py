"""A launch rehearsed on public text: as many pseudo-users as it has devices, several ways to spend its rho, a verdict.

Every training and every release of counts is simulated with the noise of the launch, and judged on pseudo-users that
nothing learned from. Symbols: T rounds, b ``min_sep``, k ``max_participations``, m ``report_goal``, z noise multiplier;
N devices that train, n pseudo-users.

A population is played by fewer people where it must be. With N pseudo-users and no more rounds than a simulation may
have, nothing is scaled. Else:

- rounds: ``T' = min(T, most rounds)``; separation ``b' = min(b, T')``, so that a person returns as often;
- report goal: ``m' = min(m, n // b', most goal)``, as many as are rested;
- gradients: rate' and z' such that way and step noise (``federated.planning.law``) are the launch's own;
- counts: ``z' = z n / N``: sums are n / N as large, and so is their noise.

A scaled result extrapolates. Fewer people in a round make the mean update itself noisier, fewer rounds learn less along
the same way, and fewer people know fewer words: all three make a rehearsal poorer than the launch. That n people's text
is N people's is assumed.

Guarantee: none is needed. Every text is public, and noise comes from a public seed.

Shape legend: N tokens, S sentences, D people, P parameters, A arms.
"""

import copy
import functools
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.config.counts import CountsConfig, Ships
from federated.config.mechanism import MechanismConfig, TreeMechanism
from federated.config.planning import SmallLaunch
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.counts import cells as counted_cells
from federated.counts.bounded_sum import MOST_DEVICES as MOST_COUNTED
from federated.counts.distil import distil
from federated.counts.posterior import counted_ngram
from federated.counts.release import released_counts
from federated.planning import law
from federated.planning.recall import Arm, gain, hits, words_typed
from federated.planning.search import Terms, block_at, counts_at, most_participations, to_yaml
from federated.planning.verdict import (
    SHIPS_BOTH,
    SHIPS_COUNTS,
    SHIPS_NETWORK,
    UNTRAINED,
    Outcome,
    Verdict,
    judge,
    run_of,
)
from federated.rounds import server
from federated.rounds.rule import RoundRule
from federated.train import TrainingData, Workplace, fine_tune
from pretrain.files import write_array
from pretrain.model import KeyboardLM
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.vocabulary import EOS, TokenStream, Vocabulary

# Noise multipliers of a training that noise leaves alone, and of counts without any information.
_NEXT_TO_NONE, _ALL_NOISE = 1e-9, 1e6
_TEACHES = 25.0


@dataclass(frozen=True)
class Setting:
    """Launch terms, and the models and text that simulate them; everything here is public.

    Attributes:
      model: start of training. users: play the devices that train. people: held-out pseudo-users.
      mechanism, server, counts: of the launch file.
      terms: number of devices.
      rho: to spend. min_gain: the launch's gate on top-1 recall.
      public: pretraining text of the start. ngram: fitted to it.
      inputs: digest to find the verdict again by.
      notes: on the start and its text, for the verdict.
    """

    model: KeyboardLM
    users: TokenStream
    people: TokenStream
    local_training: LocalTrainingConfig
    server: ServerConfig
    runtime: RuntimeConfig
    seed: int
    mechanism: MechanismConfig
    counts: CountsConfig | None
    terms: Terms
    rho: float
    min_gain: float
    vocabulary: Vocabulary
    public: TokenStream
    ngram: NGram
    limits: SmallLaunch
    inputs: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Training:
    """Training at one rho: the ``mechanism:`` block, its worst-case cost, and any counts that move its start."""

    mechanism: MechanismConfig
    server_rate: float
    rho: float
    moved_by: CountsConfig | None = None


Way = tuple[Training | None, CountsConfig | None]


def rehearse(setting: Setting, work: Path, on_progress: Callable[[str], None]) -> Verdict:
    """Simulate every way to spend the rho, and decide. A second call resumes: ``work`` holds the networks so far.

    Training without noise comes first: where it shows no gain, no way could, and none is simulated.

    Raises:
      ValueError: as ``block_at``.
    """
    limits, devices, users = setting.limits, setting.terms.training_devices, len(setting.users)
    tried = ways(setting)
    later = len({training for training, _ in tried if training is not None})
    quiet = gains(setting, [(_long(setting), None)], work, on_progress, noise=False, later=later)
    headroom = quiet.outcomes[0].gain
    teaches = headroom > limits.least_headroom
    gained = gains(setting, tried, work, on_progress) if teaches else replace(quiet, outcomes=())
    verdict = Verdict(
        answer="inconclusive",
        sentence="",
        best=None,
        outcomes=gained.outcomes,
        start=gained.start,
        free=gained.free,
        rho=setting.rho,
        training_devices=devices,
        min_gain=setting.min_gain,
        pseudo_users=users,
        words=int(np.sum(setting.users.tokens_N != EOS)),
        notes=(*notes(setting.mechanism, setting.server, users, devices, limits), *setting.notes),
        inputs=setting.inputs,
    )
    return judge(verdict, headroom, limits.least_headroom)


def ways(setting: Setting) -> list[Way]:
    """Ways to spend the rho: the file's own first, then training, counts, and counts that move the start of training.

    Training takes the server rate whose step noise the network bears, and the file's clip norm and rounds. More devices
    than one sum of counts holds are not counted.
    """
    limits = setting.limits
    trained = {share: training_at(setting, share * setting.rho) for share in limits.shares}
    alone = Training(setting.mechanism, setting.server.learning_rate, own_rho(setting.mechanism))
    own: Way = (alone, setting.counts)
    if setting.counts is not None and not setting.counts.trains:
        own = (None, setting.counts)
    elif setting.counts is not None and setting.counts.moves_start:
        own = (Training(alone.mechanism, alone.server_rate, alone.rho, setting.counts), setting.counts)
    every: list[Way] = [own, *((training, None) for training in trained.values())]
    devices, size = setting.terms.training_devices, len(setting.vocabulary)
    if devices <= MOST_COUNTED:
        first = counts_at(limits.counts_share * setting.rho, devices, size, "network")
        every.append((training_at(setting, setting.rho - first.rho, first), first))
        every += [(None, counts_at(share * setting.rho, devices, size)) for share in limits.shares]
    return [*dict.fromkeys(every)]


def training_at(setting: Setting, rho: float, moved_by: CountsConfig | None = None) -> Training:
    """Training of least noise at this rho, by the step law.

    Raises:
      ValueError: as ``block_at``.
    """
    block, terms = block_at(setting.mechanism, setting.terms, rho), setting.terms
    rate = float(f"{law.server_rate(block, terms.server):.2g}")
    return Training(block, rate, own_rho(block), moved_by)


def _long(setting: Setting) -> Training:
    """Training with all of the rho, on a way at which text that can teach shows it, whatever noise allows."""
    training = training_at(setting, setting.rho)
    server = setting.server.model_copy(update={"learning_rate": training.server_rate})
    longer = max(1.0, _TEACHES / law.way(training.mechanism, server))
    return replace(training, server_rate=training.server_rate * longer)


def own_rho(mechanism: MechanismConfig) -> float:
    """Worst-case rho of a block as it stands, without any gain from sampling."""
    limits = (mechanism.rounds, mechanism.min_sep, mechanism.max_participations)
    return accounting.guarantee_of(mechanisms.build(mechanism), *limits, (mechanism.delta,), twice=False).rho


def scaled(
    mechanism: MechanismConfig, own: ServerConfig, users: int, limits: SmallLaunch
) -> tuple[MechanismConfig, float]:
    """Mechanism and server rate of a simulation with ``users`` pseudo-users, at the launch's own way and step noise.

    Independent noise is played by a tree; secure aggregation and availability are left out. Adaptive clipping stays
    where all rounds are played: its restarts belong to them.

    Args:
      own: server of the launch.

    Raises:
      ValueError: no pseudo-users; Adam.
    """
    if users < 1:
        raise ValueError(f"users: {users}; the public text must make a pseudo-user or more")
    rounds = min(mechanism.rounds, limits.most_rounds)
    min_sep = min(mechanism.min_sep, rounds, users)
    shape = {
        "rounds": rounds,
        "report_goal": min(mechanism.report_goal, users // min_sep, limits.most_goal),
        "min_sep": min_sep,
        "max_participations": min(mechanism.max_participations, most_participations(rounds, min_sep)),
    }
    at_one = _at_one(mechanism, shape)
    rate = own.learning_rate * (law.way(mechanism, own) / law.way(at_one, own))
    played = own.model_copy(update={"learning_rate": rate})
    multiplier = law.step_noise(mechanism, own) / law.step_noise(at_one, played)
    if at_one.adaptive_clipping is None:
        return at_one.model_copy(update={"noise_multiplier": multiplier}), rate
    # Noise of the bits, and that of the updates that shares with it, shrink alike.
    bits = at_one.adaptive_clipping.bit_noise_std * multiplier / mechanism.noise_multiplier
    adaptive = at_one.adaptive_clipping.model_copy(update={"bit_noise_std": bits})
    return at_one.model_copy(update={"noise_multiplier": multiplier, "adaptive_clipping": adaptive}), rate


def scaled_counts(noise_multiplier: float, users: int, devices: int) -> float:
    """Noise multiplier of the simulated counts: the same ratio of noise to counts as in the launch."""
    return noise_multiplier * min(users / devices, 1.0)


def notes(
    mechanism: MechanismConfig, own: ServerConfig, users: int, devices: int, limits: SmallLaunch
) -> tuple[str, ...]:
    """Notes for people on the scaled quantities; () if nothing was scaled."""
    played, _ = scaled(mechanism, own, users, limits)
    if users == devices and (played.rounds, played.report_goal) == (mechanism.rounds, mechanism.report_goal):
        return ()
    return (
        f"Scaled: {users:,} pseudo-users play {devices:,} devices that train, {played.rounds:,} rounds of "
        f"{played.report_goal:,} play {mechanism.rounds:,} of {mechanism.report_goal:,}, at the launch's own way and "
        "step noise. The result extrapolates; the launch has more text and more rounds to learn from.",
    )


def _at_one(mechanism: MechanismConfig, shape: dict[str, int]) -> MechanismConfig:
    """The mechanism in another shape, at a noise multiplier of 1."""
    if mechanism.kind == "independent":
        block = mechanism.model_dump(include={"clip_norm", "delta", "clipping"})
        return TreeMechanism(kind="tree", noise_multiplier=1.0, randomness="seeded", **shape, **block)
    return mechanism.reshaped(shape, noise_multiplier=1.0, secagg=None, availability=None, randomness="seeded")


@dataclass(frozen=True)
class Gains:
    """Top-1 recall of the start, the gain from public text at no rho, and the gain of each run over the start."""

    start: float
    free: float
    outcomes: tuple[Outcome, ...]


def gains(
    setting: Setting,
    tried: Sequence[Way],
    work: Path,
    on_progress: Callable[[str], None] = lambda line: None,
    *,
    noise: bool = True,
    later: int = 0,
) -> Gains:
    """Gains of each of ``tried``, trained and counted on the users and judged on the people.

    Counts without training are judged alone and mixed with the start: two outcomes. At no rho there are the n-gram of
    the start's text and a table of counts without information, each alone and mixed with the start.

    Args:
      noise: False trains without.
      later: most trainings that another call will make, for the time left.
    """
    tables = counted(setting, [config for _, config in tried if config is not None], on_progress)
    networks = trained(
        setting,
        [training for training, _ in tried if training is not None],
        tables,
        work,
        on_progress,
        noise=noise,
        later=later,
    )
    cells = counted_cells.choose(setting.public, setting.vocabulary)
    nothing = counted_ngram(np.zeros(len(cells)), cells, setting.ngram, len(setting.vocabulary), _ALL_NOISE)
    start, unasked = setting.model, nothing
    public: list[Arm] = [Arm(network, table) for network in (start, None) for table in (setting.ngram, unasked)]
    arms: list[Arm] = []
    rows: list[tuple[Training | None, CountsConfig | None, Ships]] = []
    for training, config in tried:
        table = None if config is None else tables[config]
        if training is None:
            arms += [Arm(None, table), Arm(start, table)]
            rows += [(training, config, SHIPS_COUNTS), (training, config, SHIPS_BOTH)]
        elif config is not None and config.model == "mixture":
            arms.append(Arm(networks[training], table))
            rows.append((training, config, SHIPS_BOTH))
        else:
            arms.append(Arm(networks[training], None))
            rows.append((training, config, SHIPS_NETWORK))
    start_D, *hits_AD = hits(setting.people, [Arm(start, None), *public, *arms], setting.local_training.sequence_words)
    words_D = words_typed(setting.people)
    free_D = max(start_D, *hits_AD[: len(public)], key=np.sum)
    outcomes = [
        _outcome(setting, *row, gain(hits_D, start_D, words_D), gain(hits_D, free_D, words_D))
        for row, hits_D in zip(rows, hits_AD[len(public) :], strict=True)
    ]
    return Gains(
        start=float(start_D.sum() / words_D.sum()),
        free=gain(free_D, start_D, words_D)[0],
        outcomes=tuple(outcomes),
    )


def trained(
    setting: Setting,
    trainings: Sequence[Training],
    tables: dict[CountsConfig, CountedNGram],
    work: Path,
    on_progress: Callable[[str], None],
    *,
    noise: bool = True,
    later: int = 0,
) -> dict[Training, KeyboardLM]:
    """A network for each training, at the launch's way and step noise; from ``work`` where it stands there."""
    networks, digest = {}, _digest(setting)
    for place, training in enumerate(once := list(dict.fromkeys(trainings)), start=1):
        own = setting.server.model_copy(update={"learning_rate": training.server_rate})
        played, rate = scaled(training.mechanism, own, len(setting.users), setting.limits)
        if not noise:
            played = played.model_copy(update={"noise_multiplier": _NEXT_TO_NONE})
        moved = "" if training.moved_by is None else training.moved_by.model_dump_json()
        content = f"{digest} {played.model_dump_json()} {rate!r} {moved}"
        path = work / f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.npy"
        model, begun = copy.deepcopy(setting.model), time.monotonic()
        what = (
            f"training {place} of {len(once)}, {f'rho {training.rho:.3g}' if noise else 'without noise'}: "
            f"{training.mechanism.rounds:,} rounds of {training.mechanism.report_goal:,} devices, played by "
            f"{played.rounds:,} of {played.report_goal:,}"
        )
        if path.exists():
            on_progress(f"{what}: as before")
        else:
            on_progress(what)
            table = None if training.moved_by is None else tables[training.moved_by]
            try:
                weights_P = server.flat_weights(simulate(setting, played, rate, table, work / "running"))
            except ArithmeticError:
                # It diverged: a network that always says the same.
                weights_P = np.zeros_like(server.flat_weights(model))
            write_array(path, weights_P.astype(np.float32))
            minutes, left = (time.monotonic() - begun) / 60, len(once) - place + later
            if left:
                on_progress(f"took {minutes:.2g} min; {left} more at most, about {left * minutes:.2g} min")
        server.load_weights(model, np.load(path).astype(np.float64))
        networks[training] = model
    return networks


def simulate(
    setting: Setting, mechanism: MechanismConfig, server_rate: float, counts: CountedNGram | None, work: Path
) -> KeyboardLM:
    """Train a copy of the model, moved by counts if there are any, on the pseudo-users.

    A killed simulation resumes from its checkpoint in ``work``, which is removed at the end.

    Raises:
      ArithmeticError: training diverged: a server rate that is too high, or far too much noise.
    """
    words = setting.local_training.sequence_words
    model = copy.deepcopy(setting.model)
    if counts is not None:
        model = distil(model, counts, setting.public, words, setting.seed)
    try:
        fine_tune(
            model,
            TrainingData(setting.users, np.zeros(len(setting.users), dtype=bool), setting.people.select(np.arange(1))),
            RoundRule(mechanism, setting.seed, seeded_key(setting.seed)),
            setting.local_training,
            setting.server.model_copy(update={"learning_rate": server_rate}),
            Workplace(work, setting.runtime.model_copy(update={"evaluate_every_rounds": mechanism.rounds})),
        )
    finally:
        # A killed process does not come here.
        shutil.rmtree(work, ignore_errors=True)
    return model


def _digest(setting: Setting) -> str:
    """Digest of a simulation's inputs, but for its mechanism, server rate and counts."""
    total = hashlib.sha256(json.dumps(asdict(setting.limits), sort_keys=True).encode())
    total.update(setting.local_training.model_dump_json().encode())
    total.update(setting.server.model_dump_json(exclude={"learning_rate"}).encode())
    total.update(str(setting.seed).encode())
    for stream in (setting.users, setting.public):
        total.update(np.ascontiguousarray(stream.tokens_N).data)
        total.update(np.ascontiguousarray(stream.offsets_D1).data)
    total.update(np.ascontiguousarray(server.flat_weights(setting.model)).data)
    return total.hexdigest()


def counted(
    setting: Setting, releases: Sequence[CountsConfig], on_progress: Callable[[str], None]
) -> dict[CountsConfig, CountedNGram]:
    """Models made by counts of the pseudo-users, with the launch's ratio of noise to counts."""
    tables: dict[CountsConfig, CountedNGram] = {}
    cells = functools.cache(lambda contexts: counted_cells.choose(setting.public, setting.vocabulary, contexts))
    for config in dict.fromkeys(releases):
        noise = scaled_counts(config.noise_multiplier, len(setting.users), setting.terms.training_devices)
        chosen = cells(config.contexts)
        released_U = released_counts(setting.users, chosen, noise, seeded_key(setting.seed))
        tables[config] = counted_ngram(released_U, chosen, setting.ngram, len(setting.vocabulary), noise)
        on_progress(f"counts, rho {config.rho:.3g}")
    return tables


def _outcome(
    setting: Setting,
    training: Training | None,
    counts: CountsConfig | None,
    ships: Ships,
    over_start: tuple[float, float],
    over_free: tuple[float, float],
) -> Outcome:
    counts_rho = 0.0 if counts is None else counts.rho
    if training is None:
        assert counts is not None
        yaml = "\n".join(_counts_block(counts, UNTRAINED[ships]))
        return Outcome(0.0, counts_rho, 0, 0, 0.0, ships, *over_start, run={}, yaml=yaml, over_free=over_free)
    mechanism, own = training.mechanism, setting.server.model_copy(update={"learning_rate": training.server_rate})
    lines = [to_yaml(mechanism), "server:", f"  learning_rate: {training.server_rate!r}"]
    if counts is not None:
        lines += _counts_block(counts, counts.model)
    return Outcome(
        gradient_rho=training.rho,
        counts_rho=counts_rho,
        rounds=mechanism.rounds,
        report_goal=mechanism.report_goal,
        step_noise=law.step_noise(mechanism, own),
        ships=ships,
        gain=over_start[0],
        error=over_start[1],
        run=run_of(mechanism, training.server_rate, counts),
        yaml="\n".join(lines),
        over_free=over_free,
    )


def _counts_block(counts: CountsConfig, model: str) -> list[str]:
    lines = {"noise_multiplier": counts.noise_multiplier, "model": model, "contexts": counts.contexts}
    return ["counts:", *(f"  {name}: {value}" for name, value in lines.items())]


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
