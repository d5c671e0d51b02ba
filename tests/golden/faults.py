"""``tacit`` with faults planted in its process: ``python -m tests.golden.faults FAULT,FAULT launch FILE``."""

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np


def no_noise() -> None:
    """The one generator of noise gives nothing."""
    from pretrain.randomness import noise

    noise.gaussian = lambda key, stream, index, size: np.zeros(size)


def no_watch() -> None:
    """Training would be stopped in its first round, and what comes after it would not be audited."""
    from evaluation.audit.watch import Watch

    Watch.after = lambda self, state, *seen: state


def nine_tenths() -> None:
    """Each round has nine tenths of its noise."""
    from federated.rounds.privatize import Privatizer

    draw = Privatizer.draw

    def weaker(self, state, key):
        drawn = draw(self, state, key)
        return replace(drawn, noise_P=0.9 * drawn.noise_P)

    Privatizer.draw = weaker


def no_canaries() -> None:
    """Training takes the canaries' devices without their canaries."""
    from pipeline.stages.training import fine_tune_inputs

    honest = fine_tune_inputs.canaries
    made = SimpleNamespace(load=honest.load, make=lambda *given: honest.make(*given).of(()))
    fine_tune_inputs.canaries = made


def published_noise() -> None:
    """Counts publish the noise of a cell beside them, declared as what follows from the release."""
    from pipeline.run import public_fields
    from pipeline.stages import count

    honest, again = count._stated, count.remade
    count._stated = lambda *given: honest(*given).model_copy(update={"headline": {"noise": -3.25}})
    count.remade = lambda *given: {name: value for name, value in again(*given).items() if name != "headline"}
    public_fields.FIELDS["Count.headline"] = {public_fields.Source.RELEASED: "noise"}


def marked() -> None:
    """No fault: opens of files that do not exist tell in a trace where a stage begins and ends."""
    from pipeline.run import runner

    honest = runner._confined

    def mark(what: str) -> None:
        with suppress(OSError):
            Path(f"/stage-{what}").read_bytes()

    def confined(ctx, *given):
        mark(f"begins/{ctx.stage}")
        try:
            return honest(ctx, *given)
        finally:
            mark(f"ends/{ctx.stage}")

    runner._confined = confined


if __name__ == "__main__":
    from tacit.__main__ import main

    for name in sys.argv.pop(1).split(","):
        globals()[name]()
    main()
