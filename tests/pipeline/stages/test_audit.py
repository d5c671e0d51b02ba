"""The audit stage holds a run against the enforced limits and the change that private training made."""

import numpy as np
import pytest
from pydantic import ValidationError

from evaluation.config import LEAST_DIRECTIONS
from federated import mechanisms
from federated.accounting.guarantees import guarantee_of
from federated.config.mechanism import TreeMechanism
from pipeline.releases import audit_trace
from tests.helpers.audits.mechanism_kinds import SPACED
from tests.helpers.launches.pipeline_launch import launch_config


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


@pytest.mark.parametrize("directions", [0, 8, 63])
def test_an_audit_that_would_notice_nothing_is_refused_with_its_file(directions: int) -> None:
    with pytest.raises(ValidationError, match=r"audit\.directions\n.*greater than or equal to 64"):
        launch_config(audit={"directions": directions})
    assert launch_config(audit={"directions": LEAST_DIRECTIONS}).audit.directions == 64
