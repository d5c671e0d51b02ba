"""What the audit stage holds a run against: the enforced limits, and the change that private training made."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from federated import mechanisms
from federated.accounting.guarantees import guarantee_of
from federated.config.mechanism import TreeMechanism
from pipeline.stages import artifacts, audit
from pipeline.stages.training import audit_trace
from tests.helpers.audits.mechanism_kinds import SPACED


@pytest.mark.slow
def test_the_claim_is_that_of_the_enforced_limits() -> None:
    config = TreeMechanism.model_validate(SPACED | {"kind": "tree"})
    made = mechanisms.build(config)
    once_TN = np.zeros((config.rounds, 4), dtype=bool)
    once_TN[0] = True
    claim = audit_trace.claim(config, made, config.rounds, once_TN)
    limits = (config.rounds, config.min_sep, config.max_participations)
    assert claim.mu == pytest.approx(guarantee_of(made, *limits, (config.delta,)).mu)
    assert claim.mu > guarantee_of(made, config.rounds, config.min_sep, 1, (config.delta,)).mu
    assert claim.noise_multiplier == config.noise_multiplier


def test_what_is_audited_is_the_change_and_not_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"adapt": torch.nn.Linear(3, 2), "fine_tune": torch.nn.Linear(3, 2)}
    with torch.no_grad():
        for trained, start in zip(models["fine_tune"].parameters(), models["adapt"].parameters(), strict=True):
            trained.copy_(start + 0.25)
    monkeypatch.setattr(artifacts, "model", lambda ctx, stage: models[stage])
    np.testing.assert_allclose(audit.model_change(SimpleNamespace()), 0.25, atol=1e-6)
