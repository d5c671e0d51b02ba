"""Training that an audit stops: held, with its evidence in the private folder, in one process and in a gang."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.ground.errors import LaunchHeld, PermanentError
from pipeline.releases import audit_trace
from pipeline.run import gang
from pipeline.run.bookkeeping import FAILED
from pipeline.stages.training import fine_tune_workers
from pipeline.stages.training.fine_tune_inputs import open_inputs
from tests.evaluation.audit.released.training_bugs import weaker


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_training_with_other_noise_is_held_and_its_values_stay_private(
    ctx: SimpleNamespace, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = open_inputs(ctx)
    with weaker(share)(), pytest.raises(LaunchHeld) as held:
        fine_tune_workers.train(ctx, inputs)
    text = str(held.value)
    assert text.startswith("fine_tune: round 1 of 4: the noise is not that of the launch's key; the launch is held")
    evidence = ctx.private / audit_trace.EVIDENCE
    assert stat.S_IMODE(evidence.stat().st_mode) == 0o600
    values = np.load(evidence)
    assert values.shape == (1, 2)
    assert not list((ctx.private / "rounds").glob("*.ckpt"))
    said = text + caplog.text
    assert not any(f"{abs(value):.2f}" in said for value in values.ravel().tolist())


@pytest.mark.parametrize(("code", "kind"), [(3, LaunchHeld), (65, PermanentError)])
def test_a_gang_ends_as_its_worker_did(
    ctx: SimpleNamespace, code: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> None:
        (ctx.private / FAILED).write_text(json.dumps({"error": "round 2: why", "exit_code": code}), encoding="utf-8")
        raise OSError("a worker ended")

    monkeypatch.setattr(gang, "run", run)
    ctx.settings, ctx.run = SimpleNamespace(gang=""), SimpleNamespace(root=Path("runs"), launch_id="demo-0123")
    inputs = open_inputs(ctx)
    ctx.config = ctx.config.model_copy(update={"runtime": ctx.config.runtime.model_copy(update={"workers": 2})})
    with pytest.raises(kind, match="round 2: why"):
        fine_tune_workers.train_together(ctx, inputs)
