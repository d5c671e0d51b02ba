"""Gate texts: condition, field of the threshold and fix, for commands, reports and documentation."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from evaluation.config import RANDOM_CONTINUATIONS


@dataclass(frozen=True)
class GateWords:
    """Texts of one gate.

    Attributes:
      asks: the condition, as a sentence.
      field: field of the launch file that sets its threshold; empty if tacit sets it.
      fix: what to do if it fails.
      absent: launches without this gate, and its replacement there; empty if every launch has it.
      chance: how often it holds a launch without fault, for a gate that depends on a sample; empty for arithmetic.
    """

    asks: str
    field: str
    fix: str
    absent: str = ""
    chance: str = ""


_NOISE = (
    "raise mechanism.noise_multiplier, train for fewer rounds, or raise mechanism.min_sep ('tacit plan' shows the cost "
    "of each)"
)
_BUG = "this is a fault: keep the launch, run 'tacit verify' on it, and find the cause before another launch spends"
_FIGURES = (
    "chance holds at most one honest launch in a hundred here, a fault nearly every one: keep the launch, run 'tacit "
    "verify' on it, and launch again only if it finds nothing; the audits' figures are in private/audit/figures.json "
    "and must not leave it"
)
_REMEMBERS = (
    "the model memorises: add noise, lower mechanism.clip_norm or private_text.max_words_per_device, and launch again"
)
_MORE = (
    "gain more at the same rho, by more devices, a larger report goal or other rates ('tacit plan'), or keep the "
    "users' present model"
)
_NOTHING_TRAINED = "if counts ship alone: nothing is trained on devices, so no canary is planted"
_NOISE_OF_TRAINING = (
    "if counts ship alone: nothing is trained on devices, and 'release_audits' checks the counts' noise"
)
_AGGREGATOR_TRUSTED = "with central word discovery: words are part of the launch's rho, which 'budget' bounds"
_RECALL_ALONE = "if typing is not simulated: 'utility', 'top3_guardrail', 'ngram' and 'champion' judge recall"
_LARGER = (
    "try a smaller server.learning_rate, more or less rho on counts, or a stronger start, and read the "
    "report's table of arms"
)

GATES: Mapping[str, GateWords] = MappingProxyType(
    {
        "budget": GateWords(
            "The loss of one device to training and other noised releases is within the launch's ceiling.",
            "policy.max_rho",
            _NOISE,
        ),
        "total": GateWords(
            "The loss of one device to all releases of the launch, words included, is within the ceiling.",
            "policy.max_total_epsilon",
            "lower the costliest part ('tacit plan' lists them): discovery.messages_per_device or epsilon0, or "
            "more noise",
        ),
        "release_audits": GateWords(
            "Each release equals its bounded contributions plus its full noise, derived again from its key.", "", _BUG
        ),
        "accountants": GateWords(
            "Two independent accountants compute the same epsilon, within a thousandth.", "", _BUG
        ),
        "population_budget": GateWords(
            "The loss of one device to all launches on its population, without a window, is within the ceiling.",
            "policy.population_max_rho",
            "launch at a smaller rho, or have the population's budget reviewed ('tacit ledger budget')",
            "without policy.population_max_rho: 'window_budget' then bounds every window",
        ),
        "window_budget": GateWords(
            "The loss of one device to the launches in any window of policy.budget.days is within the ceiling.",
            "policy.budget",
            "wait until earlier launches leave the window ('tacit check' says from which day on), or spend less",
            "without policy.budget: 'population_budget' then bounds all launches",
        ),
        "min_sep": GateWords(
            "No device took part again sooner than the accounting assumes.", "mechanism.min_sep", _BUG
        ),
        "max_participations": GateWords(
            "No device took part more often than the accounting assumes.", "mechanism.max_participations", _BUG
        ),
        "violations": GateWords("Every participation was within the enforced limits.", "", _BUG),
        "discovery": GateWords(
            "Epsilon of one randomised message of local discovery is within its ceiling.",
            "policy.max_discovery_epsilon0",
            "lower discovery.epsilon0 to it",
            _AGGREGATOR_TRUSTED,
        ),
        "population_words": GateWords(
            "The loss of one device to words found locally by the launches that count is within the ceiling.",
            "policy.population_max_words_epsilon",
            "send fewer messages, discover less often, or have the population's budget reviewed",
            _AGGREGATOR_TRUSTED,
        ),
        "population_discovery": GateWords(
            "The loss of one typed word to the discoveries that may read it is within the ceiling.",
            "policy.population_max_discovery_epsilon",
            "discover less often or at a smaller discovery.epsilon0, or have the population's budget reviewed",
            _AGGREGATOR_TRUSTED,
        ),
        "canaries": GateWords(
            "The model ranks no canary of one device among the likeliest continuations.",
            "policy.min_canary_rank",
            _REMEMBERS,
            _NOTHING_TRAINED,
            chance="at most 1% of launches, which 'tacit check' ensures: the number of canaries on one device times "
            f"policy.min_canary_rank / {RANDOM_CONTINUATIONS:,} random continuations",
        ),
        "extraction": GateWords(
            "No search completes a canary of one device.",
            "",
            _REMEMBERS,
            _NOTHING_TRAINED,
            chance="below 0.01% of launches: a search completes a few of all continuations",
        ),
        "ceilings": GateWords(
            "The exposure of each canary of one device is within the guarantee.",
            "",
            "either chance, in at most one honest launch of a hundred, or missing noise: run 'tacit verify' on the "
            "launch, and launch again only if it finds nothing",
            _NOTHING_TRAINED,
            chance="at most 1% of launches",
        ),
        "pooled": GateWords(
            "The exposure of all canaries of one device together is within the guarantee.",
            "",
            "noise may be missing: run 'tacit verify' on the launch, and do not publish its model by hand",
            _NOTHING_TRAINED,
            chance="at most 1% of launches",
        ),
        "control": GateWords(
            "The attacks find canaries that were learnt without noise, which shows that they work.",
            "audit.examples",
            "give the control more to learn: more copies in audit.examples, or more rounds; then launch again",
            _NOTHING_TRAINED,
        ),
        "noise_audit": GateWords(
            "No audit contradicts the claimed noise, clipping, separation or accounting.",
            "audit.directions",
            _FIGURES,
            _NOISE_OF_TRAINING,
            chance="at most 1% of launches, with 'released' together; of 1,806 honest launches 0.4%",
        ),
        "released": GateWords(
            "The released models follow from released sums, and the sums from recorded devices and the full noise.",
            "",
            _FIGURES,
            _NOISE_OF_TRAINING,
            chance="with 'noise_audit', whose audits it repeats",
        ),
        "audit_power": GateWords(
            "The audits would notice a tenth less noise, or updates a tenth too long, with probability 0.9.",
            "mechanism.rounds",
            "give the audits more noise to test: more rounds, a larger model or more counts; then launch again",
            _NOISE_OF_TRAINING,
            chance="none: launch file and size of the model decide it, about a thousand weights are enough",
        ),
        "attempts": GateWords(
            "Confidence rises with every launch on the same held-out devices, so that none passes by luck.",
            "",
            "hold out other devices (another population), or publish nothing: the intervals widen by themselves",
        ),
        "utility": GateWords(
            "The private model's top-1 recall is significantly above its starting point's.",
            "policy.min_top1_gain",
            _MORE,
            chance="it holds 98.5% of models that gain nothing, for any number of devices; one that gains 2.2 points "
            "is held in a fourth of launches with 20 test devices, in none from 50",
        ),
        "top3_guardrail": GateWords(
            "The private model's top-3 recall falls by no more than allowed.",
            "policy.max_top3_loss",
            _MORE,
            chance="where it allows no loss, it holds 98.5% of models as good as the starting point, for any number of "
            "devices; one that gains 1.9 points is held in a third of launches with 20 test devices, in none from 100",
        ),
        "ngram": GateWords(
            "The private model is better than public n-grams, which have no privacy cost, and, where devices are "
            "evaluated without a budget, than the same words always.",
            "policy.min_ngram_gain",
            _MORE,
            chance="as 'utility', against the public models",
        ),
        "new_words": GateWords(
            "The model suggests discovered words where they are typed.",
            "policy.min_new_word_top3",
            "train longer on new words (adapt.steps), let fewer in (vocabulary.max_new_words), or add counts",
            "without policy.min_new_word_top3, as in demos without counts, from which new words take their frequency: "
            "the report's main concerns state their recall",
            chance="an interval of few words is wide: of models with a recall of 20% it holds 50% at 50 test devices, "
            "14% at 100, 2% at 200 and none from 500",
        ),
        "variety": GateWords(
            "The model suggests many different words rightly, not only a few frequent ones: at least a share of what "
            "the public n-gram reaches in the same number of words of public text.",
            "policy.min_variety",
            "too much noise leaves a few frequent words: use a larger report goal, a smaller server.learning_rate, or "
            "add counts",
            chance="none in 200 draws of people at each of ten sizes, from 1,000 typed words",
        ),
        "champion": GateWords(
            "No metric is clearly worse than with the users' present model; no policy can relax this.",
            "",
            "keep the users' present model. If it could not be compared, restore private_text.test_fraction to that of "
            "its launch",
            chance="at most 1.5% of equally good models for each feature at the first attempt, and fewer at later ones",
        ),
        "typing": GateWords(
            "No metric of simulated typing gets worse by more than its margin.",
            "",
            _LARGER,
            _RECALL_ALONE,
            chance="it passes an equally good model with the power that the report states: 95% from about 100 test "
            "devices with 150 words each, 39% at 20",
        ),
        "typists": GateWords(
            "The kinds of simulated typists agree, and none is clearly worse off.",
            "",
            "read the report's table of typists: some kinds of typists are worse off, or the gain is within the noise",
            "without simulated typing, or under a budget of evaluation, where one kind types: 'typing' judges alone",
            chance="at most 1.5% of equally good models for each baseline",
        ),
        "covered": GateWords(
            "Every use of private text spends from a budget: of a device, or of a typed word in local discovery.",
            "policy.cover_everything",
            "add the block evaluation, or remove cover_everything, and the report lists the uses that are not covered",
            "if policy.cover_everything is false: the report lists each use that no budget covers",
        ),
        "sources": GateWords(
            "Every public figure follows from releases, public text and the launch file, or comes from where it says.",
            "",
            _BUG + "; the figure's source is declared in pipeline/run/public_fields.py",
        ),
        "ledger": GateWords(
            "No entry of the privacy ledger was altered, removed or inserted, and a second sum of its spends "
            "fits every budget and gives the stated total.",
            "",
            "restore the ledger from a backup ('tacit ledger verify' lists its problems), then 'tacit launch' again",
        ),
    }
)


_UNKNOWN = GateWords("", "", "read its launch's report: this version of tacit has no such gate")


def words_of(gate: str, among: Mapping[str, GateWords] = GATES) -> GateWords:
    """Texts of a gate; a gate of a further feature, such as ``typing_OTF``, has those of the main one."""
    return among.get(gate) or among.get(gate.rpartition("_")[0], _UNKNOWN)
