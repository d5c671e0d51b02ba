"""Verdicts: the only output of the audit of a release that leaves.

This is the interface of every such audit. ``evaluation/audit/released`` has one file per release, with one function
that takes

- ``key``: the stage's 32 bytes, read from their file and never derived by code under test (``released.key``);
- the release as it was published, from the files that the stage ``keeps`` in its private folder;
- the devices' contributions before any bound, as arrays from the private store, or as kept if they cannot be
  recomputed;
- numbers of the launch file: noise multiplier, bound, failure probability of the threshold;

and returns ``tuple[Verdict, ...]``: one for each test, always the same names in the same order. A missing verdict holds
the launch like a failed one.

On the side of the pipeline a ``Release`` names three things: ``make``, the ``module:function`` of the only place that
adds its noise to its sum (called as ``make(contributions, noise, bound, finish)``); ``keeps``, the files in the stage's
private folder that stay for the audit; and ``audit``, which is given the context of the launch that made the release,
loads the above, and returns the verdicts.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One test of the audit of a release.

    Guarantee: an honest release passes, for any text and any noise; if a test has an error probability, with the
    probability that ``slack`` states. Every field but ``passed`` and ``sentence`` is a constant or a
    function of the launch file, and ``sentence`` is one of a few constants: no number depends on noise or text.

    Attributes:
      name: one word, the same in every launch; gates and report look it up.
      tested: the tested statement, as a sentence without its full stop.
      slack: least fault that the test detects, in words.
      passed: no evidence against the statement.
      sentence: the evidence against it; if it passed, a note for the reader, or empty.
    """

    name: str
    tested: str
    slack: str
    passed: bool
    sentence: str = ""
