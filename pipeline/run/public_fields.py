"""List of all values that may leave ``private/``: every field of every public result, and every public file, with its
source.

The runner refuses a result with a field that has no source. The source of a new figure is thus declared here, once, in
a closed vocabulary, instead of searching for values that should not have left. None of the sources is the noise, an
unnoised sum, one device's text, norm or loss, or a statistic of these. A declaration is not believed: a gate and
``tacit verify`` make every field of the sources in ``REMADE`` again from public files (``pipeline.stages.remade``).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, get_args

from pydantic import BaseModel

from pipeline.ground.errors import PermanentError


class Source(StrEnum):
    """Source of a public figure. Those in ``REMADE`` follow from public files alone."""

    FILE = "launch file, and constants of the code"
    PUBLIC = "public text"
    RELEASED = "post-processing of public releases and public text"
    ACCOUNTED = "accounting of the launch file over the stated participation"
    COMPARED = "the comparison file"
    REPEATED = "public text as it was read, and training on it, which only a repetition gives again"
    RELEASE = "an accounted release itself"
    UNREVIEWED = "released votes and words that stay private, as nobody has reviewed them"
    ATTACKED = "attack on the model, or on one that a secret key of its own trained on public text"
    SCHEDULE = "participation of devices: their number in tens, the launch file and a secret key, never their text"
    PERSON = "a person's decision about a release"
    CLOCK = "the clock: an hour, and two digits of a duration"
    STORE = "use without a budget: counts of devices in tens, of rows in hundreds"
    KEYED = "digest that covers a secret key"
    HELD_OUT = "held-out devices: released under the budget of evaluation, or listed as a use without one"
    VERDICT = "use without a budget: the verdict of an audit, which an honest run passes whatever its devices typed"
    LOGGED = "counts that keyboards logged, listed as a use without a budget"
    LEDGER = "ledger, registry and earlier launches"
    INSTALLATION = "versions, processor, and what this machine draws or prints"


# ``stages.remade`` makes fields and files of these sources again, without key or store; other ones are seldom made.
REMADE = (Source.FILE, Source.PUBLIC, Source.RELEASED, Source.ACCOUNTED, Source.COMPARED)
_FILE, _PUBLIC, _RELEASED, _ACCOUNTED, _COMPARED = REMADE
_REPEATED, _RELEASE, _UNREVIEWED, _ATTACKED = Source.REPEATED, Source.RELEASE, Source.UNREVIEWED, Source.ATTACKED
_SCHEDULE, _PERSON, _CLOCK, _STORE, _KEYED = (
    Source.SCHEDULE,
    Source.PERSON,
    Source.CLOCK,
    Source.STORE,
    Source.KEYED,
)
_HELD_OUT, _VERDICT = Source.HELD_OUT, Source.VERDICT
_LEDGER, _INSTALLATION = Source.LEDGER, Source.INSTALLATION
Fields = dict[Source, str]

# Fields of each class, by source; inherited fields are listed with the class that declares them, blocks with their own
# class, and the keys of a free mapping under ``Class.field``.
FIELDS: dict[str, Fields] = {
    # Every stage.
    "StageResult": {},
    "Dataset": {_FILE: "context", _RELEASED: "name", _KEYED: "digest"},
    "Spend": {
        _FILE: "unit adjacency delta split messages device_delta",
        _ACCOUNTED: "rho epsilon failure note device_epsilon",
    },
    "StageRecord": {
        _FILE: "stage config_digest",
        _RELEASED: "outputs result",
        _KEYED: "private_digest inputs",
        _LEDGER: "launch_id ledger content reused_from private_outputs",
        _INSTALLATION: "processor",
        _CLOCK: "started_at seconds",
    },
    # Text, models of public text.
    "PublicText": {_PUBLIC: "revision source licence documents train_tokens left_out_documents"},
    "TextPart": {_PUBLIC: "name licence words synthetic"},
    "IngestPublic": {_PUBLIC: "validation_tokens vocabulary_size corpus_digest vocabulary_digest"},
    "IngestPrivate": {
        _FILE: "population source synthetic",
        _LEDGER: "split_rule days_kept as_of",
        _KEYED: "store_digest",
        _STORE: "devices_at_least devices_by_split other_locales older unreadable",
    },
    "PublicTraining": {_RELEASED: "parameters validation_loss validation_top1", _REPEATED: "steps"},
    "Pretraining": {_REPEATED: "public_recall public_variety"},
    "PublicTraining.curve": {_REPEATED: "step train_loss validation_loss validation_top1", _CLOCK: "seconds"},
    "NewWordAdaptation": {
        _RELEASED: "new_words_in_text new_word_sentences copies new_word_loss_before new_word_loss_after",
    },
    "Adaptation": {_RELEASED: "new_words"},
    # Words.
    "DiscoveryLayer": {
        _FILE: "layer",
        _SCHEDULE: "messages",
        _UNREVIEWED: "word_votes domain kept finished",
        _ACCOUNTED: "noise one_holder_chance anonymity lemma_1 clones blanket attack",
    },
    "DiscoveryGuarantee": {
        _FILE: "epsilon0 messages_per_device secure_aggregation honest_share device_level_epsilon0 delta certificate",
        _ACCOUNTED: "device_epsilon_central epsilon_central epsilon_clones epsilon_attack",
    },
    "LocalWords": {_FILE: "name"},
    "Discover": {_UNREVIEWED: "words_found", _KEYED: "words_sha256"},
    "Discover.curve": {
        _RELEASED: "step layer messages word_votes one_holder_chance anonymity domain kept finished "
        "noise lemma_1 clones blanket attack",
    },
    "CentralGuarantee": {
        _FILE: "noise_multiplier words_per_device threshold rho epsilon delta failure forms_share filled_share",
    },
    "CentralWords": {_FILE: "name"},
    "DiscoverCentral": {_UNREVIEWED: "words_found", _KEYED: "words_sha256"},
    "WordsDropped": {
        _FILE: "reviewed",
        _PERSON: "dropped_by_person",
    },
    "WordFilter": {_FILE: "name sentence", _UNREVIEWED: "dropped"},
    "BuildVocabulary": {_PUBLIC: "base_size", _RELEASED: "added size vocabulary_digest"},
    "AddedWords": {
        _RELEASED: "words_added words",
        _UNREVIEWED: "words_found",
        _KEYED: "given_files",
        _HELD_OUT: "coverage coverage_low coverage_high",
    },
    # Plan, counts, training.
    "Plan": {
        _ACCOUNTED: "reasons rho delta epsilon sensitivity_squared alternatives min_sep_by_the_clock run_days feasible "
        "rounds_below_goal",
    },
    "Gaussian": {_FILE: "rho epsilon"},
    "Counts": {
        _FILE: "name noise_multiplier clip_norm start_weight",
        _RELEASED: "cells contexts",
    },
    "Evaluation": {_FILE: "name noise_multiplier clip_norm most_words"},
    "PrivacyLoss": {_FILE: "delta", _ACCOUNTED: "rho mu epsilon epsilon_pld"},
    "TrainingLoss": {_ACCOUNTED: "sensitivity_squared", _RELEASED: "rounds_root"},
    "Training": {_FILE: "name", _ACCOUNTED: "planned_rho"},
    "Amplification": {
        _ACCOUNTED: "sampling sampling_rate epsilon epsilon_second methods adjacency assumption",
    },
    "Timetable": {_SCHEDULE: "run_days shortest_minutes median_minutes longest_minutes median_minutes_by_part"},
    "ObservedParticipation": {
        _SCHEDULE: "observed_min_sep observed_mins observed_max_participations violations synthetic_devices "
        "participation_histogram separation_histogram rounds_below_goal mean_devices check_ins fewest_check_ins",
    },
    "FineTune": {
        _FILE: "rounds precision report_goal",
        _ACCOUNTED: "accountants_agree accounting_methods norm_inflation",
        _SCHEDULE: "synthetic_participations",
        _HELD_OUT: "validation_recall_before validation_recall_after",
    },
    "FineTune.secagg": {
        _FILE: "bits wrap_probability",
        _SCHEDULE: "num_parameters order devices scale element_bound norm_limit inflated_norm clipped_fraction "
        "rounding_std",
    },
    "FineTune.curve": {
        _FILE: "step",
        _RELEASE: "clip_norm clip_estimate",
        _HELD_OUT: "validation_loss validation_top1 validation_recall",
    },
    # Audits.
    "AuditVerdict": {_FILE: "type tested", _ACCOUNTED: "least_noise least_clip", _VERDICT: "verdict"},
    "ReleaseVerdict": {_VERDICT: "name tested slack passed sentence"},
    "ReleaseAudit": {_LEDGER: "stage made_by cited"},
    "AuditBlock": {
        _FILE: "in_launch random_continuations alpha",
        _KEYED: "seed_commitment",
        _RELEASED: "worst_rank_single_user max_exposure_bits found_single_user broken_ceilings pooled_p_value",
    },
    "Audit": {_RELEASED: "found_by_beam", _VERDICT: "noise_audit_passed"},
    "Audit.headline": {_RELEASED: "exposure_bits"},
    "CanaryResult": {
        _FILE: "population n_u n_e",
        _SCHEDULE: "participations ceiling_bits",
        _ATTACKED: "rank rank_standard_error exposure_bits exposure_low_bits exposure_high_bits found_by_beam "
        "found_by_best_first loss",
    },
    "Canary": {_SCHEDULE: "mu vacuous", _ATTACKED: "method within_ceiling"},
    "StressBlock": {
        _RELEASED: "canaries worst_rank_single_user max_exposure_bits max_exposure_bits_single_user found "
        "found_single_user",
    },
    "TwinBlock": {_FILE: "populations", _ATTACKED: "words_per_user weights_sha256 pseudo_users"},
    "ControlBlock": {_ATTACKED: "rounds devices"},
    "ControlRow": {_ATTACKED: "n_e canaries found worst_rank"},
    # The comparison.
    "Utility": {
        _FILE: "simulation_without_privacy",
        _LEDGER: "attempt",
        _COMPARED: "devices_at_least words judged_words drowned compose_at_rate variety session_words confidence "
        "features",
    },
    "AbTest": {
        _COMPARED: "top1_recall top3_recall top1_gain top1_gain_low top1_gain_high top3_gain_low ngram_gain_low "
        "new_word_top3_low variety_private variety_public broken_margins missing_metrics worse_than_champion "
        "broken_typists",
        _HELD_OUT: "coverage coverage_low coverage_high",
    },
    "AbTest.headline": {_COMPARED: "top1_recall top1_gain new_words_*"},
    "Champion": {_LEDGER: "registered_model version launch_id bundle_sha256 left_out arm"},
    "EarlierLaunch": {_LEDGER: "created_at releases devices_at_least words_added"},
    "OtherFeature": {_LEDGER: "attempt", _COMPARED: "broken_margins missing_metrics worse_than_champion"},
    "ArmMetric": {_COMPARED: "arm metric numerator denominator value low high"},
    "Beginning": {_FILE: "text", _RELEASED: "suggested expected"},
    "Pair": {_COMPARED: "candidate baseline metric"},
    "Difference": {_COMPARED: "value low high relative"},
    "SliceMetric": {_COMPARED: "part arm metric value low high"},
    "Verdict": {
        _COMPARED: "candidate baseline feature primary passes failed missing margin standard_error power",
    },
    "SecondOpinion": {_COMPARED: "jackknife delta bootstrap agree"},
    "HeadWords": {_COMPARED: "arm words typed predicted right"},
    # Decision, report, publication: their fields follow from the results above.
    "GateResult": {_FILE: "id title asks threshold", _RELEASED: "value shown passed evidence"},
    "DecisionBlock": {_RELEASED: "decision reasons", _INSTALLATION: "not_repeated"},
    "Decide.headline": {_RELEASED: "decision", _FILE: "delta failure", _ACCOUNTED: "rho epsilon guarantee loss"},
    "Report": {_RELEASED: "disclosure_sha256 summary concerns", _INSTALLATION: "files"},
    "Publish": {
        _LEDGER: "registered_model version versions alias",
        _PERSON: "published reason",
        _RELEASED: "parity_max_difference dictionary_words dictionary_of files",
        _INSTALLATION: "registered_files",
    },
    "Int8": {
        _RELEASED: "shipped reasons words top1_agreement top3_agreement max_logit_difference float_bytes int8_bytes",
        _CLOCK: "float_seconds int8_seconds",
    },
    # Blocks that the disclosure alone has.
    "Disclosure": {_FILE: "schema_version unit adjacency output assumptions limitations"},
    "Tool": {_INSTALLATION: "name version git_commit lock_digests"},
    "Launch": {
        _FILE: "name locale feature features contact intended_use reviewers approvals synthetic_population "
        "seeded_randomness ships trust tuning",
        _LEDGER: "id",
        _CLOCK: "created_at",
    },
    "DataAccess": {_FILE: "stage data covered mechanism unit reason"},
    "Artifact": {_RELEASED: "stage file sha256 made_by"},
    "Verification": {_LEDGER: "ledger_head ledger_entries command"},
    "Population": {
        _FILE: "name source synthetic",
        _LEDGER: "split_rule days_kept as_of",
        _STORE: "devices_at_least devices_by_split other_locales older unreadable",
    },
    "Mechanism": {
        _FILE: "kind clip_norm noise_multiplier rounds report_goal parameters local_training server",
    },
    "Participation": {_FILE: "enforced_min_sep enforced_max_participations"},
    "SecAgg": {
        _FILE: "bits neighbours threshold wrap_probability",
        _SCHEDULE: "inflated_norm clipped_fraction rounding_std",
    },
    "Accounting": {_FILE: "randomness agree methods failure forecast_of", _ACCOUNTED: "curve"},
    "Gain": {_ACCOUNTED: "points error"},
    "ForecastGain": {_ACCOUNTED: "epsilon"},
    "Total": {_FILE: "unit devices delta", _ACCOUNTED: "epsilon"},
    "Part": {_FILE: "releases split delta", _ACCOUNTED: "epsilon rho how"},
    "Composition": {_LEDGER: "total_rho total_failure ceiling_rho"},
    "PopulationSpend": {_LEDGER: "launch_id stage kind rho split failure reserved"},
    "LaunchSpend": {_LEDGER: "launch_id rho epsilon delta"},
    "WindowLoss": {_LEDGER: "days ceiling_rho most_rho"},
    "ReusedRelease": {_LEDGER: "stage launch_id unit rho epsilon"},
    "Curves": {_RELEASED: "pretraining adaptation fine_tuning"},
}
# The public files of a stage, by the class of its result.
FILES: dict[str, Mapping[str, Source]] = {
    "IngestPublic": {"corpus/*": _REPEATED, "vocabulary.json": _PUBLIC},
    "PublicTraining": {"model.safetensors": _REPEATED},
    "BuildVocabulary": {"vocabulary.json": _RELEASE, "frequencies.json": _RELEASE, "shown.json": _RELEASE},
    "Plan": {"mechanism.json": _FILE},
    "Count": {"counts.npz": _RELEASE},
    "FineTune": {
        "model.safetensors": _RELEASE,
        "start.safetensors": _REPEATED,
        "canaries.json": _RELEASED,
        # Digests of released sums and models, and keyed ones of cohorts.
        "rounds.json": _KEYED,
    },
    "Audit": {"canaries.json": _RELEASED},
    "AbTest": {"comparison.json": _HELD_OUT},
    # Renderings of the disclosure; a printed page depends on the machine's fonts.
    "Report": {"report.pdf": _INSTALLATION, "*": _RELEASED},
    "Publish": {"bundle/*": _RELEASED},
}
# The files of a launch's proof: digests of what is listed above, which this installation signs.
_PROVEN = ("*.link", "root.layout", "provenance.json", "model.sig", "*.pub")
PROOF: Mapping[str, Source] = {
    **dict.fromkeys(("log-keys.json", *_PROVEN), _INSTALLATION),
    # Of the launch's own entries what its records say, in a log whose size and last second the witness states.
    "*.tlog-proof": _LEDGER,
}
# Fields whose keys are set by code: each key is a figure of its own.
FREE = ("headline", "curve", "secagg")


def require_listed(result: BaseModel, files: Iterable[str] = (), fields: Mapping[str, Fields] = FIELDS) -> None:
    """Refuse a result with a field, or a public file, that has no source.

    Guarantee: every value that the runner keeps of a stage, and so every value that MLflow, Airflow, gates and reports
    can read, is on the list.

    Raises:
      PermanentError: a field or file is not on the list.
    """
    sourceless = [*unlisted(result, fields), *(name for name in files if file_source(type(result), name) is None)]
    if sourceless:
        raise PermanentError(
            f"{', '.join(sorted(set(sourceless)))}: no source in pipeline/run/public_fields.py, so it may not leave; "
            "declare its source there, or keep it in the private half"
        )


def unlisted(value: Any, fields: Mapping[str, Fields]) -> Iterator[str]:
    """Yield fields of a result, and of all its blocks, that have no source."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            content = getattr(value, name)
            if blocks_of(field.annotation):
                yield from unlisted(content, fields)
            elif name in FREE and not source(type(value), name, fields):
                yield from _unlisted_keys(type(value), name, content)
            elif source(type(value), name, fields) is None:
                yield f"{type(value).__name__}.{name}"
    elif isinstance(value, Mapping):
        for content in value.values():
            yield from unlisted(content, fields)
    elif isinstance(value, tuple | list):
        for content in value:
            yield from unlisted(content, fields)


def source(of: type[BaseModel], name: str, fields: Mapping[str, Fields] = FIELDS) -> Source | None:
    """Return the source of a field, by the class that declares it; None if it has none."""
    listed = (_find(fields.get(each.__name__, {}), name) for each in of.__mro__ if _states(each, name))
    return next(listed, None)


def blocks_of(annotation: Any) -> set[type[BaseModel]]:
    """Return the classes of blocks that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {block for part in get_args(annotation) for block in blocks_of(part)}


def _unlisted_keys(of: type[BaseModel], name: str, content: Any) -> Iterator[str]:
    points = content if isinstance(content, tuple | list) else (content or {},)
    for key in {key for point in points for key in point}:
        if key_source(of, name, key) is None:
            yield f"{of.__name__}.{name}: {key}"


def _find(fields: Fields, name: str) -> Source | None:
    return next((each for each, names in fields.items() if any(fnmatchcase(name, one) for one in names.split())), None)


def _states(of: type, name: str) -> bool:
    return name in vars(of).get("__annotations__", {})


def file_source(of: type[BaseModel], name: str) -> Source | None:
    """Return the source of a public file of the stage with this result; None if it has none."""
    listed = (pair for each in of.__mro__ for pair in FILES.get(each.__name__, {}).items())
    return next((source for pattern, source in listed if fnmatchcase(name, pattern)), None)


def key_source(of: type[BaseModel], name: str, key: str) -> Source | None:
    """Return the source of a key of a free mapping; None if it has none."""
    listed = (FIELDS.get(f"{each.__name__}.{name}", {}) for each in of.__mro__)
    return next((found for fields in listed if (found := _find(fields, key))), None)
