"""Gate texts: the question, the place of the threshold and the fix, for commands, reports and documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class GateWords:
    """One gate in words.

    Attributes:
      asks: what must hold, in a sentence.
      field: of the launch file, where its threshold is set; empty where tacit sets it.
      fix: what to do when it fails.
      absent: which launches are decided without this gate, and what stands for it there; empty: none are.
    """

    asks: str
    field: str
    fix: str
    absent: str = ""


_NOISE = (
    "raise mechanism.noise_multiplier, train for fewer rounds, or let devices rest longer ('tacit plan' says what each "
    "costs)"
)
_BUG = "this should not happen: keep the launch, run 'tacit verify' on it, and find out why before another one spends"
_FIGURES = _BUG + "; the audits' figures are in private/audit/figures.json and must not leave it"
_REMEMBERS = (
    "the model remembers: add noise, lower mechanism.clip_norm or private_text.max_words_per_device, and launch again"
)
_MORE = (
    "gain more at the same rho, by more devices, a larger report goal or other rates ('tacit rehearse', then 'tacit "
    "plan'), or leave users with what they have"
)
_NOTHING_TRAINED = "where counts ship alone: nothing was trained on devices, so no canary was planted"
_NOISE_OF_TRAINING = "where counts ship alone: nothing was trained on devices, and counts are made again from their key"
_AGGREGATOR_TRUSTED = (
    "where an aggregator is trusted with words: they are part of the launch's rho, which 'budget' bounds"
)
_RECALL_ALONE = "where typing is not simulated: recall is judged by 'utility', 'top3_guardrail', 'ngram' and 'champion'"
_LARGER = (
    "rehearse with a smaller server.learning_rate, more or less rho on counts, or a stronger start, and read the "
    "report's table of arms"
)

GATES: Mapping[str, GateWords] = MappingProxyType(
    {
        "budget": GateWords("One device loses no more than the launch may cost it.", "policy.max_rho", _NOISE),
        "total": GateWords(
            "One device loses no more than this to all releases of the launch together, words too.",
            "policy.max_total_epsilon",
            "lower the part that costs most ('tacit plan' names them): discovery.messages_per_device or epsilon0, or "
            "more noise",
        ),
        "population_total": GateWords(
            "One device loses no more than this to all releases of all launches, for ever.",
            "policy.population_max_epsilon",
            "launch at a smaller loss, or have the population's budget reviewed ('tacit ledger budget')",
            "where policy.population_max_epsilon is left out: 'window_total' then bounds every window",
        ),
        "window_total": GateWords(
            "One device loses no more than this to all releases of the launches of any so many days.",
            "policy.budget",
            "wait until earlier launches leave the window ('tacit check' says from which day on), or spend less",
            "where policy.budget is left out: 'population_total' then bounds all launches there ever are",
        ),
        "release_audits": GateWords(
            "Each release is its bounded contributions and all of its noise, made again from its key.", "", _BUG
        ),
        "accountants": GateWords(
            "Two independent accountants come to the same epsilon, within a thousandth.", "", _BUG
        ),
        "population_budget": GateWords(
            "One device loses no more than this to all launches on its population, for ever.",
            "policy.population_max_rho",
            "launch at a smaller rho, or have the population's budget reviewed ('tacit ledger budget')",
            "where policy.population_max_rho is left out: 'window_budget' then bounds every window",
        ),
        "window_budget": GateWords(
            "One device loses no more than this to the launches of any so many days.",
            "policy.budget",
            "wait until earlier launches leave the window ('tacit check' says from which day on), or spend less",
            "where policy.budget is left out: 'population_budget' then bounds all launches there ever are",
        ),
        "min_sep": GateWords("No device took part again sooner than it was accounted for.", "mechanism.min_sep", _BUG),
        "max_participations": GateWords(
            "No device took part more often than it was accounted for.", "mechanism.max_participations", _BUG
        ),
        "violations": GateWords("Every participation kept to the enforced limits.", "", _BUG),
        "discovery": GateWords(
            "One randomised message of local discovery tells no more than allowed.",
            "policy.max_discovery_epsilon0",
            "lower discovery.epsilon0 to it",
            _AGGREGATOR_TRUSTED,
        ),
        "population_discovery": GateWords(
            "One typed word loses no more than this to the discoveries that may read it.",
            "policy.population_max_discovery_epsilon",
            "discover less often or at a smaller discovery.epsilon0, or have the population's budget reviewed",
            _AGGREGATOR_TRUSTED,
        ),
        "canaries": GateWords(
            "The model ranks no secret of one device among the likeliest continuations.",
            "policy.min_canary_rank",
            _REMEMBERS,
            _NOTHING_TRAINED,
        ),
        "extraction": GateWords(
            "No search completes a secret of one device.",
            "",
            _REMEMBERS,
            _NOTHING_TRAINED,
        ),
        "ceilings": GateWords(
            "No secret of one device is better known than the guarantee allows.",
            "",
            "either chance, which the gate 'pooled' weighs, or noise that is missing: run 'tacit verify' on the launch",
            _NOTHING_TRAINED,
        ),
        "pooled": GateWords(
            "All secrets of one device together are no better known than the guarantee explains.",
            "",
            "noise may be missing: run 'tacit verify' on the launch, and do not publish its model by hand",
            _NOTHING_TRAINED,
        ),
        "control": GateWords(
            "Secrets that were learnt without noise are found, so that finding none of the others means something.",
            "audit.examples",
            "give the control more to learn: more copies in audit.examples, or more rounds; then launch again",
            _NOTHING_TRAINED,
        ),
        "noise_audit": GateWords(
            "No audit speaks against the claimed noise, clipping, separation or accounting.",
            "audit.directions",
            _FIGURES,
            _NOISE_OF_TRAINING,
        ),
        "released": GateWords(
            "The released models follow from released sums, and these from recorded devices and all the noise.",
            "",
            _FIGURES,
            _NOISE_OF_TRAINING,
        ),
        "audit_power": GateWords(
            "The audits would notice a tenth less noise, or updates a tenth too long, nine times out of ten.",
            "mechanism.rounds",
            "give the audits more noise to look at: more rounds, a larger model or more counts; then launch again",
            _NOISE_OF_TRAINING,
        ),
        "attempts": GateWords(
            "Intervals are surer with every launch that asks the same held-out devices, or one of many passes by luck.",
            "",
            "hold out other devices (another population), or publish nothing: the intervals widen by themselves",
        ),
        "utility": GateWords(
            "The private model predicts more first words than its start, beyond doubt.", "policy.min_top1_gain", _MORE
        ),
        "top3_guardrail": GateWords(
            "The private model loses no more of the three suggestions than allowed.", "policy.max_top3_loss", _MORE
        ),
        "ngram": GateWords(
            "The private model is better than public n-grams, which cost nobody anything.",
            "policy.min_ngram_gain",
            _MORE,
        ),
        "new_words": GateWords(
            "Where a discovered word is typed, it is among the suggestions.",
            "policy.min_new_word_top3",
            "train longer on new words (adapt.steps), let fewer in (vocabulary.max_new_words), or add counts",
            "where policy.min_new_word_top3 is left out, as in demos without counts, from which new words take their "
            "frequency: the report's main concerns say how seldom they are suggested",
        ),
        "variety": GateWords(
            "The model says many different words first, and does not fall back on a few.",
            "policy.min_distinct_first_words",
            "a model drowned in noise repeats itself: a larger report goal, a smaller clip norm, or counts beside it",
        ),
        "champion": GateWords(
            "No metric is clearly worse than with the model that users have, whatever the policy says.",
            "",
            "leave users with the model that they have. Where it could not be compared, put private_text.test_fraction "
            "back to that of its launch",
        ),
        "typing": GateWords(
            "For people who type, no metric gets worse than its margin.",
            "",
            _LARGER,
            _RECALL_ALONE,
        ),
        "typists": GateWords(
            "Kinds of simulated typists agree, and none is clearly worse off.",
            "",
            "read the report's table of typists: who types differently is worse off, or the gain is within the noise",
            _RECALL_ALONE,
        ),
        "covered": GateWords(
            "Every use of private text spends from a budget: a device's, or a typed word's in local discovery.",
            "policy.cover_everything",
            "add the block evaluation, or leave cover_everything out and let the report list what is not covered",
            "where policy.cover_everything is false: the report lists each use that no budget covers",
        ),
        "live_days": GateWords(
            "Of an experiment: both arms logged something on every day of its window.",
            "experiment.days",
            "find the days that are missing, and decide again with all files ('tacit experiment decide')",
        ),
        "live_buckets": GateWords(
            "Of an experiment: both arms have buckets enough for an interval.",
            "experiment.share",
            "give the model to a larger experiment.share, or divide devices into more buckets",
        ),
        "live_split": GateWords(
            "Of an experiment: as many buckets got the model as were to, within luck.",
            "experiment.share",
            "the arms cannot be compared: find out which buckets are lost or assigned otherwise, then launch again",
        ),
        "live_control": GateWords(
            "Of an experiment: all other devices had throughout what users have now.",
            "",
            "another version became champion meanwhile; launch again, against that one",
        ),
        "live_gain": GateWords(
            "Of an experiment: what decides a feature changed by more than asked for, beyond doubt.",
            "experiment.min_gain",
            "users keep what they have; read every metric ('tacit ab LAUNCH --logs'). A longer or larger experiment "
            "has narrower intervals",
        ),
        "live_guardrails": GateWords(
            "Of an experiment: no other metric is shown to be worse than allowed.",
            "",
            "users keep what they have; find out for whom it is worse before another launch",
        ),
        "ledger": GateWords(
            "The privacy ledger is the one that was written, entry by entry.",
            "",
            "restore the ledger from a backup ('tacit ledger verify' says what is wrong), then 'tacit launch' again",
        ),
    }
)


_UNKNOWN = GateWords("", "", "see what its report says of it: this version of tacit has no such gate")


def words_of(gate: str) -> GateWords:
    """Texts of a gate; a gate of a further feature, such as ``typing_OTF``, has those of the main one."""
    return GATES.get(gate) or GATES.get(gate.rpartition("_")[0], _UNKNOWN)
