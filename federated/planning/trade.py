"""The trade of rho for recall, rehearsed: a population's size of pseudo-users, several splits, one verdict.

Every training and every release of counts is simulated with the noise of the launch (``scaling`` says what is done
where the population is too large to be played whole), and judged on pseudo-users that nothing learned from.

Guarantee: none is needed. Every text is public, and noise comes from a public seed.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from federated.config.counts import CountsConfig, Ships
from federated.config.mechanism import MechanismConfig
from federated.config.planning import SmallTrade
from federated.counts import cells as counted_cells
from federated.counts.cells import Cells
from federated.counts.posterior import counted_ngram
from federated.counts.release import released_counts
from federated.planning import costs as plan_costs
from federated.planning import recall, scaling, splits
from federated.planning.proposal import to_yaml
from federated.planning.recall import Arm
from federated.planning.rehearsal import Rehearsal, Setting, digest_of, simulate
from federated.planning.search import Terms
from federated.planning.splits import Training
from federated.planning.verdict import (
    SHIPS_BOTH,
    SHIPS_COUNTS,
    SHIPS_NETWORK,
    UNTRAINED,
    Outcome,
    Verdict,
    judged,
    run_of,
)
from federated.rounds import server
from pretrain.files import atomic
from pretrain.model import KeyboardLM
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.vocabulary import EOS, TokenStream, Vocabulary

# Of counts that tell nothing: noise beside which no sum is anything.
_ALL_NOISE = 1e6
Tried = tuple[Training | None, CountsConfig | None]


@dataclass(frozen=True)
class TradeSetting:
    """What the launch says and what plays it; everything here is public.

    Attributes:
      setting: model and local training; its users play the devices that train.
      terms: what there is to choose from, and on how many devices.
      mechanism, counts: of the launch file.
      rho: to spend. min_gain: the launch's gate on top-1 recall.
      public: what the start was pretrained on. ngram: fitted to it.
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
    """Simulate every split, judge, decide. Interrupted, it goes on: trained networks stand in ``work``.

    Args:
      best: clip norm and server rate for what the planner chooses, and whether its text teaches anything.
    """
    setting, limits = trade.setting, trade.limits
    users, devices, rate = len(setting.users), trade.terms.training_devices, best.server_learning_rate
    fixed = trade.mechanism.model_copy(update={"clip_norm": best.clip_norm})
    alone = Training(trade.mechanism, setting.server.learning_rate, splits.own_rho(trade.mechanism))
    whole = splits.largest_shapes(fixed, trade.terms, trade.rho, limits, rate)
    # One shape for all splits: the smallest of those that are not told apart.
    leader = _leader(gains(trade, [(training, None) for training in whole], work, on_progress).outcomes, whole)
    shape = leader.mechanism.rounds, leader.mechanism.report_goal
    parts = {1.0: leader}
    for share in limits.shares:
        block = splits.training_at(fixed, trade.terms, share * trade.rho, shape, (leader.mechanism.kind,))
        if share < 1 and block is not None:
            parts[share] = Training(block, rate, splits.own_rho(block))
    counts = {share: splits.counts_at(share * trade.rho) for share in limits.shares}
    untrained = trade.counts is not None and not trade.counts.trains
    tried: list[Tried] = [(None if untrained else alone, trade.counts)]
    tried += [(training, None) for training in dict.fromkeys([*whole, *parts.values()]) if training != alone]
    tried += [(parts[train], counts[count]) for train, count in splits.pairs(limits.shares) if train in parts]
    tried += [(None, release) for release in counts.values()]
    gained = gains(trade, tried, work, on_progress)
    verdict = Verdict(
        answer="untold",
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
        notes=scaling.notes(trade.mechanism, users, devices, limits),
        inputs=trade.inputs,
    )
    return judged(verdict, best.noiseless_accuracy - best.start_accuracy, setting.config.max_accuracy_loss)


@dataclass(frozen=True)
class Gains:
    """Top-1 recall of the start, what public text adds to it for nothing, and what each run gains over the start."""

    start: float
    free: float
    outcomes: tuple[Outcome, ...]


def gains(
    trade: TradeSetting, tried: Sequence[Tried], work: Path, on_progress: Callable[[str], None] = lambda line: None
) -> Gains:
    """What each of ``tried`` gains, trained and counted on the trade's users and judged on its people.

    Counts without training are judged alone and mixed with the start: two outcomes. For nothing come the n-gram of the
    start's text and a table of counts that nobody was asked for, each alone and mixed with the start.
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
    start_D, *hits_AD = recall.hits(trade.people, [Arm(start, None), *public, *arms], sequence_words)
    words_D = recall.words(trade.people)
    free_D = max(start_D, *hits_AD[: len(public)], key=np.sum)
    outcomes = [
        _outcome(*row, recall.gain(hits_D, start_D, words_D), recall.gain(hits_D, free_D, words_D))
        for row, hits_D in zip(rows, hits_AD[len(public) :], strict=True)
    ]
    return Gains(
        start=float(start_D.sum() / words_D.sum()),
        free=recall.gain(free_D, start_D, words_D)[0],
        outcomes=tuple(outcomes),
    )


def trained(
    trade: TradeSetting, trainings: Sequence[Training], work: Path, on_progress: Callable[[str], None]
) -> dict[Training, KeyboardLM]:
    """A network for each training, with the launch's noise-to-signal ratio; from ``work`` where it stands there."""
    setting, networks = trade.setting, {}
    digest = digest_of(setting, asdict(trade.limits))
    for place, training in enumerate(once := list(dict.fromkeys(trainings)), start=1):
        played = scaling.scaled(training.mechanism, len(setting.users), trade.limits)
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
    """What counts of the pseudo-users make, with the launch's noise-to-signal ratio."""
    users = trade.setting.users
    tables: dict[CountsConfig, CountedNGram] = {}
    for config in dict.fromkeys(releases):
        noise = scaling.scaled_counts(config.noise_multiplier, len(users), trade.terms.training_devices)
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
        noise_to_signal=plan_costs.noise_to_signal(mechanism),
        ships=ships,
        gain=over_start[0],
        error=over_start[1],
        run=run_of(mechanism, training.server_rate, counts),
        yaml="\n".join(lines),
        over_free=over_free,
    )


def _counts_block(counts: CountsConfig, model: str) -> list[str]:
    return ["counts:", f"  noise_multiplier: {counts.noise_multiplier!r}", f"  model: {model}"]
