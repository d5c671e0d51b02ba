"""Declarations of uses of private data whose results leave a launch.

Everything that must hold for each use is a loop over the list of them (``pipeline.releases.uses``): a launch's planned
and actual spends, its total epsilon, the table of data accesses, the neighbour and the output of its guarantee, and the
disclosure.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evaluation.audit.verdict import Verdict
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.run.stage import StageContext
from pretrain.config import Bearing
from reports.disclosure.releases import ReleaseBlock, ReleaseName
from reports.disclosure.total import Total

Stated = Mapping[str, Any]
Results = Callable[[str], Stated]
_T = TypeVar("_T")
_HIDDEN = 9  # most devices that rounding down to tens hides
# Verdicts on every release about devices of the store: on its key, and on the devices that it read.
EVERY_RELEASE = ("key", "split")


def _none(*_: object) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Use:
    """A use of private data.

    Attributes:
      stage: name of the stage that makes it.
      asked: returns whether a launch makes it.
      says: returns the protection, or the reason for none; never empty.
      part: name of the part, if the stage makes several uses.
      covered: True if the launch's total epsilon bounds everything that leaves about one device.
      limits: returns the limitations of a launch with this use, each a sentence.
    """

    stage: str
    asked: Callable[[LaunchConfig], bool]
    says: Callable[[LaunchConfig], str]
    part: str = ""
    covered: bool = False
    limits: Callable[[LaunchConfig], tuple[str, ...]] = _none


@dataclass(frozen=True)
class Outlook:
    """Assumptions for the planned spends of a launch, before any device is asked.

    Attributes:
      training_rho: rho of training within the enforced limits.
      devices: least number of training devices; None if unknown.
      known_words: words of the public vocabulary, once it exists.
    """

    training_rho: float
    devices: int | None
    known_words: Collection[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Release(Use):
    """A use that spends from a budget.

    Attributes:
      name: its name as a part of the total epsilon.
      block: the block of the launch file that holds its noise.
      planned: returns its worst-case spend, without reading private data.
      paid: returns its spend from the stage's result. For a reused release that is the spend of the launch that made
        it, which is the same, or it would not have been reused.
      neighbour: the part of one device's data that the neighbouring population lacks, as a part of a sentence.
      output: returns the released output, as a part of a sentence; empty for devices that do not train.
      trusts: returns assumptions of the total beyond those of every launch, each a sentence.
      split: split whose devices bear the loss.
      certain: True if the spend is known exactly beforehand; it then counts as spent even if the stage failed.
      needs: returns why a number of devices of its split, rounded down to tens, is too small for the release.
      cheaper: returns settings to lower, other than noise, until a launch with a given spend fits; each a part of a
        sentence.
      disclosed: returns its block of the disclosure, from the launch file and results of stages.
      by_file: returns the same block if the launch file alone decides it; ``verify`` compares results with it.
      again: derives the spend of a person with so many devices from the stage's statement of what happened; None if it
        follows from rho.
      asks: fields of its block of the launch file that its stage states again.
      make: ``module:function``, the only code that adds its noise to its sum, as ``make(contributions, noise, bound,
        finish)``; where rounds or devices come one by one, to the sum of a round, or to the message of a device.
      keeps: files in its stage's private folder that stay for the audit: the released values, and values that cannot be
        derived again from the private store; never a sum without noise.
      audit: takes the context of the stage that made it, loads what it made and the text, and returns verdicts.
      proves: names of those verdicts. A launch in which one of them, or of ``EVERY_RELEASE``, is missing or failed is
        held.
    """

    covered: bool = True
    name: ReleaseName
    block: str
    planned: Callable[[LaunchConfig, Outlook], Spend]
    paid: Callable[[LaunchConfig, Stated], Spend]
    neighbour: str
    output: Callable[[LaunchConfig, Total], str]
    disclosed: Callable[[LaunchConfig, Results], ReleaseBlock]
    make: str
    keeps: tuple[str, ...]
    audit: Callable[[StageContext], tuple[Verdict, ...]]
    proves: tuple[str, ...]
    trusts: Callable[[LaunchConfig, Total], tuple[str, ...]] = _none
    split: Bearing = "train"
    certain: bool = False
    needs: Callable[[LaunchConfig, int], Sequence[str]] = _none
    cheaper: Callable[[LaunchConfig, Outlook, Callable[[Spend], bool]], Iterable[str]] = _none
    by_file: Callable[[LaunchConfig], ReleaseBlock] | None = None
    again: Callable[[LaunchConfig, Stated, int], Spend] | None = None
    asks: tuple[str, ...] = ()

    def reserved(self, config: LaunchConfig, run: object = None) -> Spend | None:
        """Reservation of a stage whose spend the launch file alone decides; None if the launch does not ask for it.

        Args:
          run: unused; other stages reserve by the results of earlier stages.
        """
        return self.paid(config, {}) if self.asked(config) else None


def asked_for(block: _T | None) -> _T:
    """Return a block of the launch file that must be present."""
    assert block is not None, "the launch file has no such block"
    return block


def overflows(name: str, devices: int, most: int, fix: str) -> tuple[str, ...]:
    """Return a message if a 64-bit sum could overflow.

    Args:
      devices: number of devices, rounded down to tens, so up to nine more.
    """
    if devices + _HIDDEN <= most:
        return ()
    return (f"{name}: {devices:,}+ devices, but a 64-bit fixed-point sum holds {most:,}; {fix}",)


def gaussian(rho: float, delta: float, note: str) -> Spend:
    """Device-level spend of a Gaussian release about training devices."""
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    return Spend(
        unit="device", adjacency="zero-out", rho=rho, epsilon=epsilon_of_rho(rho, delta), delta=delta, note=note
    )
