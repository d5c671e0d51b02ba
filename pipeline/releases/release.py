"""One use of private data whose result leaves a launch, as a value.

What must hold for every use is a loop over the list of them (``pipeline.releases.uses``): what a launch costs before it
begins and what it has cost, the one number, the table of data accesses, the neighbour and the output of its guarantee,
and its part of the disclosure.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend, Split
from reports.disclosure.releases import ReleaseBlock, ReleaseName
from reports.disclosure.total import Total

Stated = Mapping[str, Any]
Results = Callable[[str], Stated]
_T = TypeVar("_T")
_HIDDEN = 9  # by rounding down to tens


def _unlimited(config: LaunchConfig) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Use:
    """A use of private data.

    Attributes:
      stage: that makes it.
      asked: whether a launch makes it.
      says: how it is covered, or why not; never empty.
      part: what of the stage, where it makes several.
      covered: whether nothing that leaves tells of one device more than the launch's one number says.
      limits: limitations that a launch with this use has, each a sentence.
    """

    stage: str
    asked: Callable[[LaunchConfig], bool]
    says: Callable[[LaunchConfig], str]
    part: str = ""
    covered: bool = False
    limits: Callable[[LaunchConfig], tuple[str, ...]] = _unlimited


@dataclass(frozen=True)
class Outlook:
    """All that the cost of a launch is planned by, before anybody is asked.

    Attributes:
      training_rho: of training within the enforced limits.
      devices: that train, at least; None where nobody knows.
      known_words: of the public vocabulary, once it is made.
    """

    training_rho: float
    devices: int | None
    known_words: Collection[str] | None = None


def _nobody(config: LaunchConfig, whole: Total) -> tuple[str, ...]:
    return ()


def _fits(config: LaunchConfig, devices: int) -> tuple[str, ...]:
    return ()


def _no_cheaper(config: LaunchConfig, seen: Outlook, fits: Callable[[Spend], bool]) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Release(Use):
    """A use that spends from a budget.

    Attributes:
      name: in the one number.
      block: of the launch file, which holds its noise.
      planned: the worst case, without a look at private data.
      paid: what was paid for it, from what its stage says of the release. A stage that took it over states no spend,
        and the launch that made it paid the same, or it would not have been taken over.
      neighbour: what of one device the neighbouring population has not, as a part of a sentence.
      output: what of it leaves, likewise; empty for what is said of devices that train nothing.
      trusts: assumptions of the one number beyond those of every launch, each a sentence.
      split: whose devices lose.
      certain: whether the loss is known exactly beforehand, and counts as spent also where its stage failed.
      refuses: why the launch's own policy would hold it for this release alone, whatever its model does.
      needs: why it could not be made, or would tell nothing, of so many devices of its split, rounded down to tens.
      cheaper: what to lower, beside its noise, until a launch with such a spend of it fits; each a part of a sentence.
      disclosed: its block of the disclosure, from the launch file and results of stages.
      by_file: the same block, where the launch file alone decides all of it; ``verify`` holds results against it.
      again: what was paid for it, derived again from what its stage says happened; None where ``planned`` is exact.
      asks: fields of its block of the launch file that its stage states again.
      make: ``module:function`` that alone adds its noise to its sum, as ``make(contributions, noise, bound, finish)``;
        where rounds or devices come one by one, to the sum of a round, or to the message of a device.
      keeps: files in its stage's private folder that stay for the audit: what was released, and what cannot be made
        again from the private store; never a sum without noise.
      audit: ``module:function`` of the context of the stage that made it, which returns the verdicts on it.
      proves: names of those verdicts. A launch without one of them, passed, is held.
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
    audit: str
    proves: tuple[str, ...]
    trusts: Callable[[LaunchConfig, Total], tuple[str, ...]] = _nobody
    split: Split = "train"
    certain: bool = False
    refuses: Callable[[LaunchConfig], tuple[str, ...]] = _unlimited
    needs: Callable[[LaunchConfig, int], Sequence[str]] = _fits
    cheaper: Callable[[LaunchConfig, Outlook, Callable[[Spend], bool]], Iterable[str]] = _no_cheaper
    by_file: Callable[[LaunchConfig], ReleaseBlock] | None = None
    again: Callable[[LaunchConfig, Stated], Spend] | None = None
    asks: tuple[str, ...] = ()

    def reserved(self, config: LaunchConfig, run: object = None) -> Spend | None:
        """The reservation of its stage, where the launch file alone decides the cost; None where it is not asked for.

        Args:
          run: unread; other stages reserve by what a launch has found.
        """
        return self.paid(config, {}) if self.asked(config) else None


def asked_for(block: _T | None) -> _T:
    """A block of the launch file whose release is made."""
    assert block is not None, "it is not asked for"
    return block


def overflows(name: str, devices: int, most: int, fix: str) -> tuple[str, ...]:
    """A line if a sum in 64 bits could overflow.

    Args:
      devices: rounded down to tens, which hides nine.
    """
    if devices + _HIDDEN <= most:
        return ()
    return (f"{name}: {devices:,}+ devices, but a 64-bit fixed-point sum holds {most:,}; {fix}",)


def gaussian(rho: float, delta: float, note: str) -> Spend:
    """A device-level spend of Gaussian releases to devices that train."""
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    return Spend(
        unit="device", adjacency="zero-out", rho=rho, epsilon=epsilon_of_rho(rho, delta), delta=delta, note=note
    )
