"""Keyboard features of a next-word model: each feature's metrics, and the one that decides.

One model serves all features of a launch (Xu et al. 2023, section 3): it is trained and paid for once, and everything
that a feature adds is post-processing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Primary metric without simulated typing: not asked for, no keyboard layout, or a pair of arms that decides nothing.
UNTYPED = "top1_recall"


@dataclass(frozen=True)
class Feature:
    """A feature, by the names of its metrics.

    Attributes:
      primary: the metric that must be shown not to be worse.
      metrics: those of Xu et al. 2023, section 3, for this feature.
      at_equal_rate: the primary metric where arms offer at equal rates instead of equal precision.
    """

    primary: str
    metrics: tuple[str, ...]
    at_equal_rate: str | None = None

    def decides(self, *, typed: bool, equal_rate: bool = False) -> str:
        """The primary metric of one comparison."""
        if not typed:
            return UNTYPED
        return self.at_equal_rate if equal_rate and self.at_equal_rate else self.primary


FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        "NWP": Feature("prate", ("strip_accuracy", "prate", "click_through_rate")),
        "SC": Feature("compose_trigger_rate", ("compose_prate", "compose_trigger_rate"), "compose_prate"),
        "OTF": Feature("words_modified", ("words_modified", "words_per_minute", "errors_left")),
    }
)
