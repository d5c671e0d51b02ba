"""List of all values that may leave ``private/``: every field of every public result, and every public file, with its
source.

The runner refuses a result with a field that has no source. The source of a new figure is thus declared here, once, in
a closed vocabulary, instead of searching for values that should not have left. None of the sources is the noise, an
unnoised sum, one device's text, norm or loss, or a statistic of these.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, get_args

from pydantic import BaseModel

from pipeline.ground.errors import PermanentError


class Source(StrEnum):
    """Source of a public figure."""

    SETTINGS = "launch file, code, versions, processor and ledger"
    PUBLIC = "public text, and models trained on it alone"
    SCHEDULE = "participation of devices: their number, seed and key, never their text; accounting follows from it"
    RELEASED = "post-processing of an accounted release"
    PERSON = "a person's decision about a release"
    CLOCK = "the clock: an hour, and two digits of a duration"
    STORE = "use without a budget: counts of devices in tens, of rows in hundreds, and a keyed digest"
    HELD_OUT = "held-out devices: released under the budget of evaluation, or listed as a use without one"
    VERDICT = "use without a budget: the verdict of an audit, which an honest run passes whatever its devices typed"
    LIVE = "logged counts of a live experiment: released under its budget, or listed as a use without one"


_SETTINGS, _PUBLIC, _SCHEDULE, _RELEASED, _PERSON = list(Source)[:5]
_CLOCK, _STORE, _HELD_OUT, _VERDICT, _LIVE = list(Source)[5:]
Fields = dict[Source, str]

# Fields of each class, by source; inherited fields are listed with the class that declares them, blocks with their own
# class, and the keys of a free mapping under ``Class.field``.
FIELDS: dict[str, Fields] = {
    # Every stage.
    "StageResult": {},
    "Dataset": {_SETTINGS: "name context", _STORE: "digest"},
    "Spend": {
        _SETTINGS: "unit adjacency delta split messages device_delta",
        _SCHEDULE: "rho epsilon failure note device_epsilon",
    },
    "StageRecord": {
        _SETTINGS: "launch_id stage config_digest inputs ledger content reused_from private_outputs private_digest "
        "processor",
        _RELEASED: "outputs result",
        _CLOCK: "started_at seconds",
    },
    # Text, models of public text.
    "PublicText": {_SETTINGS: "revision", _PUBLIC: "source licence documents train_tokens left_out_documents"},
    "TextPart": {_PUBLIC: "name licence words synthetic"},
    "Selection": {_RELEASED: "registered_model version launch_id effective_share"},
    "IngestPublic": {_PUBLIC: "validation_tokens vocabulary_size corpus_digest vocabulary_digest"},
    "IngestPrivate": {
        _SETTINGS: "population source synthetic split split_rule days_kept as_of",
        _STORE: "devices_at_least devices_by_split store_digest other_locales older",
    },
    "PublicTraining": {_RELEASED: "parameters steps validation_loss validation_top1"},
    "PublicTraining.curve": {_RELEASED: "step train_loss validation_loss validation_top1", _CLOCK: "seconds"},
    "NewWordAdaptation": {
        _RELEASED: "new_words_in_text new_word_sentences copies new_word_loss_before new_word_loss_after",
    },
    "Adaptation": {_RELEASED: "new_words"},
    # Words.
    "DiscoveryLayer": {
        _SETTINGS: "layer",
        _SCHEDULE: "messages noise word_votes one_holder_chance anonymity lemma_1 clones blanket attack",
        _RELEASED: "domain kept finished",
    },
    "DiscoveryGuarantee": {
        _SETTINGS: "epsilon0 messages_per_device secure_aggregation honest_share device_level_epsilon0 delta "
        "certificate",
        _SCHEDULE: "device_epsilon_central epsilon_central epsilon_clones epsilon_attack",
    },
    "LocalWords": {_SETTINGS: "name"},
    "Discover": {_RELEASED: "words_found words_sha256"},
    "Discover.curve": {
        _SETTINGS: "step layer",
        _SCHEDULE: "messages noise word_votes one_holder_chance anonymity lemma_1 clones blanket attack",
        _RELEASED: "domain kept finished",
    },
    "CentralGuarantee": {
        _SETTINGS: "noise_multiplier words_per_device threshold rho epsilon delta failure forms_share filled_share",
    },
    "CentralWords": {_SETTINGS: "name"},
    "DiscoverCentral": {_RELEASED: "words_found words_sha256"},
    "ProjectedCoverage": {_PUBLIC: "epsilon0 coverage words false_words"},
    "WordCoverage": {
        _SETTINGS: "reviewed",
        _PERSON: "dropped_by_person",
        _HELD_OUT: "coverage coverage_low coverage_high",
    },
    "WordFilter": {_SETTINGS: "name sentence", _RELEASED: "dropped"},
    "BuildVocabulary": {_PUBLIC: "base_size", _RELEASED: "added size vocabulary_digest"},
    "BuildVocabulary.curve": {_SETTINGS: "step projected_epsilon0", _PUBLIC: "projected_coverage"},
    "AddedWords": {_SETTINGS: "projected_words", _RELEASED: "words_found words_added words", _PERSON: "given_files"},
    # Plan, counts, training.
    "Plan": {
        _SETTINGS: "reasons rho delta epsilon sensitivity_squared alternatives min_sep_by_the_clock run_days",
        _STORE: "feasible rounds_below_goal",
        _PUBLIC: "rehearsed verdict",
    },
    "Gaussian": {_SETTINGS: "rho epsilon"},
    "Counts": {
        _SETTINGS: "name noise_multiplier clip_norm start_weight",
        _RELEASED: "cells contexts",
    },
    "Evaluation": {_SETTINGS: "name noise_multiplier clip_norm most_words"},
    "PrivacyLoss": {_SETTINGS: "delta", _SCHEDULE: "rho mu epsilon epsilon_pld"},
    "TrainingLoss": {_SCHEDULE: "sensitivity_squared"},
    "Training": {_SETTINGS: "name planned_rho"},
    "Amplification": {
        _SETTINGS: "sampling sampling_rate epsilon epsilon_second methods adjacency assumption",
    },
    "Timetable": {_SCHEDULE: "run_days shortest_minutes median_minutes longest_minutes median_minutes_by_part"},
    "ObservedParticipation": {
        _SCHEDULE: "observed_min_sep observed_mins observed_max_participations violations synthetic_devices "
        "participation_histogram separation_histogram rounds_below_goal mean_devices check_ins fewest_check_ins",
    },
    "FineTune": {
        _SETTINGS: "rounds precision report_goal accountants_agree accounting_methods norm_inflation",
        _SCHEDULE: "secagg synthetic_participations",
        _HELD_OUT: "validation_recall_before validation_recall_after",
    },
    "FineTune.secagg": {
        _SETTINGS: "num_parameters bits wrap_probability",
        _SCHEDULE: "order devices scale element_bound norm_limit inflated_norm clipped_fraction rounding_std",
    },
    "FineTune.curve": {
        _SETTINGS: "step",
        _RELEASED: "clip_norm clip_estimate",
        _HELD_OUT: "validation_loss validation_top1 validation_recall",
    },
    # Audits.
    "AuditVerdict": {_SETTINGS: "type tested least_noise least_clip", _VERDICT: "verdict"},
    "ReleaseVerdict": {_SETTINGS: "name tested slack", _VERDICT: "passed sentence"},
    "ReleaseAudit": {_SETTINGS: "stage made_by cited"},
    "AuditBlock": {
        _SETTINGS: "in_launch random_continuations alpha seed_commitment",
        _RELEASED: "worst_rank_single_user max_exposure_bits found_single_user broken_ceilings pooled_p_value",
    },
    "Audit": {_RELEASED: "found_by_beam", _VERDICT: "noise_audit_passed"},
    "Audit.headline": {_RELEASED: "exposure_bits"},
    "CanaryResult": {
        _SETTINGS: "population n_u n_e",
        _SCHEDULE: "participations ceiling_bits",
        _RELEASED: "rank rank_standard_error exposure_bits exposure_low_bits exposure_high_bits found_by_beam "
        "found_by_best_first loss",
    },
    "Canary": {_SCHEDULE: "mu vacuous", _RELEASED: "method within_ceiling"},
    "StressBlock": {
        _SETTINGS: "canaries",
        _RELEASED: "worst_rank_single_user max_exposure_bits max_exposure_bits_single_user found found_single_user",
    },
    "TwinBlock": {_SETTINGS: "populations", _PUBLIC: "words_per_user weights_sha256", _STORE: "pseudo_users"},
    "ControlBlock": {_PUBLIC: "rounds devices"},
    "ControlRow": {_PUBLIC: "n_e canaries found worst_rank"},
    # The comparison.
    "Utility": {
        _SETTINGS: "session_words confidence attempt simulation_without_privacy features",
        _HELD_OUT: "devices_at_least words judged_words drowned compose_at_rate variety",
    },
    "AbTest": {
        _HELD_OUT: "top1_recall top3_recall top1_gain top1_gain_low top1_gain_high top3_gain_low ngram_gain_low "
        "new_word_top3_low variety_private variety_public broken_margins missing_metrics worse_than_champion "
        "broken_typists coverage coverage_low coverage_high",
    },
    "AbTest.headline": {_HELD_OUT: "top1_recall top1_gain new_words_*"},
    "Champion": {_SETTINGS: "registered_model version launch_id bundle_sha256 left_out arm"},
    "EarlierLaunch": {
        _SETTINGS: "created_at delta releases",
        _SCHEDULE: "rho epsilon",
        _STORE: "devices_at_least",
        _RELEASED: "words_added",
    },
    "OtherFeature": {_SETTINGS: "attempt", _HELD_OUT: "broken_margins missing_metrics worse_than_champion"},
    "ArmMetric": {_SETTINGS: "arm metric", _HELD_OUT: "numerator denominator value low high"},
    "Beginning": {_SETTINGS: "text", _RELEASED: "suggested expected"},
    "Pair": {_SETTINGS: "candidate baseline metric"},
    "Difference": {_HELD_OUT: "value low high relative"},
    "SliceMetric": {_SETTINGS: "part arm metric", _HELD_OUT: "value low high"},
    "Verdict": {
        _SETTINGS: "candidate baseline feature primary",
        _HELD_OUT: "passes failed missing margin standard_error power",
    },
    "SecondOpinion": {_HELD_OUT: "jackknife delta bootstrap agree"},
    "HeadWords": {_SETTINGS: "arm words", _HELD_OUT: "typed predicted right"},
    # Decision, report, publication, experiment: their fields follow from the results above.
    "GateResult": {_SETTINGS: "id title asks threshold", _RELEASED: "value passed evidence"},
    "DecisionBlock": {_RELEASED: "decision reasons"},
    "Decide.headline": {_RELEASED: "decision", _SETTINGS: "delta failure", _SCHEDULE: "rho epsilon guarantee"},
    "Report": {_RELEASED: "files disclosure_sha256 summary concerns"},
    "Publish": {
        _SETTINGS: "registered_model version versions alias",
        _PERSON: "published reason",
        _RELEASED: "parity_max_difference dictionary_words dictionary_of files registered_files",
    },
    "Int8": {
        _RELEASED: "shipped reasons words top1_agreement top3_agreement max_logit_difference float_bytes int8_bytes "
        "float_seconds int8_seconds",
    },
    "Look": {
        _SETTINGS: "first_day last_day simulated share unit",
        _LIVE: "logged_until over treated_units units split_chance undefined",
    },
    "LiveExperiment": {_SETTINGS: "name noise_multiplier clip_norm most_words days"},
    "DecisionResult": {_LIVE: "decision reasons", _PERSON: "by"},
    # Blocks that the disclosure alone has.
    "Disclosure": {_SETTINGS: "schema_version unit adjacency output assumptions limitations"},
    "Tool": {_SETTINGS: "name version git_commit lock_digests"},
    "Launch": {
        _SETTINGS: "id name locale feature features contact intended_use reviewers approvals synthetic_population "
        "seeded_randomness ships",
        _CLOCK: "created_at",
    },
    "DataAccess": {_SETTINGS: "stage data covered mechanism unit reason"},
    "Artifact": {_SETTINGS: "stage file made_by", _RELEASED: "sha256"},
    "Verification": {_SETTINGS: "ledger_head ledger_entries command"},
    "Population": {
        _SETTINGS: "name source synthetic split split_rule days_kept as_of",
        _STORE: "devices_at_least devices_by_split other_locales older",
    },
    "Mechanism": {
        _SETTINGS: "kind clip_norm noise_multiplier rounds report_goal parameters local_training server",
    },
    "Participation": {_SETTINGS: "enforced_min_sep enforced_max_participations"},
    "SecAgg": {
        _SETTINGS: "bits neighbours threshold wrap_probability",
        _SCHEDULE: "inflated_norm clipped_fraction rounding_std",
    },
    "Accounting": {
        _SETTINGS: "randomness agree methods failure",
        _SCHEDULE: "curve",
    },
    "Gain": {_SCHEDULE: "points error"},
    "ForecastGain": {_SCHEDULE: "epsilon"},
    "GroupLoss": {_SETTINGS: "devices", _SCHEDULE: "rho epsilon"},
    "Total": {_SETTINGS: "delta", _SCHEDULE: "epsilon"},
    "Part": {_SETTINGS: "releases split delta", _SCHEDULE: "epsilon rho how"},
    "Composition": {_SETTINGS: "total_rho total_failure ceiling_rho"},
    "PopulationSpend": {_SETTINGS: "launch_id stage kind rho split failure reserved"},
    "WindowLoss": {_SETTINGS: "days ceiling_rho most_rho"},
    "ReusedRelease": {_SETTINGS: "stage launch_id unit rho epsilon"},
    "Curves": {_RELEASED: "pretraining adaptation", _HELD_OUT: "fine_tuning"},
}
# The public files of a stage, by the class of its result.
FILES: dict[str, Mapping[str, Source]] = {
    "IngestPublic": {"corpus/*": _PUBLIC, "vocabulary.json": _PUBLIC, "selection.npy": _RELEASED},
    "PublicTraining": {"model.safetensors": _RELEASED},
    "BuildVocabulary": {"vocabulary.json": _RELEASED, "shares.json": _RELEASED, "shown.json": _RELEASED},
    "Plan": {"mechanism.json": _SETTINGS},
    "Count": {"counts.npz": _RELEASED},
    "FineTune": {"model.safetensors": _RELEASED, "start.safetensors": _RELEASED, "canaries.json": _SETTINGS},
    "Audit": {"canaries.json": _SETTINGS},
    "AbTest": {"comparison.json": _HELD_OUT},
    # Renderings of the disclosure, which is checked against the list before it is written.
    "Report": {"*": _RELEASED},
    "Publish": {"bundle/*": _RELEASED},
}
# Fields whose keys are set by code: each key is a figure of its own.
FREE = ("headline", "curve", "secagg")


def require_listed(result: BaseModel, files: Iterable[str] = ()) -> None:
    """Refuse a result with a field, or a public file, that has no source.

    Guarantee: every value that the runner keeps of a stage, and so every value that MLflow, Airflow, gates and reports
    can read, is on the list.

    Raises:
      PermanentError: a field or file is not on the list.
    """
    sourceless = [*unlisted(result), *(name for name in files if not _file_listed(type(result), name))]
    if sourceless:
        raise PermanentError(
            f"{', '.join(sorted(set(sourceless)))}: no source in pipeline/telemetry/leaving.py, so it may not leave; "
            "declare its source there, or keep it in the private half"
        )


def unlisted(value: Any) -> Iterator[str]:
    """Yield fields of a result, and of all its blocks, that have no source."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            content = getattr(value, name)
            if blocks_of(field.annotation):
                yield from unlisted(content)
            elif name in FREE and not source(type(value), name):
                yield from _unlisted_keys(type(value), name, content)
            elif source(type(value), name) is None:
                yield f"{type(value).__name__}.{name}"
    elif isinstance(value, Mapping):
        for content in value.values():
            yield from unlisted(content)
    elif isinstance(value, tuple | list):
        for content in value:
            yield from unlisted(content)


def source(of: type[BaseModel], name: str) -> Source | None:
    """Return the source of a field, by the class that declares it; None if it has none."""
    listed = (_find(FIELDS.get(each.__name__, {}), name) for each in of.__mro__ if _states(each, name))
    return next(listed, None)


def blocks_of(annotation: Any) -> set[type[BaseModel]]:
    """Return the classes of blocks that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {block for part in get_args(annotation) for block in blocks_of(part)}


def _unlisted_keys(of: type[BaseModel], name: str, content: Any) -> Iterator[str]:
    points = content if isinstance(content, tuple | list) else (content or {},)
    listed = [FIELDS[key] for each in of.__mro__ if (key := f"{each.__name__}.{name}") in FIELDS]
    for key in {key for point in points for key in point}:
        if not any(_find(fields, key) for fields in listed):
            yield f"{of.__name__}.{name}: {key}"


def _find(fields: Fields, name: str) -> Source | None:
    return next((each for each, names in fields.items() if any(fnmatchcase(name, one) for one in names.split())), None)


def _states(of: type, name: str) -> bool:
    return name in vars(of).get("__annotations__", {})


def _file_listed(of: type[BaseModel], name: str) -> bool:
    patterns = [pattern for each in of.__mro__ for pattern in FILES.get(each.__name__, {})]
    return any(fnmatchcase(name, pattern) for pattern in patterns)
