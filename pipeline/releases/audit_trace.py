"""Traces of training for its audits: the claim that they test, the noise and rounds that they make again."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.audit import keyed_noise, strategies, whitening
from evaluation.audit.canaries import CanarySet
from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim
from evaluation.audit.noise import Trace
from evaluation.audit.released.replay import Models, RoundRecords
from evaluation.audit.released.rows import AuditRow
from evaluation.audit.released.splits import cohorts_audit, sampled
from evaluation.audit.released.training import (
    AdaptiveRule,
    KeptRound,
    Rule,
    TrainingRecord,
    chosen,
    combined,
    training_audit,
)
from evaluation.audit.verdict import Verdict
from evaluation.audit.watch import Limits, Watch, WatchState
from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.config.mechanism import IndependentMechanism, MechanismConfig
from federated.config.training import LocalTrainingConfig
from federated.local_training.autotune import FILE as CHUNK
from federated.local_training.rows import DeviceRows, cohort_rows, round_offset, round_rows, rows_digest
from federated.local_training.updates import updates
from federated.rounds import kept_rounds, server, witness
from federated.rounds.rule import RoundRule
from federated.train import FineTuneResult, TrainingData
from pretrain.files import PRIVATE, atomic, write_array
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.randomness.noise import subkey
from pretrain.text.vocabulary import TokenStream

FILE = "audit.npz"
EVIDENCE = "evidence.npy"
_WITNESS = "witness."
# Number of devices whose text is read again, from whole rounds spread over a longer run.
_MOST_DEVICES = 50_000


def directions(model: KeyboardLM, count: int, key: bytes) -> Directions:
    """Return the direction canaries of a run.

    Their seed follows from the noise key, which the ledger's reservation commits to before training.
    """
    seed = int.from_bytes(subkey(key, "direction canaries"), "big")
    return Directions(tuple(parameter.numel() for parameter in model.parameters()), count, seed)


def save(done: FineTuneResult, planted: Directions, path: Path) -> None:
    """Save the inputs of the audits. Secret: they allow the released sums to be computed without noise."""
    assert done.probe is not None, "a launch plants directions"
    arrays = {
        "synthetic_joined": done.synthetic_joined_TD,
        "projections": done.probe.projections_TN,
        "joined": done.probe.joined_TN,
        "seed": np.frombuffer(planted.seed.to_bytes(32, "big"), dtype=np.uint8),
        "directions": np.array([planted.count, *planted.layers]),
    }
    arrays |= {_WITNESS + name: array for name, array in witness.save(done.probe.witness).items()}
    with atomic(path, PRIVATE) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub takes every keyword for allow_pickle


def load(path: Path) -> tuple[np.ndarray, Trace, Directions]:
    """Load the rounds of synthetic devices, and the trace with its directions.

    Raises:
      OSError: the file is not on this machine.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    count, *layers = (int(number) for number in arrays["directions"])
    planted = Directions(tuple(layers), count, int.from_bytes(arrays["seed"].tobytes(), "big"))
    seen = witness.load({name.removeprefix(_WITNESS): arrays[name] for name in arrays if name.startswith(_WITNESS)})
    return (
        arrays["synthetic_joined"],
        Trace(arrays["projections"], arrays["joined"], RoundRecords(**vars(seen))),
        planted,
    )


def save_evidence(state: WatchState, path: Path) -> None:
    """Save the logarithms of the e-values after each round of a stopped run. Secret."""
    write_array(path, state.log_values_T2, PRIVATE)


def whitener(mechanism: mechanisms.Mechanism, rounds: int) -> np.ndarray:
    """Whitening matrix, ``[T, T]``: makes the noise of the released sums independent between rounds."""
    return mechanisms.whitener(mechanism, rounds, whitening.of_tree, whitening.of_coefficients)


def claim(config: MechanismConfig, mechanism: mechanisms.Mechanism, rounds: int, joined_TN: np.ndarray) -> Claim:
    """The accountant's claim about a canary that joined as often as the limits allow.

    For the enforced limits, not the observed ones, as canaries join more often than real devices. Without enforced
    limits, for the rounds that a canary actually joined.
    """
    rule, joined = RoundRule(config, seed=0, stored=mechanism), int(joined_TN.sum(axis=0).max(initial=1))
    promised = accounting.guarantee_of(mechanism, rounds, *rule.eager_limits(rounds, joined), (config.delta,))
    return Claim(whitener(mechanism, rounds), rule.privatizer.noise_multiplier, promised.mu)


def noise_along(rule: RoundRule, planted: Directions, rounds: int) -> np.ndarray:
    """Inner products of each round's noise with the directions, ``[T, N]`` in clip norms, from the key; secret."""
    multiplier = rule.privatizer.noise_multiplier
    return strategies.drawn(strategy_of(rule, rounds), multiplier, rule.key, planted, ()).along_TN


def watch(rule: RoundRule, planted: Directions, data: TrainingData, key: bytes) -> Watch:
    """Audits of the rounds while they run, for the limits that the rule enforces.

    Args:
      key: of the stage, which the reservation commits to; the rule's own is under test.
    """
    config, rounds = rule.config, rule.config.rounds
    stress_D = np.zeros(len(data.devices), dtype=bool) if data.stress_D is None else data.stress_D
    # A secret sample has no limits, but no device is in a round twice.
    limits = (config.min_sep, config.max_participations) if config.timed else (1, rounds)
    return Watch(
        directions=planted,
        whitener_TT=whitener(rule.mechanism, rounds),
        strategy=strategy_of(rule, rounds),
        noise_multiplier=rule.privatizer.noise_multiplier,
        key=key,
        limits=Limits(*limits, ~stress_D),
    )


def strategy_of(rule: RoundRule, rounds: int) -> strategies.Strategy:
    """Strategy matrix of a launch's noise, as the audit implements it from the papers."""
    if rule.config.kind == "tree":
        return strategies.of_tree(rounds, rule.config.restarts)
    return strategies.of_matrix(whitener(rule.mechanism, rounds), rule.config.kind)


def models(planted: Directions, start_P: np.ndarray, final_P: np.ndarray) -> Models:
    """Return the models before and after training, in the form of the recorded ones between."""
    places_K = witness.followed(len(start_P))
    return Models(places_K, planted.project(start_P), start_P[places_K], planted.project(final_P), final_P[places_K])


def cohorts_row(rule: RoundRule, data: TrainingData, recorded: Mapping[int, np.ndarray], rounds: int) -> AuditRow:
    """Audit row of the participation records: each round's devices must be those that seed and key choose."""
    cohorts = rule.cohorts(data.synthetic_D, data.stress_D, data.stress_rate)
    state, wrong = cohorts.init(), []
    for number in range(rounds):
        cohort, state = cohorts.draw(state, number)
        if not np.array_equal(cohort, recorded.get(number, np.empty(0, dtype=np.int32))):
            wrong.append(number)
    reason = f"the records of round {wrong[0]} are not the cohort that seed and key choose" if wrong else ""
    return AuditRow("cohorts", reason)


def canaries_row(
    made: CanarySet,
    planted: CanarySet,
    data: TrainingData,
    joined_TD: np.ndarray,
    recorded: Mapping[int, np.ndarray],
) -> AuditRow:
    """Audit row of the canaries: those of the launch file were planted, and trained in the recorded rounds.

    Without it, an attack that finds nothing could be one on a model that never saw its canaries.

    Args:
      made: canaries of the launch file, made again from public text; planted: those that training saved.
      joined_TD: bool, rounds of their devices as the memorisation audit takes them.
    """
    places_D, alone = np.flatnonzero(data.synthetic_D), data.devices.select(np.flatnonzero(data.synthetic_D))
    recorded_TD = [np.isin(places_D, recorded.get(number, ())) for number in range(len(joined_TD))]
    trained_N = np.unique(planted.canary_of_device_D[joined_TD.any(axis=0)])
    trained = {planted.canaries[number].population for number in trained_N}
    reason = ""
    if made.canaries != planted.canaries or not _same(made.devices, planted.devices):
        reason = "the canaries that were planted are not those of the launch file"
    elif not _same(made.devices, alone):
        reason = "the text that trained for canaries is not theirs"
    elif not np.array_equal(np.reshape(recorded_TD, joined_TD.shape), joined_TD):
        reason = "the records do not hold the rounds in which the canaries are said to have trained"
    elif absent := {canary.population for canary in made.canaries} - trained:
        reason = f"no canary of the population {min(absent)} was in any round"
    return AuditRow("canaries_in", reason)


def _same(one: TokenStream, other: TokenStream) -> bool:
    return np.array_equal(one.tokens_N, other.tokens_N) and np.array_equal(one.offsets_D1, other.offsets_D1)


def trained_row(
    rule: RoundRule,
    local: LocalTrainingConfig,
    data: TrainingData,
    recorded: Mapping[int, np.ndarray],
    seen: RoundRecords,
) -> AuditRow:
    """Audit row of the training text: it must be that of the recorded devices, each once, and no other."""
    rounds, wrong = len(seen.rows_T), []
    step = max(1, -(-rounds * rule.config.report_goal // _MOST_DEVICES))
    for number in range((rounds - 1) % step, rounds, step):
        cohort = recorded.get(number, np.empty(0, dtype=np.int32)).tolist()
        # A stream of one device's text alone: a fault that reads another device, or one twice, cannot repeat here.
        rows = [
            row
            for device in cohort
            for row in round_rows(_alone(data.devices, device), np.zeros(1, np.int32), local, rule.seed, number)
        ]
        rows = [row for row in rows if len(row.targets_RT)]
        once = len(set(cohort)) == len(cohort) and len(rows) == seen.updates_T[number]
        if not once or int(rows_digest(rows)[0]) != seen.rows_T[number]:
            wrong.append(number)
    reason = f"what round {wrong[0]} trained on is not the text of the devices on record, each once" if wrong else ""
    return AuditRow("trained_rows", reason)


def _alone(devices: TokenStream, device: int) -> TokenStream:
    begin, end = devices.offsets_D1[device : device + 2]
    return TokenStream(devices.tokens_N[begin:end], np.array([0, end - begin]))


@dataclass(frozen=True)
class TrainingRun:
    """A finished training run, from its files. Private.

    Attributes:
      folder: folder of its rounds.
      rule: the round's rule, with the key of the noise.
      start: the initial model, on the device that trains.
      final_P: weights of the published model.
      recorded: devices of each round, by their index among the training devices.
      people, synthetic: number of training devices of people, and of those made for the audit, which follow them.
      text: token ids of some of them, by index; read independently of training's own text.
    """

    folder: Path
    local: LocalTrainingConfig
    rule: RoundRule
    trace: Trace
    directions: Directions
    start: KeyboardLM
    final_P: np.ndarray
    recorded: Mapping[int, np.ndarray]
    people: int
    synthetic: int
    text: Callable[[np.ndarray], TokenStream]

    @property
    def devices(self) -> int:
        """Number of training devices, synthetic ones included."""
        return self.people + self.synthetic

    @property
    def rounds(self) -> int:
        """Number of finished rounds."""
        return len(self.trace.joined_TN)


def audited(run: TrainingRun, threads: int) -> Iterator[Verdict]:
    """Yield verdicts on a run's records, then on its rounds, not made again of devices that do not exist."""
    who = cohorts_audit(run.devices, list(run.recorded.values()), _samples(run))
    yield who
    if who.passed:
        yield from verdicts(run, threads)


def _samples(run: TrainingRun) -> Iterator[np.ndarray]:
    """Yield the secret sample of each recorded round; nothing where the launch's public seed picks the devices."""
    config = run.rule.config
    if isinstance(config, IndependentMechanism):
        size, rate = config.report_goal, config.report_goal / config.population
        for number in run.recorded:
            yield sampled(run.rule.key, number, run.devices, rate, None if config.sampling == "poisson" else size)


def verdicts(run: TrainingRun, threads: int = 1) -> tuple[Verdict, ...]:
    """Verdicts on the released sums and bits of a run.

    Args:
      threads: chunks of devices processed in parallel.
    """
    config, size = run.rule.config, run.directions.num_parameters
    strategy = strategy_of(run.rule, run.rounds)
    adaptive, bit_noise_T = config.adaptive_clipping, np.zeros(run.rounds)
    if adaptive is not None:
        key = keyed_noise.subkey(run.rule.key, "clip bits")
        bit_noise_T = strategies.drawn_numbers(strategy, adaptive.bit_noise_std, key)
    start_P = server.flat_weights(run.start)
    encoding = run.rule.encoding(size, run.people, run.synthetic)
    rule = Rule(
        noise_multiplier=run.rule.privatizer.noise_multiplier,
        layers=run.directions.layers if config.clipping == "per-layer" else None,
        most_weight=run.rule.denominator if run.rule.sensitivity > 1 else None,
        rounding=0.0 if encoding is None else encoding.rounding_std,
        clipping=_adaptive(config, run.rounds),
    )
    numbers = chosen(run.final_P, kept_rounds.numbers(run.rounds))
    drawn = strategies.drawn(strategy, rule.noise_multiplier, run.rule.key, run.directions, numbers)
    recorded = TrainingRecord(run.trace.seen, models(run.directions, start_P, run.final_P), run.directions)
    made = (_round(run, number, drawn.whole[number], rule, threads) for number in numbers)
    return training_audit(made, recorded, rule, bit_noise_T)


def _adaptive(config: MechanismConfig, rounds: int) -> AdaptiveRule | None:
    adaptive = config.adaptive_clipping
    if adaptive is None:
        return None
    # Independent noise starts afresh in each round.
    restarts = range(rounds) if isinstance(config, IndependentMechanism) else (0, *getattr(config, "restarts", ()))
    return AdaptiveRule(
        start=config.clip_norm,
        quantile=adaptive.target_quantile,
        learning_rate=adaptive.learning_rate,
        bit_noise_std=adaptive.bit_noise_std,
        report_goal=config.report_goal,
        anew_T=np.isin(np.arange(rounds), list(restarts)),
    )


def _round(run: TrainingRun, number: int, noise_P: np.ndarray, rule: Rule, threads: int) -> KeptRound:
    kept = kept_rounds.load(run.folder, number)
    return KeptRound(
        number=number,
        model_P=kept.model_P,
        released_P=kept.released_P,
        updates=_updates(run, number, kept.model_P, threads),
        planted_P=combined(run.directions, run.trace.joined_TN[number] & run.directions.included_N, rule),
        noise_P=noise_P,
    )


def _updates(run: TrainingRun, number: int, model_P: np.ndarray, threads: int) -> Iterator[tuple[np.ndarray, float]]:
    """Yield update and weight of each device of a round, from the saved model and the device's own text."""
    config, cohort = run.rule.config, run.recorded.get(number, np.empty(0, dtype=np.int32))
    model = copy.deepcopy(run.start)
    server.load_weights(model, model_P.astype(np.float64))
    rows = cohort_rows(run.text(cohort), np.arange(len(cohort)), run.local, round_offset(run.rule.seed, number))
    for device, update_P in updates(model, rows, run.local, int((run.folder / CHUNK).read_text("ascii")), threads):
        yield update_P, _weight(device, config)


def _weight(rows: DeviceRows, config: MechanismConfig) -> float:
    words = config.weight_words if isinstance(config, IndependentMechanism) else None
    return 1.0 if words is None else min(rows.words / words, 1.0)
