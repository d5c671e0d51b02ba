"""Several Gaussian releases as one: the exact curve at the summed rho against convolved loss distributions."""

import numpy as np
import pytest

from federated.accounting.composition import compose
from federated.accounting.gaussian import epsilon_of_rho


@pytest.mark.slow
@pytest.mark.parametrize("rhos", [(0.3,), (0.1, 0.4), (0.5, 0.0, 0.02)])
def test_both_accountants_agree_on_the_whole(rhos: tuple[float, ...]) -> None:
    total = compose(rhos, (1e-6, 1e-10))
    assert total.rho == pytest.approx(sum(rhos), rel=1e-15)
    assert total.mu == pytest.approx(np.sqrt(2 * sum(rhos)))
    for delta in (1e-6, 1e-10):
        assert total.epsilon[delta] == epsilon_of_rho(sum(rhos), delta)
        assert total.epsilon_pld[delta] == pytest.approx(total.epsilon[delta], rel=2e-6)


@pytest.mark.slow
def test_a_whole_costs_more_than_its_parts_and_less_than_adding_epsilons() -> None:
    parts = [compose([rho], [1e-6]).epsilon[1e-6] for rho in (0.1, 0.4)]
    assert max(parts) < compose((0.1, 0.4), [1e-6]).epsilon[1e-6] < sum(parts)


@pytest.mark.parametrize("rhos", [(), (-0.1,), (float("nan"),), (float("inf"),)])
def test_what_is_no_release_is_refused(rhos: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="rho"):
        compose(rhos, [1e-6])
