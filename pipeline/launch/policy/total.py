"""Ceilings on epsilon over all releases of a launch, and of all launches, that stand beside each other."""

from pipeline.launch.policy.config import PolicyConfig


def require_total_ceilings(policy: PolicyConfig, delta: float, *, noised: bool) -> None:
    """See that every ceiling on rho has one on epsilon beside it, and that one launch can fit under both.

    Args:
      delta: at which the whole launch is stated.
      noised: training has noise; without, as in a simulation, no rho fits.

    Raises:
      ValueError: with field, value and fix.
    """
    if (policy.population_max_rho is None) != (policy.population_max_epsilon is None):
        missing, there = "population_max_epsilon", "population_max_rho"
        if policy.population_max_rho is None:
            missing, there = there, missing
        raise ValueError(
            f"policy.{missing}: missing beside policy.{there} {getattr(policy, there):g}; rho leaves out words that "
            "are found locally, and epsilon alone grows faster than what is lost: state both, or neither"
        )
    if policy.population_delta < delta:
        raise ValueError(
            f"policy.population_delta: {policy.population_delta:g} is below mechanism.delta {delta:g}, and the deltas "
            f"of launches add up; raise it to {delta:g} for each launch that may count at once"
        )
    window = policy.budget
    bounds = [("max_total_epsilon", "population_max_epsilon", policy.population_max_epsilon)]
    bounds += [("max_total_epsilon", "budget.epsilon", window.epsilon if window else None)]
    if noised:
        bounds += [("max_rho", "population_max_rho", policy.population_max_rho)]
        bounds += [("max_rho", "budget.rho", window.rho if window else None)]
    for name, field, bound in bounds:
        if bound is not None and getattr(policy, name) > bound:
            raise ValueError(
                f"policy.{name}: {getattr(policy, name)} is above policy.{field} {bound}: one launch may not exceed "
                "the population's budget"
            )
