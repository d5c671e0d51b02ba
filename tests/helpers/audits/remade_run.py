"""The audit of a small run's release: chosen rounds made again, bits and clip norms."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from evaluation.audit import strategies, whitening
from evaluation.audit.directions import Directions
from evaluation.audit.keyed_noise import subkey
from evaluation.audit.noise import Trace
from evaluation.audit.released.replay import Models, Seen
from evaluation.audit.released.training import AdaptiveRule, KeptRound, Recorded, Rule, chosen, combined, training_audit
from evaluation.audit.verdict import Verdict
from federated import mechanisms
from federated.config.mechanism import MechanismConfig, secagg_neighbours
from federated.local_training.rows import round_rows
from federated.local_training.updates import updates
from federated.mechanisms.tree import Tree
from federated.participation.records import load_records
from federated.rounds import kept_rounds, server, witness
from federated.rounds.rule import RoundRule
from federated.rounds.state import RECORDS
from federated.train import FineTuneResult
from pretrain.model import KeyboardLM
from tests.helpers.launches.small_run import Launch, run
from pretrain.vocabulary import TokenStream


def audited(
    launch: Launch,
    folder: Path,
    model: Callable[[], KeyboardLM],
    train=run,
    count: int = 16,
    text: TokenStream | None = None,
    key: bytes | None = None,
) -> tuple[Verdict, ...]:
    start = model()
    directions = Directions(tuple(part.numel() for part in start.parameters()), count, launch.seed)
    final_P, done = train(launch, folder, probe=directions, model=model())
    rule = RoundRule(launch.mechanism, launch.seed, key or launch.key)
    start_P = server.flat_weights(start)
    places_K = witness.followed(len(start_P))
    models = Models(directions.project(start_P), start_P[places_K], directions.project(final_P), final_P[places_K])
    seen = Seen(**vars(done.probe.witness))
    devices = launch.devices if text is None else text
    config, rounds = launch.mechanism, done.rounds
    encoding = rule.encoding(len(start_P), len(devices))
    adaptive = config.adaptive_clipping
    clipping = None
    strategy = strategy_of(rule.mechanism, rounds)
    bit_noise_T = np.zeros(rounds)
    if adaptive is not None:
        anew_T = np.array([mechanisms.begins_anew(rule.mechanism, number) for number in range(rounds)])
        clipping = AdaptiveRule(
            config.clip_norm,
            adaptive.target_quantile,
            adaptive.learning_rate,
            adaptive.bit_noise_std,
            config.report_goal,
            anew_T,
        )
        bit_noise_T = strategies.drawn_numbers(strategy, adaptive.bit_noise_std, subkey(rule.key, "clip bits"))
    audit_rule = Rule(
        rule.privatizer.noise_multiplier,
        directions.layers if config.clipping == "per-layer" else None,
        rule.denominator if rule.sensitivity == 2 else None,
        0.0 if encoding is None else encoding.rounding_std,
        clipping,
    )
    numbers = chosen(final_P, kept_rounds.numbers(rounds))
    noise = strategies.drawn(strategy, rule.privatizer.noise_multiplier, rule.key, directions, numbers)
    cohorts = dict(load_records(folder / RECORDS, rounds).cohorts)

    def made() -> Iterator[KeptRound]:
        for number in numbers:
            kept = kept_rounds.load(folder, number)
            server.load_weights(start, kept.model_P.astype(np.float64))
            rows = round_rows(devices, cohorts.get(number, np.empty(0, np.int32)), launch.device, launch.seed, number)
            if config.secagg and len(rows) <= secagg_neighbours(config.report_goal):
                rows = []
            weight = rule.clip(rule.privatizer.init(1)).weight
            yield KeptRound(
                number,
                kept.model_P,
                kept.released_P,
                ((update_P, weight(one)) for one, update_P in updates(start, rows, launch.device, 3)),
                combined(directions, done.probe.joined_TN[number] & directions.included_N, audit_rule),
                noise.whole[number],
            )

    return training_audit(made(), Recorded(seen, models, directions, places_K), audit_rule, bit_noise_T)


def strategy_of(mechanism, rounds):
    if isinstance(mechanism, Tree):
        return strategies.of_tree(rounds, mechanism.restarts)
    whitener_TT = mechanisms.whitener(mechanism, rounds, whitening.of_tree, whitening.of_coefficients)
    return strategies.of_matrix(whitener_TT, type(mechanism).__name__.lower())
