"""Discovery rules of a policy: each discovery needs the ceiling of its kind."""

from discovery.config import CentralConfig, DiscoveryConfig
from pipeline.launch.policy.config import PolicyConfig


def require_allowed_discovery(policy: PolicyConfig, discovery: DiscoveryConfig, delta: float) -> None:
    """See that each discovery has the ceiling of its kind.

    Args:
      delta: at which the whole launch is stated.

    Raises:
      ValueError: with field, value and fix.
    """
    if isinstance(discovery, CentralConfig):
        if policy.max_discovery_epsilon0 is not None:
            raise ValueError(
                f"policy.max_discovery_epsilon0: {policy.max_discovery_epsilon0:g}, but a central discovery sends "
                "no randomised messages; its rho is bound by policy.max_rho: remove the line"
            )
        if discovery.delta > delta:
            raise ValueError(
                f"discovery.delta: {discovery.delta:g} is more than mechanism.delta {delta:g}, at "
                "which the whole launch is stated; lower it to that or less"
            )
        return
    if discovery.delta >= delta:
        raise ValueError(
            f"discovery.delta: {discovery.delta:g} leaves nothing of mechanism.delta {delta:g}, at which the whole "
            f"launch is stated, for its noised releases; lower it, to {delta / 2:g} say"
        )
    if policy.max_discovery_epsilon0 is None:
        raise ValueError(
            "policy.max_discovery_epsilon0: missing, and discovery is local; add it (ceiling on the local epsilon "
            "of one message)"
        )
    ceiling, epsilon0 = policy.population_max_discovery_epsilon, discovery.epsilon0
    if ceiling is not None and epsilon0 > ceiling:
        raise ValueError(
            f"policy.population_max_discovery_epsilon: {ceiling:g} is below discovery.epsilon0 {epsilon0:g}, so "
            f"not even one launch fits; raise it to {epsilon0:g} or more, or lower discovery.epsilon0"
        )
