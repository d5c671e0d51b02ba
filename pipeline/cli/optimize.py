"""``tacit optimize``: find the best strategy matrix for a run."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.cli.support import AsJson, answer, command

if TYPE_CHECKING:
    from federated.mechanisms.optimise_banded import OptimisedBanded
    from federated.mechanisms.optimise_blt import OptimisedBlt

app = typer.Typer(
    no_args_is_help=True,
    help="Find the strategy of least loss for a run. Example: tacit optimize blt --rounds 2052 --min-sep 342 "
    "--max-participations 6 --num-buffers 3 --loss max",
)

Rounds = Annotated[int, typer.Option(help="rounds of training")]
MinSep = Annotated[int, typer.Option(help="least number of rounds between participations (MinS + 1)")]
MaxParticipations = Annotated[int, typer.Option(help="most rounds that one device may join (MaxP)")]


@app.command()
@command
def blt(
    rounds: Rounds,
    min_sep: MinSep,
    max_participations: MaxParticipations,
    num_buffers: Annotated[int, typer.Option(help="size of the noise state, in model copies")] = 3,
    loss: Annotated[
        Literal["max", "rms"], typer.Option(help="noise of the worst prefix sum, or root mean square over all")
    ] = "max",
    as_json: AsJson = False,
) -> None:
    """Optimise decays and scales of a buffered linear Toeplitz mechanism (McMahan et al. 2024), for a launch file.

    Example: tacit optimize blt --rounds 2052 --min-sep 342 --max-participations 6 --num-buffers 3 --loss max
    """
    from federated.mechanisms.optimise_blt import optimise_blt

    best = optimise_blt(rounds, min_sep, max_participations, num_buffers, loss)
    lines = [f"theta: {list(best.theta)}", f"omega: {list(best.omega)}"]
    answer(best, as_json, "\n".join([*lines, losses_text(best.max_loss, best.rms_loss, best)]))


@app.command()
@command
def banded(
    rounds: Rounds,
    min_sep: MinSep,
    max_participations: MaxParticipations,
    bands: Annotated[int | None, typer.Option(help="size of the noise state, in vectors; default: min_sep")] = None,
    kind: Annotated[
        Literal["matrix", "toeplitz"], typer.Option(help="BandMF, or one column for all rounds")
    ] = "matrix",
    as_json: AsJson = False,
) -> None:
    """Compute the loss of the best banded strategy (BandMF or BandToep), for comparison.

    Example: tacit optimize banded --rounds 200 --min-sep 50 --max-participations 4
    """
    from federated.mechanisms.optimise_banded import optimise_banded

    best = optimise_banded(rounds, min_sep, max_participations, min_sep if bands is None else bands, kind)
    content = {
        "max_loss": best.losses.max_loss,
        "rms_loss": best.losses.rms_loss,
        "sensitivity_squared": best.sensitivity_squared,
        "seconds": best.seconds,
    }
    answer(content, as_json, losses_text(best.losses.max_loss, best.losses.rms_loss, best))


def losses_text(max_loss: float, rms_loss: float, best: "OptimisedBlt | OptimisedBanded") -> str:
    """Format the losses of a strategy, its sensitivity and the CPU seconds of its search."""
    return (
        f"MaxLoss {max_loss:.4f}, RmsLoss {rms_loss:.4f}, sensitivity^2 {best.sensitivity_squared:.4f}, "
        f"{best.seconds:.2f} s of CPU"
    )
