"""``Terms``: what a launch spends at worst, made once, for every check before its first spend."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook, gaussian
from pipeline.releases.total import total
from pipeline.releases.training import training_rho
from pipeline.releases.uses import planned
from reports.disclosure.total import Total


@dataclass(frozen=True)
class Terms:
    """Worst-case spends of a launch within its enforced limits, and what they were planned with.

    Attributes:
      seen: rho of training, number of training devices and public words, as far as they are known.
      spends: of every release, by stage.
      splits: devices by split, rounded down to tens; None where unknown.
      drawn: False if these splits are expected of devices that are known, and the key will draw others; True if the
        launch will have them, or if they are those of an estimate.
    """

    config: LaunchConfig
    seen: Outlook
    spends: Mapping[str, Spend]
    splits: Mapping[str, int] | None = None
    drawn: bool = True

    @classmethod
    def of(
        cls,
        config: LaunchConfig,
        rho: float,
        splits: Mapping[str, int] | None = None,
        *,
        known_words: Collection[str] | None = None,
        drawn: bool = True,
    ) -> Self:
        """Plan every release of a launch.

        Args:
          rho: of training, within its enforced limits.
          known_words: words of the public vocabulary, once it exists.
        """
        seen = Outlook(rho, None if splits is None else splits["train"], known_words)
        return cls(config, seen, planned(config, seen), splits, drawn)

    @classmethod
    def of_file(cls, config: LaunchConfig, splits: Mapping[str, int] | None, *, drawn: bool = True) -> Self:
        """Plan every release by the launch file alone."""
        return cls.of(config, training_rho(config), splits, drawn=drawn)

    @property
    def training_rho(self) -> float:
        return (self.spends["fine_tune"].rho or 0.0) if "fine_tune" in self.spends else 0.0

    @cached_property
    def total(self) -> Total:
        """Loss of one device to all releases."""
        return total(self.config, self.likely(self.spends))

    def likely(self, spends: Mapping[str, Spend]) -> dict[str, Spend]:
        """Some of the spends, with training capped by the launch's own ceiling on rho.

        Under random sampling the worst case, a device in every cohort, practically never happens. A launch in which a
        device is drawn so often that it exceeds ``policy.max_rho`` is held, so a larger total is never published.
        """
        room = self.config.policy.max_rho - sum(self.config.beside_training.values())
        if "fine_tune" not in spends or self.config.mechanism.secret_sample is None or self.training_rho <= room:
            return dict(spends)
        return {**spends, "fine_tune": gaussian(room, self.config.mechanism.delta, "at its ceiling")}
