"""What training leaves for the audits of its noise, the claim that it is held against, and its noise once more.

As a program this module draws a run's noise again, in a process that shares nothing with training but the key. Its
arguments: folder of all runs, launch id. Inner products with the directions go to standard output, which is a pipe.
"""

import io
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np

from evaluation.audit import whitening
from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim
from evaluation.audit.noise import Again, Trace
from evaluation.audit.released.replay import Models, Optimiser, Seen
from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.config.mechanism import MechanismConfig
from federated.config.training import ADAPTIVITY, SECOND_MOMENTUM
from federated.noise import subkey
from federated.rounds import witness
from federated.rounds.again import noise_again
from federated.rounds.rule import RoundRule
from federated.rounds.server import flat_weights
from federated.train import FineTuneResult
from pipeline import settings
from pipeline.config import LaunchConfig
from pipeline.run_dir import RunDir
from pipeline.runner import stage_key
from pipeline.stage import StageContext
from pipeline.stages import artifacts
from pretrain.files import PRIVATE, atomic
from pretrain.model import KeyboardLM

FILE = "audit.npz"
_MODULE = "pipeline.stages.audit_trace"
_TRAINING = "fine_tune"
_WITNESS = "witness."


def directions(model: KeyboardLM, count: int, key: bytes) -> Directions | None:
    """Direction canaries of a run; None for none.

    Their seed follows from the noise key, which the ledger's reservation commits to before training.
    """
    if not count:
        return None
    seed = int.from_bytes(subkey(key, "direction canaries"), "big")
    return Directions(tuple(parameter.numel() for parameter in model.parameters()), count, seed)


def save(done: FineTuneResult, planted: Directions | None, path: Path) -> None:
    """Keep what the audits need. Secret: released sums without their noise."""
    arrays = {"synthetic_joined": done.synthetic_joined_TD}
    if done.probe is not None and planted is not None:
        seed = np.frombuffer(planted.seed.to_bytes(32, "big"), dtype=np.uint8)
        shape = np.array([planted.count, *planted.layers])
        arrays |= {"projections": done.probe.projections_TN, "joined": done.probe.joined_TN}
        arrays |= {"seed": seed, "directions": shape}
        if done.probe.witness is not None:
            arrays |= {_WITNESS + name: array for name, array in witness.save(done.probe.witness).items()}
    with atomic(path, PRIVATE) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub takes every keyword for allow_pickle


def load(path: Path) -> tuple[np.ndarray, Trace | None, Directions | None]:
    """Rounds by synthetic devices, and the trace with its directions where there is one.

    Raises:
      OSError: the file is not on this machine.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if "seed" not in arrays:
        return arrays["synthetic_joined"], None, None
    count, *layers = (int(number) for number in arrays["directions"])
    planted = Directions(tuple(layers), count, int.from_bytes(arrays["seed"].tobytes(), "big"))
    seen = witness.load({name.removeprefix(_WITNESS): arrays[name] for name in arrays if name.startswith(_WITNESS)})
    kept = None if seen is None else Seen(**vars(seen))
    return arrays["synthetic_joined"], Trace(arrays["projections"], arrays["joined"], kept), planted


def whitener(mechanism: mechanisms.Mechanism, rounds: int) -> np.ndarray:
    """``[T, T]``: what makes the noise of the released sums independent again."""
    return mechanisms.whitener(mechanism, rounds, whitening.of_tree, whitening.of_coefficients)


def claim(config: MechanismConfig, mechanism: mechanisms.Mechanism, rounds: int, joined_TN: np.ndarray) -> Claim:
    """What the accountant says of a canary that joined as often as it was allowed to.

    For the enforced limits, not the observed ones: canaries are more eager than any real device. Where nothing
    is enforced, for the rounds that a canary really joined.
    """
    rule, joined = RoundRule(config, seed=0, stored=mechanism), int(joined_TN.sum(axis=0).max(initial=1))
    promised = accounting.guarantee_of(mechanism, rounds, *rule.eager_limits(rounds, joined), (config.delta,))
    return Claim(whitener(mechanism, rounds), rule.privatizer.noise_multiplier, promised.mu, config.delta)


def again(ctx: StageContext, planted: Directions) -> Again:
    """What the trace is held against: models from their files, the optimiser, and noise that another process draws.

    Raises:
      OSError: that process failed.
    """
    # On this machine for the other process, if they came from tracking.
    artifacts.mechanism(ctx.run)
    config, start, final = ctx.config, artifacts.model(ctx, "adapt"), artifacts.model(ctx, _TRAINING)
    start_P, final_P = flat_weights(start), flat_weights(final)
    places_K = witness.followed(len(start_P))
    along = (planted.project(start_P), start_P[places_K], planted.project(final_P), final_P[places_K])
    step = config.server
    optimiser = Optimiser(
        kind=step.optimizer,
        learning_rate=step.learning_rate,
        momentum=step.momentum,
        second_momentum=SECOND_MOMENTUM,
        adaptivity=ADAPTIVITY,
        denominator=float(config.mechanism.report_goal),
    )
    command = [sys.executable, "-m", _MODULE, str(ctx.run.root), ctx.run.launch_id]
    drawn = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if drawn.returncode:
        raise OSError(
            f"audit: the process that draws the noise again ended with {drawn.returncode}; run the stage again"
        )
    with np.load(io.BytesIO(drawn.stdout), allow_pickle=False) as arrays:
        return Again(Models(*along), optimiser, arrays["noise"])


def main(root: Path, launch_id: str) -> None:
    """Draw the noise of all rounds again and write what the audit needs of it to standard output."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    run = RunDir(root, launch_id)
    config = LaunchConfig.model_validate_json((run.public("launch") / "launch.json").read_bytes())
    _, trace, planted = load(run.private(_TRAINING) / FILE)
    assert trace is not None, FILE
    assert planted is not None, FILE
    rule = RoundRule(config.mechanism, config.seed, stage_key(config, run, _TRAINING), artifacts.mechanism(run))
    drawn = noise_again(rule, planted.num_parameters, len(trace.joined_TN))
    buffer = io.BytesIO()
    np.savez(buffer, noise=np.array([planted.project(noise_P) for noise_P in drawn]))
    sys.stdout.buffer.write(buffer.getvalue())


if __name__ == "__main__":
    settings.let_threads_sleep()
    main(Path(sys.argv[1]), sys.argv[2])
