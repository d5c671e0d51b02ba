"""One search of jax-privacy 2.0.0 on one core, in its own environment: JSON in, JSON out.

python run_jax_privacy.py '{"kind": "blt", "rounds": 2052, "min_sep": 342, "max_participations": 6, "size": 2}'
"""

import json
import os
import sys
import time

# Before the imports, so that every thread pool sees one core.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np  # noqa: E402
from jax_privacy.matrix_factorization import banded, buffered_toeplitz, toeplitz  # noqa: E402


def main() -> None:
    """Print the strategy found, and CPU seconds of the process after its first step and after its search."""
    case = json.loads(sys.argv[1])
    rounds, size = case["rounds"], case["size"]
    steps: list[tuple[float, float]] = []

    def note(step: object) -> None:
        steps.append((time.process_time(), float(step.loss)))

    if case["kind"] == "blt":
        limits = {"min_sep": case["min_sep"], "max_participations": case["max_participations"]}
        loss = buffered_toeplitz.LossFn.build_min_sep(n=rounds, error="max", **limits)
        found, _ = buffered_toeplitz.optimize_loss(loss, num_buffers=size, callback=note)
        strategy = {"theta": found.buf_decay.tolist(), "omega": found.output_scale.tolist()}
    elif case["kind"] == "toeplitz":
        strategy = {"coefficients": np.asarray(toeplitz.optimize_banded_toeplitz(rounds, size)).tolist()}
    else:
        made = banded.optimize(rounds, bands=size, callback=note)
        strategy = {"matrix": np.asarray(made.materialize(), np.float64).tolist()}
    ended = time.process_time()
    # The loss is logged before the step that it leads to, so the first entry is also the compilation's end.
    near = [cpu for cpu, value in steps if value <= steps[-1][1] + 1e-6 * abs(steps[-1][1])]
    answer = {"ended": ended, "first_step": steps[0][0] if steps else None, "near": near[0] if near else None}
    print(json.dumps(answer | {"steps": len(steps)} | strategy))


if __name__ == "__main__":
    main()
