"""Checks of a planned launch against its own policy, independent of its model's quality."""

import math

from pipeline.launch.config import LaunchConfig
from pipeline.releases.ceiling import above_total, in_words
from pipeline.releases.terms import Terms
from reports.losses import up

# Digits with which noise is written.
_DIGITS = 3
# Share of samplings of a launch without a timer that may be held because one device was drawn too often.
_MOST_HELD = 0.05


def above_policy(terms: Terms) -> list[str]:
    """Return messages for which the launch's own policy would hold it, whatever its model's quality."""
    config, training_rho = terms.config, terms.training_rho
    policy, mechanism, lines = config.policy, config.mechanism, []
    beside = sum(config.beside_training.values())
    if training_rho + beside > policy.max_rho and _is_likely(config, training_rho):
        room = policy.max_rho - beside
        factor = math.sqrt(training_rho / room) if room > 0 else math.inf
        needed = _rounded_up(mechanism.noise_multiplier * factor)
        with_others = "".join(f" and {name} {cost:.4g}" for name, cost in config.beside_training.items())
        raise_others = "".join(f", or {name}.noise_multiplier" for name in config.beside_training)
        lines.append(
            f"policy.max_rho: {policy.max_rho:g}, but training costs rho {training_rho:.4g} at worst{with_others}; "
            f"raise mechanism.noise_multiplier from {mechanism.noise_multiplier:g} to {needed:g}{raise_others}"
        )
    return lines + above_total(terms)


def _is_likely(config: LaunchConfig, training_rho: float) -> bool:
    """True if training would exceed the ceiling in more than one sampling of twenty.

    Under a timer a device may join as often as planned. Under random sampling the worst case, a device in every
    cohort, practically never happens; the spend is that of the actual participations.
    """
    mechanism, sample = config.mechanism, config.mechanism.secret_sample
    if sample is None:
        return True
    room = config.policy.max_rho - sum(config.beside_training.values())
    rounds, rate = mechanism.rounds, sample.rate
    often = math.floor(max(room, 0.0) / (training_rho / rounds))
    within = math.fsum(_binomial(joins, rounds, rate) for joins in range(min(often, rounds) + 1))
    return within**sample.population < 1 - _MOST_HELD


def _binomial(successes: int, trials: int, share: float) -> float:
    """Binomial probability, computed in logarithms, as coefficients of many trials overflow a float."""
    ways = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
    return math.exp(ways + successes * math.log(share) + (trials - successes) * math.log1p(-share))


def one_number(terms: Terms) -> tuple[str, ...]:
    """Message with the launch's planned total epsilon, and its parts."""
    whole = terms.total
    return (
        f"one device loses epsilon {up(whole.epsilon)} at delta {whole.delta:g} at worst, of policy.max_total_epsilon "
        f"{terms.config.policy.max_total_epsilon:g}: {in_words(whole)}",
    )


def _rounded_up(value: float) -> float:
    """Round up to few digits."""
    if not math.isfinite(value):
        return value
    place = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return math.ceil(value * place) / place
