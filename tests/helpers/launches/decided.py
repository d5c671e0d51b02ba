"""A launch that has come as far as its decision, by stages that only say so."""

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.publication.gates.decide import Evidence, decide
from pipeline.run import runner
from pipeline.run.stage import Stage, StageContext, Stages, of_launch
from pipeline.stages.graph import STAGES
from pretrain.files import write_text
from reports.disclosure.document import DecisionBlock
from reports.disclosure.releases import DiscoveryGuarantee
from tests.helpers.launches.pipeline_launch import Counted, launch_config, spend, stand_in
from tests.helpers.launches.stages import stages_of
from tests.helpers.reports.reports_example import LOCAL_WORDS

RHO, EPSILON, LOSS = 0.25, 3.5, "epsilon 3.50 at delta 1e-06, rho 0.2500"


@stand_in
class Trained(Counted):
    rho: float = RHO
    mu: float = (2 * RHO) ** 0.5
    epsilon: float = EPSILON
    epsilon_pld: float = EPSILON
    delta: float = 1e-6


@stand_in
class Discovered(Counted, DiscoveryGuarantee):
    """Words found locally, by what the example of a disclosure states of them."""

    @staticmethod
    def example() -> "Discovered":
        stated = {name: value for name, value in LOCAL_WORDS.items() if name != "name"}
        return Discovered(value=1, **stated | {"delta": 5e-7})


@stand_in
class Compared(Counted):
    top1_gain: float = 0.029
    top1_gain_low: float = 0.026
    top1_gain_high: float = 0.033


class Decided(Counted, DecisionBlock):
    """As ``decide`` makes it."""


@stand_in
class Reported(Counted):
    disclosure_sha256: str = "d" * 64


@stand_in
class Unpublished(Counted):
    published: bool = False


def stages(decision: str) -> Stages:
    """All of a launch but its numbers; a hold is that of a launch that nobody has any evidence for."""

    def counted(ctx: StageContext) -> Counted:
        write_text(ctx.public / "made.txt", ctx.stage)
        return Counted(value=1)

    def decided(ctx: StageContext) -> Decided:
        block = decide(Evidence(launched_for=ctx.config.features), ctx.config.policy)
        gates = tuple(gate.model_copy(update={"passed": True}) for gate in block.gates)
        passed = DecisionBlock(decision="launch", gates=gates, reasons=("all passed",))
        stated = {"guarantee": f"{EPSILON:.2f}", "loss": LOSS}
        headline = {"rho": RHO, "epsilon": EPSILON, "delta": 1e-6, **stated}
        return Decided(value=1, **dict(passed if decision == "launch" else block), headline=headline)

    special = {
        "discover": lambda ctx: Discovered.example(),
        "fine_tune": lambda ctx: Trained(value=1, spend=spend(RHO)),
        "ab_test": lambda ctx: Compared(value=1),
        "decide": decided,
        "report": lambda ctx: Reported(value=1),
        "publish": lambda ctx: Unpublished(value=1),
    }
    trained = Stage("fine_tune", "", needs=("plan",), planned=lambda config, run: spend(0.4))
    return stages_of({name: special.get(name, counted) for name in of_launch(launch_config(), STAGES)}, trained)


def decided_launch(
    here: Settings, decision: str = "launch", until: str = "report", date: str | None = None, **changes: object
) -> tuple[LaunchConfig, str]:
    """Configuration and id of a launch that was run up to a stage."""
    config, made = launch_config(**changes), stages(decision)
    run_id = launch_id(config, date)
    names = of_launch(config, made)
    for name in names[: names.index(until) + 1]:
        runner.run_stage(name, config, run_id, here, made)
    return config, run_id
