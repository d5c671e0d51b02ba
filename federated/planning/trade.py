"""The trade of rho for recall, rehearsed: a population's size of pseudo-users, several splits, one verdict.

Every training and every release of counts is simulated with the noise of the launch, and judged on pseudo-users that
nothing learned from. Symbols as in ``search``: T rounds, b ``min_sep``, k ``max_participations``, m ``report_goal``,
z noise multiplier; N devices that train, n pseudo-users. With rho given, the noise follows: the mechanism of least
RmsLoss for a shape has the least noise-to-signal ratio that this rho buys.

A population is played by fewer people where it must be. With N pseudo-users and no more rounds than a simulation may
have, nothing is scaled. Else:

- rounds: ``T' = min(T, most rounds)``; separation ``b' = min(b, T')``, so that a person returns as often;
- report goal: ``m' = min(m, n // b', most goal)``, as many as are rested;
- gradients: z' such that ``z' RmsErr(C', T') / m' = z RmsErr(C, T) / m``: as much noise in the model, in clip norms
  of the mean update, as the launch has;
- counts: ``z' = z n / N``: sums are n / N as large, and so is their noise.

A scaled result extrapolates. Fewer people in a round make the mean update itself noisier, fewer rounds learn less
while the noise is that of all, and fewer people know fewer words: all three make a rehearsal poorer than the launch.
That n people's text is N people's is assumed.

Guarantee: none is needed. Every text is public, and noise comes from a public seed.

Shape legend: N tokens, D people, M words to predict, K tokens before, V vocabulary, A arms.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.config.counts import CountsConfig, Ships
from federated.config.mechanism import MechanismConfig, TreeMechanism
from federated.config.planning import KINDS, SmallTrade
from federated.counts import cells as counted_cells
from federated.counts.cells import Cells
from federated.counts.posterior import counted_ngram
from federated.counts.release import released_counts
from federated.planning import search as plan_search
from federated.planning.proposal import mechanism_block, to_yaml
from federated.planning.rehearsal import Rehearsal, Setting, digest_of, simulate
from federated.planning.search import Choice, Terms
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
from pretrain.batches import find_rows, preceding
from pretrain.files import atomic
from pretrain.model import KeyboardLM
from pretrain.ngrams.counted import CountedNGram, mixed
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.vocabulary import EOS, SPECIALS, UNK, TokenStream, Vocabulary


@dataclass(frozen=True)
class Training:
    """Training of one shape at one rho: the ``mechanism:`` block, and its worst-case cost."""

    mechanism: MechanismConfig
    server_rate: float
    rho: float


def training_at(
    mechanism: MechanismConfig, terms: Terms, rho: float, shape: tuple[int, int], kinds: tuple[str, ...]
) -> MechanismConfig | None:
    """The ``mechanism:`` block of a shape whose worst case is ``rho`` or a hair below; None if nothing fits.

    Args:
      mechanism: gives clip norm, delta and all fields outside the plan.
      shape: rounds and report goal.
    """
    # Which ratio is held does not matter: at one goal, least rho at a ratio is least ratio at a rho.
    terms = replace(terms, noise_to_signal=1.0, kinds=kinds)
    rounds, goal = shape
    choice = plan_search.best(terms, rounds, goal, thorough=True)
    if choice is None:
        return None
    strategy = plan_search.as_launched(choice.strategy)
    ratio = strategy.loss / (goal * math.sqrt(2 * rho))
    held = plan_search.option(replace(terms, noise_to_signal=ratio), strategy, goal)
    fixed = mechanism.model_copy(update={"adaptive_clipping": None})
    return mechanism_block(fixed, Choice(held, strategy), terms.planning)


def shapes(mechanism: MechanismConfig, terms: Terms, limits: SmallTrade) -> Iterator[tuple[int, int]]:
    """Rounds and report goals to rehearse, the largest goal first."""
    most = min(terms.planning.max_report_goal, terms.usable_devices)
    goals = dict.fromkeys(max(1, int(most * share)) for share in limits.goals)
    yield from ((mechanism.rounds, goal) for goal in goals)


def own_rho(mechanism: MechanismConfig) -> float:
    """Worst-case rho of a block as it stands, without any gain from sampling."""
    limits = (mechanism.rounds, mechanism.min_sep, mechanism.max_participations)
    return accounting.guarantee_of(mechanisms.build(mechanism), *limits, (mechanism.delta,), twice=False).rho


def counts_at(rho: float) -> CountsConfig:
    """The ``counts:`` block of at most this rho, whose model ships mixed with the network."""
    return CountsConfig(noise_multiplier=plan_search.round_up((2 * rho) ** -0.5, 4), model="mixture")


def largest_shapes(
    mechanism: MechanismConfig, terms: Terms, rho: float, limits: SmallTrade, server_rate: float
) -> list[Training]:
    """Training of every shape that the devices that train carry, with all of the rho.

    Raises:
      ValueError: they carry none.
    """
    of_splits = [
        Training(block, server_rate, own_rho(block))
        for shape in shapes(mechanism, terms, limits)
        if (block := training_at(mechanism, terms, rho, shape, KINDS)) is not None
    ]
    if not of_splits:
        raise ValueError(
            f"planning.population_estimate: {terms.planning.population_estimate} devices, of which about "
            f"{terms.training_devices} train, fill no round of {terms.planning.max_report_goal}; lower max_report_goal"
        )
    return of_splits


def pairs(shares: tuple[float, ...]) -> Iterator[tuple[float, float]]:
    """Shares of training and of counts that together are no more than all of the rho."""
    yield from ((train, count) for train in shares for count in shares if train + count <= 1 + 1e-9)


def scaled(mechanism: MechanismConfig, users: int, limits: SmallTrade) -> MechanismConfig:
    """Mechanism of a simulation with ``users`` pseudo-users, at the launch's own noise-to-signal ratio.

    Independent noise is played by a tree of that ratio; secure aggregation and availability are left out. Adaptive
    clipping stays where all rounds are played: its restarts belong to them.

    Raises:
      ValueError: no pseudo-users.
    """
    if users < 1:
        raise ValueError(f"users: {users}; the public text must make a pseudo-user or more")
    ratio = plan_search.noise_to_signal(mechanism)
    rounds = min(mechanism.rounds, limits.most_rounds)
    min_sep = min(mechanism.min_sep, rounds, users)
    goal = min(mechanism.report_goal, users // min_sep, limits.most_goal)
    shape = {
        "rounds": rounds,
        "report_goal": goal,
        "min_sep": min_sep,
        "max_participations": min(mechanism.max_participations, plan_search.most_participations(rounds, min_sep)),
    }
    at_one = _at_one(mechanism, shape)
    multiplier = ratio / plan_search.noise_to_signal(at_one)
    if at_one.adaptive_clipping is None:
        return at_one.model_copy(update={"noise_multiplier": multiplier})
    # Noise of the bits, and that of the updates that shares with it, shrink alike.
    bits = at_one.adaptive_clipping.bit_noise_std * multiplier / mechanism.noise_multiplier
    adaptive = at_one.adaptive_clipping.model_copy(update={"bit_noise_std": bits})
    return at_one.model_copy(update={"noise_multiplier": multiplier, "adaptive_clipping": adaptive})


def scaled_counts(noise_multiplier: float, users: int, devices: int) -> float:
    """Noise multiplier of the simulated counts: the same ratio of noise to counts as in the launch."""
    return noise_multiplier * min(users / devices, 1.0)


def notes(mechanism: MechanismConfig, users: int, devices: int, limits: SmallTrade) -> tuple[str, ...]:
    """Notes for people on the scaled quantities; () if nothing was scaled."""
    played = scaled(mechanism, users, limits)
    if users == devices and (played.rounds, played.report_goal) == (mechanism.rounds, mechanism.report_goal):
        return ()
    return (
        f"Scaled: {users:,} pseudo-users play {devices:,} devices that train, {played.rounds:,} rounds of "
        f"{played.report_goal:,} play {mechanism.rounds:,} of {mechanism.report_goal:,}, at the launch's own "
        "noise-to-signal ratio. The result extrapolates; the launch has more text and more rounds to learn from.",
    )


def _at_one(mechanism: MechanismConfig, shape: dict[str, int]) -> MechanismConfig:
    """The mechanism in another shape, at a noise multiplier of 1."""
    if mechanism.kind == "independent":
        block = mechanism.model_dump(include={"clip_norm", "delta", "clipping"})
        return TreeMechanism(kind="tree", noise_multiplier=1.0, randomness="seeded", **shape, **block)
    return mechanism.reshaped(shape, noise_multiplier=1.0, secagg=None, availability=None, randomness="seeded")


# Noise multiplier of counts without any information.
_ALL_NOISE = 1e6
Tried = tuple[Training | None, CountsConfig | None]


@dataclass(frozen=True)
class TradeSetting:
    """Launch terms, and the models and text that simulate them; everything here is public.

    Attributes:
      setting: model and local training; its users play the devices that train.
      terms: search space and number of devices.
      mechanism, counts: of the launch file.
      rho: to spend. min_gain: the launch's gate on top-1 recall.
      public: pretraining text of the start. ngram: fitted to it.
      people: held-out pseudo-users.
      inputs: digest to find the verdict again by.
    """

    setting: Setting
    mechanism: MechanismConfig
    counts: CountsConfig | None
    terms: Terms
    rho: float
    min_gain: float
    vocabulary: Vocabulary
    public: TokenStream
    ngram: NGram
    people: TokenStream
    limits: SmallTrade
    inputs: str


def rehearse(trade: TradeSetting, best: Rehearsal, work: Path, on_progress: Callable[[str], None]) -> Verdict:
    """Simulate every split and decide. A second call resumes: ``work`` holds the networks trained so far.

    Args:
      best: clip norm and server rate for the planner's choices, and if training on its text improves the model.
    """
    setting, limits = trade.setting, trade.limits
    users, devices, rate = len(setting.users), trade.terms.training_devices, best.server_learning_rate
    fixed = trade.mechanism.model_copy(update={"clip_norm": best.clip_norm})
    alone = Training(trade.mechanism, setting.server.learning_rate, own_rho(trade.mechanism))
    whole = largest_shapes(fixed, trade.terms, trade.rho, limits, rate)
    # One shape for all splits: the smallest of the statistically equal ones.
    leader = _leader(gains(trade, [(training, None) for training in whole], work, on_progress).outcomes, whole)
    shape = leader.mechanism.rounds, leader.mechanism.report_goal
    parts = {1.0: leader}
    for share in limits.shares:
        block = training_at(fixed, trade.terms, share * trade.rho, shape, (leader.mechanism.kind,))
        if share < 1 and block is not None:
            parts[share] = Training(block, rate, own_rho(block))
    counts = {share: counts_at(share * trade.rho) for share in limits.shares}
    untrained = trade.counts is not None and not trade.counts.trains
    tried: list[Tried] = [(None if untrained else alone, trade.counts)]
    tried += [(training, None) for training in dict.fromkeys([*whole, *parts.values()]) if training != alone]
    tried += [(parts[train], counts[count]) for train, count in pairs(limits.shares) if train in parts]
    tried += [(None, release) for release in counts.values()]
    gained = gains(trade, tried, work, on_progress)
    verdict = Verdict(
        answer="inconclusive",
        sentence="",
        best=None,
        outcomes=gained.outcomes,
        start=gained.start,
        free=gained.free,
        rho=trade.rho,
        training_devices=devices,
        min_gain=trade.min_gain,
        pseudo_users=users,
        words=int(np.sum(setting.users.tokens_N != EOS)),
        notes=notes(trade.mechanism, users, devices, limits),
        inputs=trade.inputs,
    )
    return judge(verdict, best.noiseless_accuracy - best.start_accuracy, setting.config.max_accuracy_loss)


@dataclass(frozen=True)
class Gains:
    """Top-1 recall of the start, the gain from public text at no rho, and the gain of each run over the start."""

    start: float
    free: float
    outcomes: tuple[Outcome, ...]


def gains(
    trade: TradeSetting, tried: Sequence[Tried], work: Path, on_progress: Callable[[str], None] = lambda line: None
) -> Gains:
    """Gains of each of ``tried``, trained and counted on the trade's users and judged on its people.

    Counts without training are judged alone and mixed with the start: two outcomes. At no rho there are the n-gram of
    the start's text and a table of counts without information, each alone and mixed with the start.
    """
    networks = trained(trade, [training for training, _ in tried if training is not None], work, on_progress)
    cells = counted_cells.choose(trade.public, trade.vocabulary)
    tables = counted(trade, cells, [config for _, config in tried if config is not None], on_progress)
    start, unasked = trade.setting.model, _table(trade, cells, np.zeros(len(cells)), _ALL_NOISE)
    public: list[Arm] = [Arm(network, table) for network in (start, None) for table in (trade.ngram, unasked)]
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
    sequence_words = trade.setting.local_training.sequence_words
    start_D, *hits_AD = hits(trade.people, [Arm(start, None), *public, *arms], sequence_words)
    words_D = words_typed(trade.people)
    free_D = max(start_D, *hits_AD[: len(public)], key=np.sum)
    outcomes = [
        _outcome(*row, gain(hits_D, start_D, words_D), gain(hits_D, free_D, words_D))
        for row, hits_D in zip(rows, hits_AD[len(public) :], strict=True)
    ]
    return Gains(
        start=float(start_D.sum() / words_D.sum()),
        free=gain(free_D, start_D, words_D)[0],
        outcomes=tuple(outcomes),
    )


def trained(
    trade: TradeSetting, trainings: Sequence[Training], work: Path, on_progress: Callable[[str], None]
) -> dict[Training, KeyboardLM]:
    """A network for each training, with the launch's noise-to-signal ratio; from ``work`` where it stands there."""
    setting, networks = trade.setting, {}
    digest = digest_of(setting, asdict(trade.limits))
    for place, training in enumerate(once := list(dict.fromkeys(trainings)), start=1):
        played = scaled(training.mechanism, len(setting.users), trade.limits)
        content = f"{digest} {played.model_dump_json()} {training.server_rate!r}"
        path = work / f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.npy"
        model = copy.deepcopy(setting.model)
        if not path.exists():
            try:
                weights_P = server.flat_weights(simulate(setting, played, training.server_rate, work / "running")[0])
            except ArithmeticError:
                # It diverged: a network that always says the same.
                weights_P = np.zeros_like(server.flat_weights(model))
            with atomic(path) as temporary, temporary.open("wb") as file:
                np.save(file, weights_P.astype(np.float32))
        server.load_weights(model, np.load(path).astype(np.float64))
        networks[training] = model
        on_progress(
            f"trained {place} of {len(once)}, rho {training.rho:.3g}: {training.mechanism.rounds:,} rounds of "
            f"{training.mechanism.report_goal:,} devices, played by {played.rounds:,} of {played.report_goal:,}"
        )
    return networks


def counted(
    trade: TradeSetting, cells: Cells, releases: Sequence[CountsConfig], on_progress: Callable[[str], None]
) -> dict[CountsConfig, CountedNGram]:
    """Models made by counts of the pseudo-users, with the launch's noise-to-signal ratio."""
    users = trade.setting.users
    tables: dict[CountsConfig, CountedNGram] = {}
    for config in dict.fromkeys(releases):
        noise = scaled_counts(config.noise_multiplier, len(users), trade.terms.training_devices)
        released_U = released_counts(users, cells, noise, seeded_key(trade.setting.seed))
        tables[config] = _table(trade, cells, released_U, noise)
        on_progress(f"counts, rho {config.rho:.3g}")
    return tables


def _table(trade: TradeSetting, cells: Cells, released_U: np.ndarray, noise: float) -> CountedNGram:
    return counted_ngram(released_U, cells, trade.ngram, len(trade.vocabulary), noise)


def _leader(outcomes: Sequence[Outcome], whole: Sequence[Training]) -> Training:
    """The training of fewest devices in a round among those within a standard error of the best."""
    largest = max(outcomes, key=lambda outcome: outcome.gain)
    alike = [
        (outcome.report_goal, place)
        for place, outcome in enumerate(outcomes)
        if outcome.gain >= largest.gain - largest.error and outcome.rounds == largest.rounds
    ]
    return whole[min(alike)[1]]


def _outcome(
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
    mechanism = training.mechanism
    lines = [to_yaml(mechanism), "server:", f"  learning_rate: {training.server_rate!r}"]
    if counts is not None:
        lines += _counts_block(counts, counts.model)
    return Outcome(
        gradient_rho=training.rho,
        counts_rho=counts_rho,
        rounds=mechanism.rounds,
        report_goal=mechanism.report_goal,
        noise_to_signal=plan_search.noise_to_signal(mechanism),
        ships=ships,
        gain=over_start[0],
        error=over_start[1],
        run=run_of(mechanism, training.server_rate, counts),
        yaml="\n".join(lines),
        over_free=over_free,
    )


def _counts_block(counts: CountsConfig, model: str) -> list[str]:
    return ["counts:", f"  noise_multiplier: {counts.noise_multiplier!r}", f"  model: {model}"]


# Probabilities held at once.
_MOST_NUMBERS = 4_000_000


@dataclass(frozen=True)
class Arm:
    """Predictor: a network, an n-gram, or the two mixed half and half; an absent one is None."""

    network: KeyboardLM | None
    counts: CountedNGram | NGram | None


def hits(people: TokenStream, arms: Sequence[Arm], sequence_words: int) -> np.ndarray:
    """Words that each arm ranks first, by person: int64 ``[A, D]``. Specials are never suggested."""
    hits_AD = np.zeros((len(arms), len(people)), dtype=np.int64)
    for owner_M, meant_M, chances in predictions(people, arms, sequence_words):
        for hits_D, chance_MV in zip(hits_AD, chances, strict=True):
            best_M = chance_MV[:, len(SPECIALS) :].argmax(axis=1) + len(SPECIALS)
            hits_D += np.bincount(owner_M[best_M == meant_M], minlength=len(people))
    return hits_AD


def predictions(
    people: TokenStream, arms: Sequence[Arm], sequence_words: int
) -> Iterator[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
    """Every word of the vocabulary that people typed: its owner ``[M]``, the word ``[M]``, chances ``[M, V]`` by arm.

    Every network and every table of counts is asked once, however many arms share it.
    """
    networks = {id(arm.network): arm.network for arm in arms if arm.network is not None}
    tables = {id(arm.counts): arm.counts for arm in arms if arm.counts is not None}
    rows = find_rows(people.tokens_N, sequence_words)
    sizes = [model.vocabulary_size for model in networks.values()] + [
        table.vocabulary_size for table in tables.values()
    ]
    longest = max((table.order - 1 for table in tables.values()), default=1)
    at_once = max(1, _MOST_NUMBERS // (max(sizes) * sequence_words))
    order_R = np.argsort(rows.length_R, kind="stable")
    for first in range(0, len(order_R), at_once):
        batch_B = order_R[first : first + at_once]
        inputs_BT, targets_BT = rows.batch(batch_B)
        known_BT = (targets_BT > UNK).numpy()
        place_M = (rows.start_R[batch_B][:, None] + np.arange(known_BT.shape[1]))[known_BT]
        if not len(place_M):
            continue
        owner_M = np.searchsorted(people.offsets_D1, place_M, side="right") - 1
        last_MK = preceding(people.tokens_N, place_M, longest)
        chances = {name: _chances(model, inputs_BT, known_BT) for name, model in networks.items()}
        chances |= {name: table.dense(last_MK) for name, table in tables.items()}
        each = [[chances[id(part)] for part in (arm.network, arm.counts) if part is not None] for arm in arms]
        yield owner_M, people.tokens_N[place_M], [parts[0] if len(parts) == 1 else mixed(*parts) for parts in each]


def words_typed(people: TokenStream) -> np.ndarray:
    """Words that each person typed, those outside the vocabulary among them: int64 ``[D]``."""
    owner_N = np.repeat(np.arange(len(people)), np.diff(people.offsets_D1))
    return np.bincount(owner_N[people.tokens_N >= UNK], minlength=len(people))


def gain(hits_D: np.ndarray, start_D: np.ndarray, words_D: np.ndarray) -> tuple[float, float]:
    """Recall over the start's, and its paired standard error; people are the sample, not words.

    The error is that of a ratio of sums, linearised (Cochran 1977, section 6.4). It is about people alone: noise and
    cohorts are drawn once.

    Raises:
      ValueError: fewer than two people, or none who typed.
    """
    people, total = len(words_D), words_D.sum()
    if people < 2 or not total:
        raise ValueError(f"held-out text: {people} people with {total} words; use more public text")
    value = (hits_D - start_D).sum() / total
    residual_D = hits_D - start_D - value * words_D
    return float(value), float(np.sqrt(people / (people - 1) * np.sum(residual_D**2)) / total)


@torch.no_grad()
def _chances(model: KeyboardLM, inputs_BT: torch.Tensor, known_BT: np.ndarray) -> np.ndarray:
    features_BTE, _ = model.features(inputs_BT)
    features_ME = features_BTE[torch.from_numpy(known_BT)]
    logits_MV = torch.addmm(model.output_bias, features_ME, model.output_VE.T)
    return torch.softmax(logits_MV, dim=1).numpy()
