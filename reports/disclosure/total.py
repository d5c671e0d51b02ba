"""The privacy loss of a launch: one value, and the only form in which a loss of all releases is stated."""

import math
from decimal import Decimal
from typing import Literal

from pydantic import Field, model_validator

from pretrain.config import BEARING, Bearing, Config
from reports.disclosure.releases import How, ReleaseName
from reports.losses import strength, up

_SAME = 1e-6  # relative tolerance; a larger difference is a mistake, not rounding


class Part(Config):
    """One addend: releases of one split whose losses are stated together.

    Attributes:
      epsilon, delta: of all messages of a device to a local discovery, or of all noised releases of the split.
      rho: zCDP of the noised releases together; None for local discovery, which has none.
      how: ``noise``: Gaussian releases, whose rho adds up before epsilon is stated. ``shuffled`` or ``summed``:
        messages that nobody can link to a sender, since they are shuffled or only their sum is visible. ``local``:
        against the collector of the messages, at delta 0.
    """

    releases: tuple[ReleaseName, ...] = Field(min_length=1)
    split: Bearing
    epsilon: float = Field(ge=0.0)
    delta: float = Field(ge=0.0, lt=1.0)
    rho: float | None
    how: How

    @property
    def named(self) -> str:
        """Its releases in words, joined by commas and ``and``."""
        names = [name.replace("_", " ") for name in self.releases]
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


class Total(Config):
    """(``epsilon``, ``delta``) of one device, or of a person with several, over all releases of a launch.

    Guarantee: each part of a split holds for every output of the others, so their epsilons and deltas add up (basic
    composition, Dwork and Roth 2014, theorem 3.16). A device is in one split, so the split with the larger loss counts;
    a release about devices of every split is in a part of each.

    Attributes:
      devices: of the person; the parts are then those of all of them together.
    """

    unit: Literal["device"] = "device"
    devices: int = Field(default=1, ge=1)
    epsilon: float
    delta: float
    parts: tuple[Part, ...] = Field(min_length=1)

    @property
    def rho(self) -> float | None:
        """Loss as zCDP of the split that loses most; None if a release, such as words found locally, has no rho."""
        rhos = [part.rho for part in self.parts]
        return None if None in rhos else max(rho for rho in rhos if rho is not None)

    @property
    def strength(self) -> str:
        """A plain word for epsilon."""
        return strength(self.epsilon)

    @property
    def number(self) -> str:
        """Epsilon, rounded up, with its largest part: ``12.89 (local words 8.00)``."""
        if len(self.addends) == 1:
            return up(self.epsilon)
        largest = max(self.addends, key=lambda part: part.epsilon)
        return f"{up(self.epsilon)} ({largest.named} {up(largest.epsilon)})"

    @property
    def addition(self) -> str:
        """``12.89 = 8.00 + 4.89``, ``≤`` where rounding the parts up adds a hundredth; empty for a single part."""
        parts = [up(part.epsilon) for part in self.addends]
        whole = up(self.epsilon)
        sign = "=" if Decimal(whole) == sum(map(Decimal, parts)) else "≤"
        return f"{whole} {sign} {' + '.join(parts)}" if len(parts) > 1 else ""

    @property
    def sentence(self) -> str:
        """The loss in one line: ``epsilon 4.89 at delta 1e-10, rho 0.5000``, rho where it covers every release."""
        rho = "" if self.rho is None else f", rho {up(self.rho, 4)}"
        return f"epsilon {self.number} at delta {self.delta:g}{rho}"

    @property
    def addends(self) -> tuple[Part, ...]:
        """The parts that epsilon is the sum of: those of the split with the larger loss."""
        by_split = {split: tuple(part for part in self.parts if part.split == split) for split in BEARING}
        return max(by_split.values(), key=lambda parts: math.fsum(part.epsilon for part in parts))

    @property
    def words(self) -> Part | None:
        """The part of words found locally; None if words are found centrally or not at all."""
        return next((part for part in self.parts if part.how != "noise"), None)

    @property
    def noised(self) -> Part | None:
        """All noised releases of a device that trains."""
        return next((part for part in self.parts if part.how == "noise" and part.split == "train"), None)

    @model_validator(mode="after")
    def _parts_add_up(self) -> "Total":
        splits = {part.split for part in self.parts}
        epsilon = max(math.fsum(part.epsilon for part in self.parts if part.split == split) for split in splits)
        delta = max(math.fsum(part.delta for part in self.parts if part.split == split) for split in splits)
        if not math.isclose(self.epsilon, epsilon, rel_tol=_SAME) or delta > self.delta * (1 + _SAME):
            raise ValueError(
                f"epsilon, delta: {self.epsilon}, {self.delta}, but the parts add up to {epsilon}, {delta}"
            )
        named = [(name, part.split) for part in self.parts for name in part.releases]
        if len(set(named)) != len(named):
            raise ValueError(f"parts: {named} names a release twice; each belongs to one part of a split")
        return self

    @model_validator(mode="after")
    def _each_part_has_its_kind(self) -> "Total":
        for part in self.parts:
            if (part.rho is None) != (part.how != "noise") or (part.how == "local" and part.delta):
                raise ValueError(
                    f"parts: {list(part.releases)} has rho {part.rho} and delta {part.delta} as {part.how}; noised "
                    "releases state rho, and a local bound holds at delta 0"
                )
        return self
