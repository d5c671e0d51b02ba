"""Glossary: one name for each idea, for the report and for ``tacit explain``."""

import re
from collections.abc import Mapping

TERMS: Mapping[str, str] = {
    "launch, hold": "an attempt to give users of one locale a model; a launch whose gates fail is on hold, and "
    "nothing reaches users",
    "gate": "a condition that the launch must meet, written down before it began; all gates must pass",
    "device": "the unit of the guarantee: everything typed on one device, together",
    "differential privacy": "a bound on how much the released values can depend on one device, for any observer with "
    "any other knowledge",
    "ε (epsilon), δ (delta)": "the bound: one device makes any outcome at most e^ε times as likely, except with "
    "probability about δ",
    "ρ (rho), μ (mu)": "the same bound as zero-concentrated and as Gaussian differential privacy; ρ = μ²/2, and the ρ "
    "of several releases add up",
    "zero-out adjacency": "the guarantee compares a launch with the same launch after one device's contribution is "
    "replaced by zeros",
    "epsilon of one typed word": "a bound for a single word in a single message, not for all text of a device; never "
    "added to the device-level ε",
    "round, report goal": "one step of training; the number of devices whose updates it adds up, which is also its "
    "fixed denominator",
    "clip norm": "the largest length of one device's update; longer updates are scaled down to it",
    "noise multiplier": "the standard deviation of the noise in clip norms, before the mechanism's sensitivity; not "
    "comparable between mechanisms",
    "min_sep, MinS, MaxP": "the smallest difference between two rounds of one device; the same minus one; and the "
    "largest number of rounds of one device",
    "canary": "a random sentence on a synthetic device; a model that can be made to complete it has memorised it",
    "twin, control": "a model that holds canaries and never ships; a model trained without noise, on which the "
    "attacks must succeed",
    "held out": "devices whose text trains nothing; figures measured on them show how the model serves other users",
    "arm": "one of the models compared on the same devices",
    "interval": "the confidence interval of a figure, from the number of devices measured",
    "top-1, top-3 recall": "the share of typed words that are the first suggestion, or among the first three",
    "PRate, Acc, CTR, WMR, WPM": "share of predictions accepted; of predictions with the right word; of shown "
    "candidates accepted; of words modified; words per minute",
    "champion": "the published model that users have now",
    "ledger": "the append-only record of every privacy loss of every launch on these devices",
    "population, split": "the devices of one locale that may take part; each is in one part: it trains, validates or "
    "tests",
    "release": "a use of private text whose result leaves the private side: it spends from a budget or states why it "
    "does not",
    "out-of-vocabulary (OOV) word": "a typed word that the model's vocabulary lacks; discovery looks for those that "
    "many devices type",
    "mechanism": "how the noise of training is correlated between rounds: tree, BLT, banded or independent",
    "budget, window": "the most that one device may lose to all launches on its population, for ever or within any "
    "number of days",
}


def names_of(term: str) -> tuple[str, ...]:
    """The names that a term is found by: ``ε (epsilon), δ (delta)`` by each of its four."""
    single = [part.strip() for part in re.split(r"[,()]", term) if part.strip()]
    return tuple(dict.fromkeys((term, *single)))
