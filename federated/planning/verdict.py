"""The verdict of a rehearsal: whether a launch pays, the best split of its rho, and the sentence that says so.

Points are percentage points of top-1 recall on held-out pseudo-users. Needs neither torch nor text: ``tacit
rehearse`` writes a verdict, and the plan and every spend read it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

from federated.config.counts import CountsConfig, Ships
from federated.config.mechanism import MechanismConfig

# Chance of calling a launch worthwhile that is not, over all that were tried together.
CHANCE = 0.025
# Fields of a mechanism block that do not affect utility.
_ASIDE = {"delta", "randomness", "secagg", "availability"}

SHIPS_NETWORK: Ships = "network"
SHIPS_BOTH: Ships = "mixture"
SHIPS_COUNTS: Ships = "counts"
# Values of ``counts.model`` for launches without training.
UNTRAINED: Mapping[Ships, Literal["start-mixture", "counts"]] = {"mixture": "start-mixture", "counts": "counts"}


@dataclass(frozen=True)
class Outcome:
    """One way to spend rho, as rehearsed.

    Attributes:
      gradient_rho, counts_rho: of training and of counts; 0 for none.
      rounds, report_goal: of the launch, not of its rehearsal; 0 without training.
      step_noise: of training, the same in the launch and in its rehearsal; 0 without.
      ships: the shipped model.
      gain, error: top-1 recall over the start's on the same held-out pseudo-users, as a share, and the paired
        standard error.
      run: fields of the launch file, as in ``run_of``; {} without training.
      yaml: the same as blocks to paste.
      over_free: gain and error over the best that public text gives for nothing.
    """

    gradient_rho: float
    counts_rho: float
    rounds: int
    report_goal: int
    step_noise: float
    ships: Ships
    gain: float
    error: float
    run: Mapping[str, Any]
    yaml: str = ""
    over_free: tuple[float, float] = (0.0, 0.0)

    @property
    def rho(self) -> float:
        """zCDP of both together."""
        return self.gradient_rho + self.counts_rho

    @property
    def label(self) -> str:
        """The name for people: "gradients" or "counts" or both, with their rho."""
        parts = {"gradients": self.gradient_rho, "counts": self.counts_rho}
        return " + ".join(f"{name} rho {rho:.3g}" for name, rho in parts.items() if rho)


@dataclass(frozen=True)
class Verdict:
    """Verdict of a rehearsal on a launch.

    Attributes:
      answer: ``go``; ``no-go``; or ``inconclusive`` where the rehearsal's text could not have shown a gain.
      sentence: the same for a person.
      best: place of the recommended outcome; None without one.
      outcomes: all that were rehearsed, the launch file's own run first.
      start: top-1 recall before anything is spent.
      free: gain of the n-gram of the start's text, alone or mixed with the start, at no cost; at least 0.
      rho, training_devices: available budget, and number of devices.
      min_gain: the launch's own gate; a gain must exceed it.
      pseudo_users, words: who played them.
      notes: what else a reader must know, scaling above all.
      inputs: digest of everything that the outcomes depend on but their own runs.
    """

    answer: Literal["go", "no-go", "inconclusive"]
    sentence: str
    best: int | None
    outcomes: tuple[Outcome, ...]
    start: float
    rho: float
    training_devices: int
    min_gain: float
    pseudo_users: int
    words: int
    notes: tuple[str, ...]
    inputs: str
    free: float = 0.0

    def of(self, run: Mapping[str, Any]) -> Outcome | None:
        """The outcome of exactly this run; None if it was not rehearsed."""
        return next((outcome for outcome in self.outcomes if outcome.run and outcome.run == run), None)

    @property
    def least(self) -> float:
        """Lower bound that a gain must exceed: the launch's own gate, and the gain from public text without any rho."""
        return max(self.min_gain, self.free)

    def pays(self, outcome: Outcome) -> bool:
        """Return whether the gain exceeds the gate by more than chance explains, and that of public text by its value.

        Counts without training, which hold that text, must exceed it by more than chance explains too.
        """
        errors = margin(self.outcomes)
        sure = outcome.gain - errors * outcome.error
        beyond, error = outcome.over_free
        heard = outcome.gradient_rho > 0 or beyond - errors * error > 0
        return sure > self.min_gain and outcome.gain > self.least and heard


def run_of(mechanism: MechanismConfig, server_rate: float, counts: CountsConfig | None) -> dict[str, Any]:
    """Parts of a launch file that decide an outcome, as plain JSON values."""
    return {
        "mechanism": mechanism.model_dump(mode="json", exclude=_ASIDE),
        "server_learning_rate": server_rate,
        "counts": None if counts is None else counts.model_dump(mode="json"),
    }


def margin(outcomes: Sequence[Outcome]) -> float:
    """Standard errors by which a gain must exceed the gate; all outcomes share the error rate (Bonferroni)."""
    return NormalDist().inv_cdf(1 - CHANCE / max(len(outcomes), 1))


def judge(verdict: Verdict, headroom: float, least_headroom: float) -> Verdict:
    """Fill in answer, best and sentence of a verdict from its outcomes.

    Of the outcomes that pay, the best trade: those within one standard error of the largest gain are not told apart,
    and of them the one of least rho is taken, then of fewest devices in a round, none at all before any.

    Args:
      headroom: what training without noise gained on this text with people enough; at most ``least_headroom``
        means that no verdict can come from it.
    """
    outcomes = verdict.outcomes
    trained = [outcome for outcome in outcomes if outcome.gradient_rho]
    counted = [outcome for outcome in outcomes if not outcome.gradient_rho]
    if headroom <= least_headroom:
        sentence = (
            f"This rehearsal cannot tell: even without noise its text teaches the model {_points(headroom)}, so no "
            "gain could show. Pretraining has read this text, or text like it. Typed chat plays people where the "
            "start is English and has not read it (see docs/planning.md); --start lends such a start."
        )
        return replace(verdict, answer="inconclusive", best=None, sentence=sentence)
    counts = max(counted, key=lambda outcome: outcome.gain, default=None)
    devices = f"{verdict.training_devices:,} devices that train"
    limit = f"{devices} gain at most {_of_rho(max(trained, key=lambda outcome: outcome.gain))}"
    best = _best_trade([outcome for outcome in outcomes if verdict.pays(outcome)])
    if best is None:
        beside = "" if counts is None else f"; counts would give {_of_rho(counts)}"
        sentence = (
            f"This population is too small: {limit}, and more than {_points(verdict.least)} must be certain{beside}. "
            "Nothing was spent."
        )
    elif best.gradient_rho:
        sentence = (
            f"This launch pays: {devices} gain {_of_rho(best)} ({best.label}; {best.rounds:,} rounds of "
            f"{best.report_goal:,} devices)"
        )
        sentence += "." if counts is None else f"; counts would give {_of_rho(counts)} without training."
    else:
        ships = f"counts.model '{UNTRAINED[best.ships]}' ships them without training"
        if any(verdict.pays(outcome) for outcome in trained):
            sentence = f"This launch pays: {devices} gain {_of_rho(best)} by counts, and {ships}; by training {limit}."
        else:
            sentence = (
                f"This population is too small to train on: {limit}; counts would give {_of_rho(best)}, and that pays: "
                f"{ships}."
            )
    if verdict.free > 0:
        sentence += (
            f" The n-gram of its own text, alone or mixed with the start, gains {_points(verdict.free)} for nothing."
        )
    place = None if best is None else outcomes.index(best)
    return replace(verdict, answer="no-go" if best is None else "go", best=place, sentence=sentence)


def _best_trade(paying: Sequence[Outcome]) -> Outcome | None:
    if not paying:
        return None
    largest = max(paying, key=lambda outcome: outcome.gain)
    alike = [outcome for outcome in paying if outcome.gain >= largest.gain - largest.error]
    return min(alike, key=lambda outcome: (outcome.rho, outcome.report_goal, -outcome.gain))


def refusal(verdict: Verdict, outcome: Outcome) -> str | None:
    """Reason not to spend on a launch of this rehearsed run; None if it may spend.

    An ``inconclusive`` verdict refuses nothing. A run that does not pay is refused even where another
    split would: the launch's own gate would hold it after the spend.
    """
    if verdict.answer == "inconclusive" or verdict.pays(outcome):
        return None
    if verdict.answer == "no-go" or verdict.best is None:
        return verdict.sentence
    return (
        f"This run was rehearsed at {_in_points(outcome)} for rho {outcome.rho:.3g}, and more than "
        f"{_points(verdict.least)} must be certain. Another split pays. {verdict.sentence}"
    )


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON values, each outcome with its label."""
    rows = [asdict(outcome) | {"label": outcome.label, "rho": outcome.rho} for outcome in verdict.outcomes]
    return asdict(verdict) | {"outcomes": rows}


def from_json(content: Mapping[str, Any]) -> Verdict:
    """Read what ``as_json`` wrote."""
    rows = [{name: row[name] for name in Outcome.__dataclass_fields__} for row in content["outcomes"]]
    rows = [row | {"over_free": tuple(row["over_free"])} for row in rows]
    fields = {name: content[name] for name in Verdict.__dataclass_fields__}
    outcomes = tuple(Outcome(**row) for row in rows)
    return Verdict(**fields | {"outcomes": outcomes, "notes": tuple(content["notes"])})


def _points(share: float) -> str:
    return f"{100 * share:+.2f} points"


def _in_points(outcome: Outcome) -> str:
    return f"{_points(outcome.gain)} (± {200 * outcome.error:.2f})"


def _of_rho(outcome: Outcome) -> str:
    return f"{_in_points(outcome)} for rho {outcome.rho:.3g}"
