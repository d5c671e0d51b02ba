"""``tacit account independent``: fresh noise every round, and what secret sampling gains."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.cli.account_answer import as_content, as_text
from pipeline.cli.account_options import (
    Delta,
    Limits,
    MaxParticipations,
    MechanismFile,
    NoiseMultiplier,
    OfRun,
    Rounds,
    alone,
    from_file,
    multiplier,
    needed,
    of_limits,
    of_run,
)
from pipeline.cli.support import AsJson, answer, command

if TYPE_CHECKING:
    from federated.mechanisms import Independent


@command
def independent(
    rounds: Rounds = None,
    noise_multiplier: NoiseMultiplier = None,
    sampling: Annotated[
        Literal["poisson", "fixed"] | None, typer.Option(help="a coin per device, or rounds of exactly report-goal")
    ] = None,
    sampling_rate: Annotated[float | None, typer.Option(help="chance of a device to be in a round (poisson)")] = None,
    population: Annotated[int | None, typer.Option(help="devices sampled from, at least")] = None,
    report_goal: Annotated[int | None, typer.Option(help="devices of a round; with population, the rate")] = None,
    max_participations: MaxParticipations = None,
    mechanism: MechanismFile = None,
    delta: Delta = None,
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """DP-FedAvg with independent noise: what holds whoever knows the sample, and what a secret sample gains.

    Poisson sampling is accounted under zero-out adjacency. Rounds of a fixed size are accounted under
    replace-one adjacency, where one device changes a sum by twice the clip norm.

    Example: tacit account independent --sampling poisson --sampling-rate 0.00655 --noise-multiplier 1
    --rounds 5000 --delta 1e-9
    """
    strategy = {
        "noise-multiplier": noise_multiplier,
        "sampling": sampling,
        "sampling-rate": sampling_rate,
        "population": population,
        "report-goal": report_goal,
    }
    if run is not None:
        shape = {"rounds": rounds, "max-participations": max_participations, "mechanism": mechanism}
        alone("run", strategy | shape)
        reached = of_run(run, "independent", delta)
    else:
        within = _limits(rounds, max_participations)
        if mechanism is not None:
            alone("mechanism", strategy)
            reached = of_limits(within, delta, lambda: from_file(mechanism, "independent"))
        else:
            z, how = multiplier(noise_multiplier), needed("sampling", sampling)
            made = _mechanism(z, how, sampling_rate, population, report_goal)
            reached = of_limits(within, delta, lambda: made)
    answer(as_content(reached), as_json, as_text(reached))


def _limits(rounds: int | None, max_participations: int | None) -> Limits:
    """A device may be drawn in every round, unless told otherwise."""
    from federated.mechanisms.sensitivity import check_pattern

    total = needed("rounds", rounds)
    most = total if max_participations is None else max_participations
    check_pattern(total, 1, most)
    return Limits(total, 1, most)


def _mechanism(
    noise_multiplier: float, sampling: str, rate: float | None, population: int | None, report_goal: int | None
) -> "Independent":
    from federated.mechanisms import Independent

    if sampling == "fixed" and rate is not None:
        raise ValueError("sampling-rate: rounds of a fixed size need --population and --report-goal instead")
    if rate is not None:
        alone("sampling-rate", {"population": population, "report-goal": report_goal})
        if not 0 < rate <= 1:
            raise ValueError(f"sampling-rate: got {rate:g}; give a number above 0 and at most 1")
        # Poisson sampling is accounted by its rate alone; this is the smallest population with a device a round.
        return Independent(noise_multiplier, "poisson", rate, max(1, round(1 / rate)))
    devices, goal = needed("population", population), needed("report-goal", report_goal)
    if not 1 <= goal <= devices:
        raise ValueError(f"report-goal: got {goal}; give 1 to {devices}, the population")
    return Independent(noise_multiplier, sampling, goal / devices, devices)
