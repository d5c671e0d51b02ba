"""A launch's gain, forecast from its file and its number of devices: over its start, and over what costs nothing.

No forecast is known for Adam, and for models that hold counts beside a trained network or alone.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from evaluation.config import CONFIDENCE, VARIETY_WORDS
from federated.planning import gain, law
from federated.planning.gain import Forecast
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.launch.policy import PolicyConfig
from pipeline.releases.terms import Terms
from reports.listed import foreseen

if TYPE_CHECKING:
    from pipeline.run.cache import CacheHit

_SPOKEN = {"en": "English", "es": "Spanish", "fr": "French"}


@dataclass(frozen=True)
class GainGate:
    """A gate on the gain in top-1 recall, before anything is measured; all in points.

    Attributes:
      field: of the launch file, the gate's bound.
      beside: model that the gain is over.
      gain: forecast.
      bound: the lower end of the measured interval must reach it.
      held: probability that it does not, by the forecast's error and the draw of test devices.
    """

    field: str
    beside: str
    gain: Forecast
    bound: float
    held: float

    def __str__(self) -> str:
        """Format the probability and the gain."""
        held = "less than 1%" if self.held < 0.01 else "more than 99%" if self.held > 0.99 else f"{self.held:.0%}"
        return (
            f"{self.field}: {self.bound / 100:g} holds {held} of such launches, by a forecast of "
            f"{foreseen(self.gain)} points over {self.beside}"
        )


# Result of stage ``pretrain``; empty before it.
Pretrained = Mapping[str, Any]


def pretrained(settings: Settings, run_id: str, reuse: "Collection[CacheHit]") -> Pretrained:
    """Return the result of a launch's own pretraining, or of that of another launch that it will reuse."""
    from pipeline.run.known import run_folder

    source = next((hit.launch_id for hit in reuse if hit.stage == "pretrain" and not hit.problem), run_id)
    record = run_folder(settings, source).record("pretrain")
    return record.result if record else {}


def public_needs(policy: PolicyConfig, public: Pretrained) -> tuple[str, ...]:
    """State, for each gate on quality, what it needs by what is known of public text; empty before pretraining."""
    if not public:
        return ()
    recall, variety = public["public_recall"], public["public_variety"]
    start, floor = recall["start"], policy.min_variety * variety["ngram"]
    below = ", below it: a launch must teach them" if variety["start"] < floor else ""
    return (
        f"utility: more than {100 * policy.min_top1_gain:g} points over the start, which has {start:.1%} of next words "
        "right on held-out public text",
        f"ngram: {100 * policy.min_ngram_gain:g} points or more over the best of what needs no people: there an n-gram "
        f"has {recall['ngram']:.1%} right and both mixed {recall['public_mixture']:.1%}, {_lead(public):+.2f} points "
        f"over the start; of such a lead 29 to 55% was left on people, in three small English launches",
        f"variety: {floor:.1f} different right words in {VARIETY_WORDS} typed words or more, {policy.min_variety:g} of "
        f"the n-gram's there; the start has {variety['start']:.1f}{below}",
    )


def _lead(public: Pretrained) -> float:
    """Points by which the better of n-gram and mixture leads the start on public text; none below zero."""
    return 100 * (max(public["public_recall"].values()) - public["public_recall"]["start"])


def _free(public: Pretrained) -> tuple[float, float]:
    return gain.free_on_people(_lead(public)) if public else gain.FREE


def gain_gates(terms: Terms, public: Pretrained) -> tuple[GainGate, ...]:
    """Return the gates on gains; empty where devices are unknown or there is no forecast.

    Noise of ``evaluation`` is left out; it holds more launches.

    Args:
      public: narrows down what an n-gram of public text gives for nothing.
    """
    config, splits = terms.config, terms.splits or {}
    over_start = forecast(config, splits["train"]) if splits.get("train") and splits["test"] else None
    if over_start is None:
        return ()
    drawn = gain.PEOPLE_ERROR / math.sqrt(splits["test"])
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * drawn

    def of(field: str, beside: str, over: Forecast, bound: float) -> GainGate:
        held = NormalDist(over.points - half, math.hypot(over.error, drawn)).cdf(bound)
        return GainGate(f"policy.{field}", beside, over, bound, held)

    policy, over_free = config.policy, gain.over_free(over_start, _free(public))
    return (
        of("min_top1_gain", "the start", over_start, 100 * policy.min_top1_gain),
        of("min_ngram_gain", "the start with a public n-gram", over_free, 100 * policy.min_ngram_gain),
    )


def uncertain(terms: Terms, public: Pretrained) -> tuple[str, ...]:
    """Warnings of gates that hold more launches like this one than an interval's lower end should.

    No launch is refused for it: people whose text the start knows little of gain many times what is forecast.
    """
    gates = [str(gate) for gate in gain_gates(terms, public) if gate.held > (1 - CONFIDENCE) / 2]
    train = terms.splits["train"] if terms.splits else 0
    return (*gates, f"these forecasts are what {measured_on(terms.config, train)}") if gates else ()


def measured_on(config: LaunchConfig, devices: int) -> str:
    """People and network whose gains a forecast is made of, and what of this launch is none of that.

    Args:
      devices: that train.
    """
    (fewest, most), words = gain.PEOPLE, config.vocabulary.base_size
    other = {
        config.locale: config.locale.partition("-")[0] not in gain.LANGUAGES,
        f"{devices:,} devices": not fewest <= devices <= most,
        f"{config.model.hidden_dim:,} hidden units": config.model.hidden_dim != gain.HIDDEN,
        f"{words:,} words": words != gain.WORDS,
    }
    *some, last = (_SPOKEN[each] for each in gain.LANGUAGES)
    said = (
        f"{gain.POPULATIONS} populations of {fewest:,} to {most:,} people gained, in {', '.join(some)} and {last}, "
        f"with {gain.HIDDEN} hidden units and {gain.WORDS:,} words, on ways of at most {gain.NOISY_WAY:g}, and one of "
        "them on longer ways without noise"
    )
    unlike = ", ".join(name for name, differs in other.items() if differs)
    return f"{said}; nothing was measured with this launch's {unlike}" if unlike else said


def least_gain(policy: PolicyConfig, public: Pretrained) -> float:
    """Points over the start that both gates ask for."""
    return 100 * max(policy.min_top1_gain, policy.min_ngram_gain + _free(public)[0] / 100)


def forecast(config: LaunchConfig, devices: int, share: float = 1.0) -> Forecast | None:
    """Forecast a launch's gain over its start; None without a forecast.

    Its way is as long as its server rate lets it be, or as its noise does if that is less.

    Args:
      devices: that train.
      share: of the launch's rho for counts and training that they have.
    """
    if not _is_known(config):
        return None
    left = gain.left(config.public_text.source)
    if not config.trains:
        assert config.counts is not None, "a launch counts or trains"
        return gain.counts(gain.heard(devices, share * config.counts.rho), left)
    step = law.step(config.mechanism, config.server)
    assert step is not None, "Adam has no forecast"
    way = math.sqrt(share) * step.way * min(1.0, law.STEP_NOISE / step.noise)
    return _trained(config, min(law.longest_way(config.mechanism, config.server), way))


def without_privacy(config: LaunchConfig) -> Forecast | None:
    """Forecast of the launch's training without noise; None if it is measured, not trained, or no forecast is known.

    Training then goes as far as the step law was measured.
    """
    asked = config.trains and not config.ab_test.non_private_upper_bound and _is_known(config)
    return _trained(config, law.longest_way(config.mechanism, config.server)) if asked else None


def _trained(config: LaunchConfig, way: float) -> Forecast:
    return (gain.both if config.counts_move_start else gain.training)(way, gain.left(config.public_text.source))


def _is_known(config: LaunchConfig) -> bool:
    mixed = config.ships == "mixture" if config.trains else config.ships == "counts"
    return not (mixed or (config.trains and config.server.optimizer == "adam"))
