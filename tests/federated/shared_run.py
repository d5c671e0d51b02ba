"""Several small runs by this worker and the others; started through torch.distributed.run.

Arguments: directory for results, and ``wait`` to stop after round 5 until a file ``go`` is there.
"""

import os
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluation.audit.directions import Directions
from federated.local_training import low_bits
from federated.workers.worker import ALONE, Worker, joined
from pretrain.randomness.noise import seeded_key
from tests.helpers.audits.mechanism_kinds import KINDS, PARSER
from tests.helpers.launches.small_run import DEVICES, SYNTHETIC, Launch, run

SECURE = {"bits": 62}
# Sums, bits, weights, a secret sample, masks; and the run without anything.
LAUNCHES = {
    "plain": Launch(),
    **{kind: Launch(mechanism=PARSER.validate_python(KINDS[kind])) for kind in ("blt, adaptive", "clipped estimator")},
    "secagg": Launch(mechanism=PARSER.validate_python(KINDS["tree, secagg"] | {"secagg": SECURE})),
    # By the clock, too: every worker plays it by itself.
    "by the clock": Launch(mechanism=PARSER.validate_python(KINDS["blt, by the clock"])),
}


def outcome(name: str, directory: Path, process: Worker = ALONE, on_round=None) -> bytes:
    """All that a run tells, with the canaries of the noise audit in the plain one."""
    planted = Directions((386,), 8, seed=3) if name == "plain" else None
    weights_P, result = run(LAUNCHES[name], directory, on_round, process=process, probe=planted)
    seen = [] if result.probe is None else [result.probe.projections_TN, result.probe.joined_TN]
    return pickle.dumps((weights_P.tobytes(), result, [array.tobytes() for array in seen]))


def main(directory: Path, wait: bool) -> int:
    """Exit code 75 if a worker was lost."""

    def on_round(message: dict) -> None:
        while wait and message["round"] == 5 and not (directory / "go").exists():
            (directory / "waiting").touch()
            time.sleep(0.01)

    with joined(timeout_seconds=300, secret=seeded_key(9), attempt="tests|shared_run|1") as process:
        if wait:
            try:
                outcome("plain", directory / "run", process, on_round)
            except OSError as error:
                (directory / f"error-{process.rank}").write_text(str(error))
                os._exit(75)
            return 0
        try:
            run(replace(Launch(), seed=11 + process.rank), directory / "apart", process=process)
        except OSError as error:
            (directory / f"apart-{process.size}-{process.rank}").write_text(str(error))
        ours, low_bits.low_bits_of = low_bits.low_bits_of, lambda *_: f"{process.rank + 7:x}"
        try:
            run(Launch(), directory / "mixed", process=process)
        except ValueError as error:
            (directory / f"mixed-{process.size}-{process.rank}").write_text(str(error))
        low_bits.low_bits_of = ours
        for name in LAUNCHES:
            made = outcome(name, directory / f"{name}-{process.size}", process)
            if process.rank == 0:
                (directory / f"{name}-{process.size}.pickle").write_bytes(made)
        assert process.first(5 + process.rank) == 5
        assert np.array_equal(LAUNCHES["plain"].synthetic_D, np.arange(DEVICES) >= DEVICES - SYNTHETIC)
        return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "wait" in sys.argv[2:]))
