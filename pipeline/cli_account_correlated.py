"""``tacit account tree``, ``blt`` and ``banded``: noise that later rounds cancel."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.cli.account_answer import as_content, as_text
from pipeline.cli.account_options import (
    Delta,
    Limits,
    MaxParticipations,
    MechanismFile,
    Mins,
    MinSep,
    NoiseMultiplier,
    OfRun,
    Restarts,
    Rounds,
    alone,
    from_file,
    limits,
    multiplier,
    numbers,
    of_limits,
    of_run,
    restart_rounds,
)
from pipeline.cli.support import AsJson, answer, command

if TYPE_CHECKING:
    from federated.mechanisms import Banded


@command
def tree(
    rounds: Rounds = None,
    noise_multiplier: NoiseMultiplier = None,
    min_sep: MinSep = None,
    mins: Mins = None,
    max_participations: MaxParticipations = None,
    restarts: Restarts = "",
    mechanism: MechanismFile = None,
    delta: Delta = None,
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """Tree aggregation with Honaker's estimate, by device under zero-out adjacency.

    Example: tacit account tree --noise-multiplier 7 --rounds 1000 --min-sep 300 --max-participations 4 --delta 1e-10
    """
    strategy = {"noise-multiplier": noise_multiplier, "restarts": restarts}
    if run is not None:
        alone("run", strategy | _shape(rounds, min_sep, mins, max_participations) | {"mechanism": mechanism})
        reached = of_run(run, "tree", delta)
    else:
        from federated.mechanisms import Tree

        within = limits(rounds, min_sep, mins, max_participations)
        if mechanism is not None:
            alone("mechanism", strategy)
            reached = of_limits(within, delta, lambda: from_file(mechanism, "tree"))
        else:
            z, starts = multiplier(noise_multiplier), restart_rounds(restarts, within.rounds)
            reached = of_limits(within, delta, lambda: Tree(z, starts))
    answer(as_content(reached), as_json, as_text(reached))


@command
def blt(
    rounds: Rounds = None,
    noise_multiplier: NoiseMultiplier = None,
    min_sep: MinSep = None,
    mins: Mins = None,
    max_participations: MaxParticipations = None,
    preset: Annotated[str | None, typer.Option(help="min-sep-100, min-sep-400 or min-sep-1000")] = None,
    theta: Annotated[str, typer.Option(help="buffer decays: 0.99,0.5")] = "",
    omega: Annotated[str, typer.Option(help="output scales: 0.1,0.2")] = "",
    restarts: Restarts = "",
    mechanism: MechanismFile = None,
    delta: Delta = None,
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """A buffered linear Toeplitz mechanism (McMahan et al. 2024), by device under zero-out adjacency.

    Example: tacit account blt --preset min-sep-400 --noise-multiplier 7.379 --rounds 1280 --mins 300
    --max-participations 4 --delta 1e-10
    """
    strategy = {"preset": preset, "theta": theta, "omega": omega, "restarts": restarts}
    strategy["noise-multiplier"] = noise_multiplier
    if run is not None:
        alone("run", strategy | _shape(rounds, min_sep, mins, max_participations) | {"mechanism": mechanism})
        reached = of_run(run, "blt", delta)
    else:
        from federated.mechanisms import Blt

        within = limits(rounds, min_sep, mins, max_participations)
        if mechanism is not None:
            alone("mechanism", strategy)
            reached = of_limits(within, delta, lambda: from_file(mechanism, "blt"))
        else:
            z, starts = multiplier(noise_multiplier), restart_rounds(restarts, within.rounds)
            decays, scales = _buffers(preset, theta, omega)
            reached = of_limits(within, delta, lambda: Blt(z, decays, scales, starts))
    answer(as_content(reached), as_json, as_text(reached))


@command
def banded(
    rounds: Rounds = None,
    noise_multiplier: NoiseMultiplier = None,
    min_sep: MinSep = None,
    mins: Mins = None,
    max_participations: MaxParticipations = None,
    bands: Annotated[int | None, typer.Option(help="rounds whose noise is remembered; at most min_sep")] = None,
    form: Annotated[
        Literal["matrix", "toeplitz"], typer.Option(help="BandMF, or one column for all rounds")
    ] = "matrix",
    mechanism: MechanismFile = None,
    delta: Delta = None,
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """A banded strategy of least error (Choquette-Choo et al. 2023), by device under zero-out adjacency.

    BandMF (matrix) needs no search here: whatever it finds has columns of norm 1 that do not overlap.

    Example: tacit account banded --bands 400 --noise-multiplier 4.523 --rounds 2000 --min-sep 400
    --max-participations 2 --delta 1e-10
    """
    strategy = {"noise-multiplier": noise_multiplier, "bands": bands}
    if run is not None:
        alone("run", strategy | _shape(rounds, min_sep, mins, max_participations) | {"mechanism": mechanism})
        reached = of_run(run, "banded", delta)
    else:
        within = limits(rounds, min_sep, mins, max_participations)
        if mechanism is not None:
            alone("mechanism", strategy)
            reached = of_limits(within, delta, lambda: from_file(mechanism, "banded"))
        else:
            z, width = multiplier(noise_multiplier), _bands(bands, within)
            reached = of_limits(within, delta, lambda: _banded(z, width, form, within))
    answer(as_content(reached), as_json, as_text(reached))


def _shape(
    rounds: int | None, min_sep: int | None, mins: int | None, max_participations: int | None
) -> dict[str, int | None]:
    return {"rounds": rounds, "min-sep": min_sep, "mins": mins, "max-participations": max_participations}


def _buffers(preset: str | None, theta: str, omega: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Decays and scales, from a preset or as given."""
    from federated.mechanisms import PRESETS

    if (preset is None) == (not theta and not omega):
        raise ValueError("preset: give either --preset, or --theta and --omega")
    if preset is None:
        return numbers("theta", theta, float), numbers("omega", omega, float)
    if preset not in PRESETS:
        raise ValueError(f"preset: {preset!r} does not exist; choose one of {', '.join(PRESETS)}")
    return PRESETS[preset].theta, PRESETS[preset].omega


def _bands(bands: int | None, within: Limits) -> int:
    most = min(within.min_sep, within.rounds)
    if bands is None:
        raise ValueError(f"bands: missing; give --bands, at most {most}, or a file with --mechanism")
    if not 1 <= bands <= most:
        raise ValueError(
            f"bands: got {bands}; give 1 to {most}: with more than min_sep {within.min_sep} or the {within.rounds} "
            "rounds, two participations of a device would share noise"
        )
    return bands


def _banded(noise_multiplier: float, bands: int, form: str, within: Limits) -> "Banded":
    """The strategy of a launch, or for BandMF any with the same sensitivity: all have columns of norm 1."""
    import numpy as np

    from federated.mechanisms.banded import from_coefficients, from_matrix
    from federated.mechanisms.optimise_banded import fhu_coefficients, optimise_banded

    if form == "toeplitz":
        found = optimise_banded(within.rounds, within.min_sep, within.max_participations, bands, form)
        return replace(found.strategy, noise_multiplier=noise_multiplier)
    dense_NN = from_coefficients(noise_multiplier, fhu_coefficients(bands), within.rounds).matrix()
    return from_matrix(noise_multiplier, dense_NN / np.linalg.norm(dense_NN, axis=0), bands)
