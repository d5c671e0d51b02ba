"""Stage ``fine_tune``: DP-FTRL, and its guarantee from what happened."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel

from evaluation.audit import canaries
from federated.accounting import amplification
from federated.accounting import guarantees as accounting
from federated.participation.observed import Observed
from pipeline.stage import StageContext, StageResult
from pipeline.stages import audit_trace, fine_tune_workers, spends
from pretrain import export

# More would drown MLflow: long runs have thousands of different separations.
_MOST_BARS = 24


class Amplified(BaseModel):
    """What secret sampling adds to the guarantee of independent noise; counts in no ledger and no gate."""

    sampling: Literal["poisson", "fixed"]
    sampling_rate: float
    epsilon: float
    epsilon_second: float | None
    methods: list[str]
    adjacency: str
    assumption: str


class FineTune(StageResult):
    """Training and its guarantee, from the participation records of protected devices."""

    rounds: int
    precision: Literal["float32"] = "float32"
    report_goal: int
    sensitivity_squared: float
    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float
    accountants_agree: bool
    accounting_methods: list[str]
    norm_inflation: float
    secagg: dict[str, int | float | None] | None
    amplified: Amplified | None
    observed_min_sep: int | None
    observed_mins: int | None
    observed_max_participations: int
    violations: int
    participation_histogram: dict[str, int]
    separation_histogram: dict[str, int]
    synthetic_devices: int
    rounds_below_goal: int | None
    mean_devices: int | None
    check_ins: int | None
    fewest_check_ins: int | None
    synthetic_participations: list[int]
    validation_recall_before: float
    validation_recall_after: float


def fine_tune(ctx: StageContext) -> FineTune:
    """DP-FTRL on train devices and synthetic canary devices; accounted from what happened."""
    config = ctx.config
    planned = ctx.run.result("plan")
    if not planned["feasible"]:
        raise ValueError(f"mechanism: this plan cannot be carried out: {'; '.join(planned['reasons'])}")
    trained = fine_tune_workers.train_together(ctx)
    done, mechanism = trained.done, trained.mechanism
    canaries.save(trained.planted, ctx.public / "canaries.json")
    audit_trace.save(done, trained.probe, ctx.private / audit_trace.FILE)
    export.save_model(trained.model, ctx.public / "model.safetensors")
    reached = accounting.from_records(config.mechanism, done.observed, (), mechanism, done.encoding)
    delta = config.mechanism.delta
    return FineTune(
        rounds=done.rounds,
        report_goal=config.mechanism.report_goal,
        sensitivity_squared=reached.sensitivity_squared,
        rho=reached.rho,
        mu=reached.mu,
        delta=delta,
        epsilon=reached.epsilon[delta],
        epsilon_pld=reached.epsilon_pld[delta],
        accountants_agree=reached.agree,
        accounting_methods=reached.methods,
        norm_inflation=reached.norm_inflation,
        secagg=None if done.encoding is None else asdict(done.encoding),
        amplified=_amplified(reached.amplified, delta),
        **told(done.observed),
        synthetic_participations=done.synthetic_participations,
        validation_recall_before=done.curve[0].validation_recall,
        validation_recall_after=done.curve[-1].validation_recall,
        curve=[{"step": point.round, **point.model_dump(exclude={"round"})} for point in done.curve],
        spend=spends.training(reached, delta, f"{config.mechanism.kind}, from participation records"),
        headline={"rho": reached.rho, "epsilon": reached.epsilon[delta], "delta": delta},
    )


def told(observed: Observed) -> dict:
    """Fields of ``FineTune``; ``metrics`` holds both histograms for MLflow, in at most 24 bars each."""
    turnout = observed.turnout
    joined, apart = _tens(observed.participation_histogram), _tens(observed.separation_histogram)
    return {
        "observed_min_sep": observed.min_sep,
        "observed_mins": observed.mins,
        "observed_max_participations": observed.max_participations,
        "violations": observed.violations,
        "participation_histogram": joined,
        "separation_histogram": apart,
        "synthetic_devices": observed.synthetic_devices,
        "rounds_below_goal": None if turnout is None else turnout.rounds_below_goal,
        "mean_devices": None if turnout is None else _ten(turnout.mean_devices),
        "check_ins": None if turnout is None else _ten(turnout.check_ins),
        "fewest_check_ins": None if turnout is None else _ten(turnout.fewest_check_ins),
        "metrics": {
            **{f"devices that joined/{name}": count for name, count in bars(joined).items()},
            **{f"participations apart by/{name}": count for name, count in bars(apart).items()},
        },
    }


def bars(histogram: Mapping[str, int]) -> dict[str, int]:
    """The histogram with neighbours put together where it has more than 24 keys; a bar is named ``first-last``."""
    keys = sorted(map(int, histogram))
    if len(keys) <= _MOST_BARS:
        return {str(key): histogram[str(key)] for key in keys}
    width = -(-(keys[-1] - keys[0] + 1) // _MOST_BARS)
    found: dict[str, int] = {}
    for key in keys:
        first = keys[0] + (key - keys[0]) // width * width
        name = f"{first}-{min(first + width - 1, keys[-1])}"
        found[name] = found.get(name, 0) + histogram[str(key)]
    return found


def _amplified(sampled: amplification.Amplified | None, delta: float) -> Amplified | None:
    if sampled is None:
        return None
    return Amplified(
        sampling=sampled.sampling,
        sampling_rate=sampled.sampling_rate,
        epsilon=sampled.epsilon[delta],
        epsilon_second=None if sampled.epsilon_second is None else sampled.epsilon_second[delta],
        methods=sampled.methods,
        adjacency=sampled.adjacency,
        assumption=sampled.assumption,
    )


def _tens(histogram: Mapping[int, int]) -> dict[str, int]:
    return {str(key): _ten(count) for key, count in histogram.items()}


def _ten(count: float) -> int:
    return int(count // 10) * 10
