"""Draft of a launch file from a few answers, with the mechanism that the planner finds for the population."""

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from discovery import filters
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.mechanism import MOST_DEVICES, MechanismConfig
from federated.config.planning import SPARE_FRACTION, PlanningConfig
from federated.config.population import Splits
from federated.config.training import ServerConfig
from federated.planning import law
from federated.planning.feasibility import Plan, plan
from federated.planning.search import block_at, terms_of
from pipeline.launch.config import LaunchConfig, load_launch, problems
from pipeline.preflight.readiness import planned as worst_case
from pipeline.preflight.shortfalls import too_few
from pipeline.releases.policy import above_policy
from pipeline.releases.release import Outlook
from pipeline.releases.total import total
from pipeline.releases.uses import planned
from pretrain.config import C4_REVISION
from pretrain.files import write_text
from pretrain.reading import rows
from pretrain.reading.paths import require_folder, shown

SYNTHETIC = "synthetic"
_DELTA = 1e-6


@dataclass(frozen=True)
class Size:
    """Size of a launch that a population can carry.

    Attributes:
      rounds, joins: rounds of training, and the most that one device may join.
    """

    rounds: int
    joins: int
    words: int
    model: dict[str, object]
    steps: int
    tokens: int


_SIZES = (
    (0, Size(64, 4, 4_000, {"embedding_dim": 64, "hidden_dim": 256, "tied": True}, 5_000, 2_000_000)),
    (20_000, Size(200, 4, 8_000, {"embedding_dim": 64, "hidden_dim": 256, "tied": True}, 20_000, 20_000_000)),
    (500_000, Size(2_000, 6, 20_000, {"embedding_dim": 96, "hidden_dim": 670, "tied": False}, 200_000, 500_000_000)),
)
_MOST_GOAL = 6_500
_FEWEST = 60


@dataclass(frozen=True)
class Answers:
    """Answers that determine a draft of a launch file.

    Attributes:
      data, public: paths or globs of private and of public text, or the name of a source.
      rho, budget: largest loss of one device to this launch, and to all launches.
      days: length of the window in which the budget holds; None: no window.
    """

    name: str
    locale: str
    data: str
    public: str
    population: int
    rho: float
    budget: float
    days: int | None


@dataclass(frozen=True)
class Draft:
    """A drafted launch file, with its worst-case loss.

    Attributes:
      reasons: why its population is too small for it; empty if it suffices.
      next: commands from here to a launch.
    """

    file: Path
    feasible: bool
    reasons: tuple[str, ...]
    rho: float
    epsilon: float
    delta: float
    total_epsilon: float
    next: tuple[str, ...]
    mechanism: MechanismConfig = field(metadata={"json": False})


def require_new(file: Path) -> None:
    """ValueError unless a launch file of that name can be created; an existing file is never overwritten."""
    require_folder(file.parent, "FILE", "make that folder first")
    if file.exists():
        raise ValueError(f"FILE: {shown(file)} exists, and is not overwritten; give another name, or move it away")
    if file.suffix not in (".yaml", ".yml") or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", file.stem):
        raise ValueError(f"FILE: {shown(file)} is no name of a launch file; write one as in en-US.yaml")


def draft(file: Path, answers: Answers) -> Draft:
    """Write the launch file.

    Raises:
      ValueError: an answer is invalid for a launch file, named by its option; then no file is written.
    """
    require_new(file)
    _require(answers)
    content = _with_total(launch_file(answers), answers)
    config = _valid(content)
    found, delta = _planned(config, answers), config.mechanism.delta
    write_text(file, _text(content, answers))
    load_launch(file)
    return Draft(
        file=file,
        feasible=found.feasible,
        reasons=found.reasons,
        rho=found.guarantee.rho,
        epsilon=found.guarantee.epsilon[delta],
        delta=delta,
        total_epsilon=config.policy.max_total_epsilon,
        next=_next(file, answers, config),
        mechanism=config.mechanism,
    )


def _require(answers: Answers) -> None:
    """ValueError for an answer that no launch file could hold, by the name of its option."""
    if not _FEWEST <= answers.population <= MOST_DEVICES:
        raise ValueError(
            f"--population: got {answers.population:,}; give {_FEWEST} to {MOST_DEVICES:,}: fewer devices cannot "
            "fill a round or give a comparison"
        )
    if answers.data != SYNTHETIC:
        rows.matching([answers.data], "--data")
    for name, value in (("rho", answers.rho), ("budget", answers.budget)):
        if not (math.isfinite(value) and 1e-4 <= value <= 1e4):
            raise ValueError(f"--{name}: got {value:g}; give a number from 0.0001 to 10,000, as in 0.5")
    if answers.budget < answers.rho:
        raise ValueError(
            f"--budget: {answers.budget:g} is less than one launch may lose, --rho {answers.rho:g}; raise it"
        )
    if answers.days is not None and answers.days < 1:
        raise ValueError(f"--days: got {answers.days}; give a number of days from 1 on, or leave it out")
    if answers.public == "sample" and not answers.locale.startswith("en"):
        raise ValueError(f"--public: sample is English, not {answers.locale}; give c4, or files of yours")


def launch_file(answers: Answers) -> dict[str, Any]:
    """Return the launch file as values, with the planner's mechanism for this population and rho."""
    size = next(size for least, size in reversed(_SIZES) if answers.population >= least)
    made_up, small = answers.data == SYNTHETIC, answers.population < _SIZES[1][0]
    share = 0.2 if small else 0.1
    words = {"max_words_per_device": 400 if small else 20_000, "test_fraction": share}
    private = {"source": SYNTHETIC, "name": f"synthetic-{answers.name}", "devices": min(answers.population, 10_000_000)}
    if not made_up:
        private = {"source": "files", "name": answers.name, "paths": [answers.data]}
    # ``_with_total`` derives the ceilings on total epsilon.
    bound: dict[str, Any] = {"max_total_epsilon": 1.0}
    if answers.days is not None:
        bound |= {"budget": {"rho": answers.budget, "epsilon": 1.0, "days": answers.days}}
    else:
        bound |= {"population_max_rho": answers.budget, "population_max_epsilon": 1.0}
    mechanism, launches = _mechanism(answers, Splits(share), size), math.floor(answers.budget / answers.rho)
    # Shuffling hides a device among the number that the file states; few devices hide no one.
    planning: dict[str, float] = {"population_estimate": answers.population, "max_report_goal": mechanism.report_goal}
    planning |= {"round_minutes": 10.0, "target_rho": answers.rho}
    return {
        "name": answers.name,
        "locale": answers.locale,
        "features": ["NWP"],
        "seed": 20261123,
        "public_text": _public(answers, size),
        "private_text": private | words,
        "vocabulary": {
            "base_size": size.words,
            "max_new_words": 200 if small else 2_000,
            # People abbreviate words to one letter (*u*).
            "filters": [name for name in filters.NAMES if name != "one-letter"],
        },
        "model": size.model,
        "pretrain": {
            "steps": size.steps,
            "batch_sentences": 128,
            "sequence_words": 20,
            "learning_rate": 0.003,
            "evaluate_every_steps": size.steps // 5,
        },
        "discovery": {
            "kind": "ldp-triehh",
            "epsilon0": 8.0 if small else 6.0,
            "delta": _DELTA / 2,
            # Among few devices shuffling does not help, so each message costs epsilon0.
            "messages_per_device": 1 if small else 5,
            "honest_share": 0.5,
            "layers": 8 if small else 15,
            "max_prefixes": 100 if small else 10_000,
            "false_discovery_rate": 0.05,
        },
        "adapt": {"steps": size.steps // 50, "batch_sentences": 64, "learning_rate": 0.001},
        "mechanism": {"kind": mechanism.kind} | mechanism.model_dump(mode="json", exclude_defaults=True),
        **({} if small else {"planning": planning}),
        "local_training": {"learning_rate": 0.5, "batch_sentences": 8, "sequence_words": 20, "max_words": 200},
        "server": {"learning_rate": _server_rate(mechanism)},
        "audit": {
            "users": [1, 4],
            "examples": [1, 14, 200],
            "repeats": 1,
            "populations": ["compliant", "stress"],
            "in_launch": ["compliant"],
            "directions": 500,
        },
        "ab_test": {"buckets": max(2, min(20, int(answers.population * share) // 2))},
        "policy": {
            "max_rho": answers.rho,
            "population_delta": 10 * _DELTA,
            **bound,
            "max_discovery_epsilon0": 8.0,
            "population_max_discovery_epsilon": 8.0 * launches,
            "min_canary_rank": 1_000,
            "min_top1_gain": 0.0,
            "max_top3_loss": 0.0,
            "min_variety": 0.5,
            "min_ngram_gain": 0.0,
        },
        "report": {"contact": "who answers for this launch", "intended_use": "Suggests the next word as people type."},
    }


def _with_total(content: dict[str, Any], answers: Answers) -> dict[str, Any]:
    """Add ceilings on total epsilon to the launch file: the total of its rho and its words, rounded up."""
    config = _valid(content)
    spends = planned(config, Outlook(answers.rho, config.private_text.splits.training(answers.population)))
    words, launches, policy = spends["discover"], math.floor(answers.budget / answers.rho), content["policy"].copy()
    policy["population_delta"] = max(policy["population_delta"], 2 * launches * _DELTA)
    left, one = policy["population_delta"] - launches * words.device_delta, math.ceil(total(config, spends).epsilon)
    every = float(max(one, math.ceil(launches * words.device_epsilon + epsilon_of_rho(answers.budget, left))))
    policy["max_total_epsilon"] = float(one)
    within = "budget" in policy
    policy |= {"budget": policy["budget"] | {"epsilon": every}} if within else {"population_max_epsilon": every}
    return content | {"policy": policy}


def _public(answers: Answers, size: Size) -> dict[str, Any]:
    most = {"max_tokens": size.tokens, "max_validation_tokens": max(30_000, size.tokens // 500)}
    if answers.public == "sample":
        return {"source": "sample", "max_tokens": min(size.tokens, 2_000_000), "max_validation_tokens": 30_000}
    if answers.public == "c4":
        return {"source": "c4", "subset": answers.locale.partition("-")[0], "revision": C4_REVISION, **most}
    return {"source": "files", "train": [answers.public], **most}


def _mechanism(answers: Answers, splits: Splits, size: Size) -> MechanismConfig:
    """Return the planner's mechanism with the least noise in the model at this rho."""
    rho, population = answers.rho, answers.population
    usable = int(round(splits.training(population) * (1 - SPARE_FRACTION), 6))
    goal = max(2, min(_MOST_GOAL, size.joins * usable // size.rounds))
    planning = PlanningConfig(population_estimate=population, max_report_goal=goal, round_minutes=10.0, target_rho=rho)
    begins = {"kind": "tree", "noise_multiplier": 1.0, "clip_norm": 0.3, "rounds": size.rounds, "report_goal": goal}
    begins |= {"min_sep": 1, "max_participations": size.joins, "delta": _DELTA, "randomness": "secure"}
    start: MechanismConfig = TypeAdapter(MechanismConfig).validate_python(begins)
    terms = terms_of(planning, splits, ServerConfig(learning_rate=1.0))
    return block_at(start, terms, rho, thorough=False)


def _server_rate(mechanism: MechanismConfig) -> float:
    """The rate whose step noise the network bears, to two digits."""
    return float(f"{law.server_rate(mechanism, ServerConfig(learning_rate=1.0)):.2g}")


def _valid(content: dict[str, Any]) -> LaunchConfig:
    try:
        return LaunchConfig.model_validate(content)
    except ValidationError as error:
        raise ValueError("\n".join(problems(error))) from error


def _planned(config: LaunchConfig, answers: Answers) -> Plan:
    """Return the file's worst-case loss, and whether its population suffices, as 'tacit plan' does."""
    splits = config.private_text.splits.expected(answers.population)
    found = plan(config.mechanism, train := splits["train"])
    above = above_policy(config, worst_case(config, train), train)
    reasons = (*found.reasons, *above, *too_few(config, splits))
    return replace(found, feasible=not reasons, reasons=reasons)


def _text(content: dict[str, Any], answers: Answers) -> str:
    whose = "made-up typists" if answers.data == SYNTHETIC else answers.data
    head = [
        f"# Made by tacit init for about {answers.population:,} devices of {answers.locale}; private text: {whose}.",
        "# 'tacit explain FIELD' explains a line, 'tacit plan' shows the launch's cost. The server rate is one",
        f"# whose noise the network bears (step noise {law.STEP_NOISE:g}); another rho, cohort or clip wants another.",
        "",
    ]
    lines = {name: value for name, value in content.items() if not isinstance(value, dict)}
    blocks = [lines, *({name: value} for name, value in content.items() if name not in lines)]
    return "\n".join([*head, *(yaml.safe_dump(block, sort_keys=False, allow_unicode=True) for block in blocks)])


def _next(file: Path, answers: Answers, config: LaunchConfig) -> tuple[str, ...]:
    """Commands from here to a launch."""
    window, policy = f" --window-days {answers.days}" if answers.days else "", config.policy
    epsilon = policy.budget.epsilon if policy.budget else policy.population_max_epsilon
    register = (
        f"tacit ledger register {answers.name} --max-rho {answers.budget:g} --max-epsilon {epsilon:g} "
        f"--delta {policy.population_delta:g}{window}"
    )
    first = [] if answers.data == SYNTHETIC else [f"{register}  (once: its budget)"]
    return ("tacit ledger init  (once)", *first, f"tacit check {file}", f"tacit launch {file}")
