"""Verdicts: all that leaves the audit of a release.

The interface of every such audit. ``evaluation/audit/released`` has one file a release, with one function that takes

- ``key``: the stage's 32 bytes, read from their file and never derived by code under test (``released.key``);
- the release as it was published, from the files that the stage ``keeps`` in its private folder;
- the devices' contributions before any bound, as arrays made from the private store, or as kept where they cannot be
  made again;
- numbers of the launch file: noise multiplier, bound, threshold's chance of failing;

and returns ``tuple[Verdict, ...]``: one for each thing that it tested, always the same names in the same order. A
verdict that a launch's gate expects and does not find holds the launch, as one that failed does.

On the side of the pipeline a ``Release`` names three things, each as ``module:function``, imported when used: ``make``,
the one place where its noise meets its sum (called as ``make(contributions, noise, bound, finish)``); ``keeps``, the
files in the stage's private folder that stay for the audit; and ``audit``, which is given the context of the launch
that made the release, loads the above, and returns the verdicts.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One thing that the audit of a release tested.

    Guarantee: an honest release passes, whatever devices typed and whatever the noise was; where a test has a chance of
    error, with the probability that ``slack`` states. Every field but ``passed`` and ``sentence`` is a constant or a
    function of the launch file, and ``sentence`` is one of a few constants: no number depends on noise or text.

    Attributes:
      name: one word, the same in every launch; gates and report look it up.
      tested: the statement that was tested, as a sentence without its full stop.
      slack: the least fault that it notices, in words.
      passed: nothing speaks against the statement.
      sentence: what speaks against it; where it passed, what a reader must know beside it, or nothing.
    """

    name: str
    tested: str
    slack: str
    passed: bool
    sentence: str = ""


def failed(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts that speak against a release."""
    return tuple(verdict for verdict in verdicts if not verdict.passed)
