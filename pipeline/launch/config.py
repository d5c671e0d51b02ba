"""``LaunchConfig``: one launch of one locale, the whole of a YAML file in ``dags/launches/``."""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from discovery import filters
from discovery.config import CentralConfig, DiscoveryConfig
from evaluation.config import AbTestConfig, AuditConfig, EvaluationConfig
from federated.config.counts import CountsConfig, Ships
from federated.config.mechanism import MechanismConfig, SecAggConfig
from federated.config.planning import PlanningConfig
from federated.config.population import PopulationConfig, PopulationKey, key_of
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from pipeline.launch import config_errors
from pipeline.launch.policy import (
    PolicyConfig,
    require_allowed_discovery,
    require_canaries_rare_by_chance,
    require_coverable,
    require_people_protected,
    require_population_ceilings,
    require_reviewers,
)
from pretrain.config import (
    BEARING,
    FOLDER,
    LOCALE,
    AccountName,
    AdaptConfig,
    Config,
    CorpusConfig,
    Line,
    ModelConfig,
    PretrainConfig,
    SpendingBlock,
    VocabularyConfig,
)
from pretrain.files import undamaged
from pretrain.reading import paths, yaml_text
from pretrain.text.tags import canonical
from reports.config import ReportConfig

Feature = Literal["NWP", "SC", "OTF"]  # ``evaluation.features`` names the metric that decides each
FEATURES = get_args(Feature)
FOLDER_NAME = "launch_folder"  # file of a launch, beside its two halves: the name of its launch file's folder
LIKE = "like"  # field of a launch file that inherits from another one
# A keyboard's model has a few million weights; this many take 1 GB, and training them several times that.
MOST_WEIGHTS = 250_000_000

# Fields that change neither the guarantee nor the result of a stage. Reviewers are still part of the launch id, see
# ``launch_id``.
_NOT_PART_OF_THE_LAUNCH = {"runtime", "schedule", "reviewers"}


# Sums of 32 bits hold the largest cohorts, and their rounding raises rho by less than a millionth.
SECURE = SecAggConfig(bits=32)

# Airflow's presets; ``@once`` and ``@continuous`` have no dates, and each launch of a schedule is that of a date.
_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_CRON_FIELDS = 5
# Blocks that decide what follows the approval.
AFTER_APPROVAL = ("experiment",)


class ExperimentConfig(Config):
    """Live experiment after approval: a share of devices gets the model, and their logged counts decide, once."""

    share: Annotated[float, Field(gt=0.0, le=0.5)] = Field(description="share of device buckets that get the model")
    days: Annotated[int, Field(ge=1, le=90)] = Field(
        description="whole days (UTC) whose logged counts decide, from the day after it begins"
    )
    min_gain: Annotated[float, Field(ge=-0.5, le=1.0)] = Field(
        description="lower end of the interval of the relative change of a feature's deciding metric must exceed this; "
        "better counts as more: below 0 is a non-inferiority margin, 0 or more requires an improvement"
    )


class LaunchConfig(Config):
    """One attempt to ship a model for one locale, for one or several features of the keyboard."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64, description="letters, digits, '.', '_' and '-'"
    )
    locale: str = Field(pattern=LOCALE, description="BCP 47 tag, as in en-US or sr-Latn-RS")
    features: tuple[Feature, ...] = Field(
        min_length=1, description="features that the model is published for, the main one first, as in [NWP, OTF]"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        description="public seed of initial weights and of public draws; of everything with randomness: seeded"
    )
    trust: Literal["server", "secure sum"] = Field(
        description="who sees what a device sends before noise: 'server', each update, words and counts; "
        "'secure sum', nobody: updates and votes are masked, and only their sums are seen (secure aggregation)"
    )
    tuning: Literal["public text", "this population", "earlier launches"] = Field(
        description="text on which rates, rounds and sizes were chosen; 'this population' only for a simulated one, as "
        "no epsilon counts it; 'earlier launches': by their released results, which were paid"
    )
    public_text: CorpusConfig
    private_text: PopulationConfig
    vocabulary: VocabularyConfig
    model: ModelConfig
    pretrain: PretrainConfig
    discovery: DiscoveryConfig
    adapt: AdaptConfig
    mechanism: MechanismConfig
    counts: CountsConfig | None = Field(
        default=None,
        description="noisy counts of words and pairs beside training; without the block, nothing is counted",
    )
    evaluation: EvaluationConfig | None = Field(
        default=None,
        description="noise and budget of evaluation on held-out devices; without the block, evaluation has no noise",
    )
    planning: PlanningConfig | None = Field(
        default=None,
        description="population and largest round, for 'tacit plan'; has no effect on its own",
    )
    local_training: LocalTrainingConfig
    server: ServerConfig
    audit: AuditConfig
    ab_test: AbTestConfig
    policy: PolicyConfig
    experiment: ExperimentConfig | None = Field(
        default=None,
        description="trial on a share of devices; without the block, an approved model goes to all devices",
    )
    report: ReportConfig
    runtime: RuntimeConfig = RuntimeConfig()
    schedule: Line | None = Field(default=None, description="cron expression or preset such as '@monthly'")
    reviewers: tuple[AccountName, ...] = Field(
        default=(), max_length=100, description="accounts, of Airflow or the operating system, that must approve"
    )

    # Folder of the launch file, from which its paths are meant; None for a launch that no file holds.
    _folder: Path | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        """Keep the launch file's folder, which is no part of the launch."""
        self._folder = (context or {}).get(FOLDER)

    @property
    def folder(self) -> Path | None:
        """Folder of the launch file, as it was named: a link stays a link, as a folder behind it may be replaced."""
        return self._folder

    @property
    def feature(self) -> Feature:
        """The main feature: the first one, whose baseline chooses public text where the launch asks for that."""
        return self.features[0]

    @property
    def population(self) -> PopulationKey:
        """Key (kind and name) of the population whose text the launch reads."""
        return key_of(self.private_text)

    @property
    def tried_by(self) -> str:
        """Command that tries the model on some devices (``begin``, ``status``, ``decide``), or empty if all get it."""
        return "tacit experiment" if self.experiment else ""

    @property
    def central_discovery(self) -> CentralConfig | None:
        """Central word discovery; None if the launch discovers words locally or not at all."""
        return self.discovery if isinstance(self.discovery, CentralConfig) else None

    @property
    def ships(self) -> Ships:
        """Models that the launch publishes."""
        return self.counts.ships if self.counts else "network"

    @property
    def trains(self) -> bool:
        """True if a network is trained on devices, and not only counts released."""
        return self.counts is None or self.counts.trains

    @property
    def counts_move_start(self) -> bool:
        """True if training starts from the network of public text, adapted by the launch's counts."""
        return self.counts is not None and self.counts.moves_start

    @property
    def beside_training(self) -> dict[str, float]:
        """Rho of a train device for releases other than training, by block, as known before the plan."""
        return {name: block.rho for name, block in self._spending() if block.split == "train"}

    def _spending(self) -> Iterator[tuple[str, SpendingBlock]]:
        """Blocks of the launch file that ask for a release, with their names."""
        blocks = ((name, getattr(self, name)) for name in _SPENDING)
        return ((name, block) for name, block in blocks if isinstance(block, SpendingBlock) and block.rho)

    @model_validator(mode="before")
    @classmethod
    def _trust_decides_secure_aggregation(cls, fields: Any) -> Any:
        mechanism = fields.get("mechanism") if isinstance(fields, dict) else None
        if not isinstance(mechanism, dict):
            return fields
        if fields.get("trust") == "secure sum":
            return fields | {"mechanism": {"secagg": SECURE.model_dump(), **mechanism}}
        if fields.get("trust") == "server" and mechanism.get("secagg") is not None:
            raise ValueError(
                "trust: 'server', but mechanism.secagg is given, under which the server sees only sums; write "
                "trust: secure sum, or remove the block"
            )
        return fields

    @model_validator(mode="after")
    def _tuning_on_people_is_paid(self) -> "LaunchConfig":
        if self.tuning == "this population" and not self.private_text.simulated:
            raise ValueError(
                "tuning: 'this population', whose text is people's, and no epsilon counts what it chose; choose "
                "on public text, or by earlier launches"
            )
        return self

    @model_validator(mode="after")
    def _only_sums_are_seen(self) -> "LaunchConfig":
        if self.trust == "server":
            return self
        if self.mechanism.secagg is None:
            raise ValueError(
                "mechanism.secagg: null, but with trust: secure sum updates are masked; remove the line, or write "
                "trust: server"
            )
        if central := self.central_discovery:
            raise ValueError(
                f"discovery.kind: 'central' shows the server up to {central.words_per_device} rare words of each "
                "device, but trust is 'secure sum'; write kind: ldp-triehh, or trust: server"
            )
        if self.counts is not None:
            raise ValueError(
                "counts: given, but what devices count is not masked, and trust is 'secure sum'; remove the block, or "
                "write trust: server"
            )
        return self

    @field_validator("locale")
    @classmethod
    def _in_canonical_form(cls, locale: str) -> str:
        if (form := canonical(locale)) != locale:
            raise ValueError(f"{locale!r} is written {form} (BCP 47), and two forms would be two models; write that")
        return locale

    @field_validator("features")
    @classmethod
    def _each_feature_once(cls, names: tuple[Feature, ...]) -> tuple[Feature, ...]:
        if len(set(names)) != len(names):
            raise ValueError(f"{list(names)} names one twice; give each once")
        return names

    @field_validator("schedule")
    @classmethod
    def _schedule_has_dates(cls, schedule: str | None) -> str | None:
        if schedule is not None:
            cron(schedule)
        return schedule

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "LaunchConfig":
        mechanism = self.mechanism
        most = -(-mechanism.rounds // mechanism.min_sep)
        if mechanism.max_participations > most:
            raise ValueError(
                f"mechanism.max_participations: {mechanism.max_participations} is not reachable; "
                f"{mechanism.rounds} rounds at min_sep {mechanism.min_sep} allow at most {most}: lower it to {most}"
            )
        policy = self.policy
        if policy.budget is None and policy.population_max_rho is None:
            raise ValueError(
                "policy.budget: missing, and policy.population_max_rho too, so nothing bounds what one device loses to "
                "all launches; add one of them, as in budget: {rho: 1.5, days: 60}"
            )
        for split in BEARING:
            self._require_room({name: block.rho for name, block in self._spending() if block.split == split}, split)
        if self.policy.min_new_word_top3 is not None and not self.vocabulary.max_new_words:
            raise ValueError(
                "policy.min_new_word_top3: vocabulary.max_new_words is 0, so there is no discovered word to suggest "
                "and no launch would pass; remove the line, or let words in"
            )
        return self

    def _require_room(self, costs: Mapping[str, float], split: str) -> None:
        """ValueError if the launch file's blocks alone cost a device of this split more than its policy allows."""
        spent, room, trains = math.fsum(costs.values()), self.policy.max_rho, self.trains and split == "train"
        if spent < room or (spent == room and not trains):
            return
        name = max(costs, key=costs.__getitem__)
        left = room - spent + costs[name]
        raise ValueError(
            f"{name}.noise_multiplier: {(2 * costs[name]) ** -0.5:g} is rho {costs[name]:g} for a {split} device, "
            f"which leaves nothing of policy.max_rho {room:g}{' for training' if trains else ''}; raise it"
            + (f" above {(2 * left) ** -0.5:.3g}" if left > 0 else "")
        )

    @model_validator(mode="after")
    def _the_policy_can_be_met(self) -> "LaunchConfig":
        require_allowed_discovery(self.policy, self.discovery, self.mechanism.delta)
        require_population_ceilings(self.policy, self.mechanism.delta, noised=self.mechanism.noise_multiplier > 0)
        require_reviewers(self.policy.approvals, self.reviewers)
        if self.counts is None or self.counts.trains:
            require_canaries_rare_by_chance(self.policy, self.audit)
        return self

    @model_validator(mode="after")
    def _evaluation_is_covered_as_asked(self) -> "LaunchConfig":
        require_coverable(self.policy, self.evaluation)
        if self.policy.cover_everything and self.experiment is not None:
            raise ValueError(
                "experiment: given, but policy.cover_everything is true, and logged counts of buckets bound no "
                "device's contribution; remove the block, or set cover_everything to false, and the report lists the "
                "logs as a use that is not covered"
            )
        if self.evaluation is not None and self.ab_test.non_private_upper_bound:
            raise ValueError(
                "ab_test.non_private_upper_bound: true, but with the block evaluation every result has noise; "
                "set it to false, or remove evaluation"
            )
        return self

    @model_validator(mode="after")
    def _no_private_text_is_public(self) -> "LaunchConfig":
        if (self.public_text.source, self.private_text.source) == ("sample-with-chat", "chitchat"):
            raise ValueError(
                "public_text.source: 'sample-with-chat' holds the private text of source 'chitchat', its held-out "
                "devices among it; use 'sample'"
            )
        return self

    @model_validator(mode="after")
    def _filters_of_words_are_known(self) -> "LaunchConfig":
        filters.require_known(self.vocabulary.filters, "vocabulary.filters")
        return self

    @model_validator(mode="after")
    def _the_model_fits_into_memory(self) -> "LaunchConfig":
        model, words = self.model, self.vocabulary.base_size + self.vocabulary.max_new_words
        if (weights := model.weights(words)) > MOST_WEIGHTS:
            raise ValueError(
                f"model: embedding_dim {model.embedding_dim:,} and hidden_dim {model.hidden_dim:,} with {words:,} "
                f"words make {weights:,} weights, and at most {MOST_WEIGHTS:,} are trained; lower one of them"
            )
        return self

    @model_validator(mode="after")
    def _stress_needs_a_timer_to_be_outside_of(self) -> "LaunchConfig":
        if "stress" in self.audit.populations and not self.mechanism.timed:
            raise ValueError(
                "audit.populations: stress devices ignore the participation timer, and independent noise has none; "
                "remove stress"
            )
        return self

    @model_validator(mode="after")
    def _only_a_simulation_goes_without_secret_noise(self) -> "LaunchConfig":
        require_people_protected(self.private_text, self.mechanism, self.ab_test)
        counts = self.counts
        if self.ab_test.non_private_upper_bound and counts is not None and not counts.trains:
            raise ValueError(
                f"ab_test.non_private_upper_bound: true, but with counts.model {counts.model!r} nothing is "
                "trained on devices, so there is no training to do again without noise; set it to false"
            )
        return self


def _may_spend(annotation: object) -> bool:
    return any(isinstance(kind, type) and issubclass(kind, SpendingBlock) for kind in get_args(annotation))


# Blocks of the launch file that may ask for a release.
_SPENDING = tuple(name for name, field in LaunchConfig.model_fields.items() if _may_spend(field.annotation))


def load_launch(path: Path) -> LaunchConfig:
    """Read and validate one launch file, with the fields of the file that it is like; paths begin at its folder.

    Raises:
      ValueError: one line per problem, each naming the field, the value and the fix.
      OSError: the disk does not answer.
    """
    try:
        return LaunchConfig.model_validate(all_fields(path), context={FOLDER: path.absolute().parent})
    except ValidationError as error:
        raise ValueError("\n".join(problems(error))) from error


def all_fields(path: Path) -> dict[str, Any]:
    """Fields of a launch file and those of the file that it is like, not validated.

    Raises:
      ValueError: as ``fields`` and ``inherited``.
    """
    raw = fields(path)
    return inherited(raw, fields(_other(path, raw[LIKE]))) if LIKE in raw else raw


def fields(path: Path) -> dict[str, Any]:
    """Fields of a launch file as they are written, neither validated nor inherited.

    Raises:
      ValueError: it is no YAML mapping, or missing.
    """
    text = paths.read_text(path, "FILE", "launch files are kept in dags/launches/", yaml_text.MOST_BYTES)
    require_file_name(path)  # It may be people's text, of which no parser says anything.
    raw = yaml_text.load(text, path.name)
    if not isinstance(raw, dict):
        content = "an empty file" if raw is None else type(raw).__name__
        raise ValueError(f"{path.name}: a launch file is a mapping of fields, got {content}; see dags/launches/")
    if not raw.keys() & {LIKE, "private_text"}:
        raise ValueError(f"{path.name}: no launch file, as it has neither private_text nor {LIKE}; see dags/launches/")
    return raw


def require_file_name(path: Path) -> None:
    """ValueError for a name that no launch file has: Airflow would show it as broken, or leave it out."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.yaml", path.name):
        raise ValueError(
            f"FILE: {paths.shown(path.name)}: no name of a launch file: up to 64 letters, digits, '.', '_' and '-', "
            "the first a letter or a digit, then .yaml; rename it, as in en-US.yaml"
        )


def _other(path: Path, name: object) -> Path:
    """The launch file beside ``path`` that it is like."""
    if not isinstance(name, str) or Path(name).name != name or not path.with_name(name).is_file():
        raise ValueError(
            f"{path.name}: like: {paths.shown(repr(name))} is no launch file in its folder; name one, as in en-US.yaml"
        )
    return path.with_name(name)


def inherited(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a launch file that is like another: its own values, and the other's for fields that it leaves out.

    A block is inherited field by field, unless it has another ``kind`` or ``source``; then it stands alone. ``null``
    removes an optional block. The result is the launch: id, digest and cache keys are those of a file with all fields.

    Raises:
      ValueError: the other file is like a third one, or both have one name.
    """
    if LIKE in other:
        raise ValueError(f"like: {own[LIKE]} is itself like {other[LIKE]}; name that file instead")
    if "name" not in own or own["name"] == other.get("name"):
        raise ValueError(f"name: missing, or that of {own[LIKE]}; a launch needs a name of its own")
    return _inherited({name: value for name, value in own.items() if name != LIKE}, other)


def _inherited(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(other)
    for name, value in own.items():
        before = other.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            alone = any(value.get(kind, before.get(kind)) != before.get(kind) for kind in ("kind", "source"))
            value = value if alone else _inherited(value, before)
        merged[name] = value
    return merged


def load_kept_launch(path: Path) -> LaunchConfig:
    """Read the configuration that a launch keeps beside its results (``run.runner.open_run``), with its file's folder.

    Raises:
      ValueError: it is damaged, missing, or has fields that this version does not know.
    """
    named = path.parent.parent.parent / FOLDER_NAME
    folder = Path(os.fsdecode(named.read_bytes())) if named.is_file() else path.parent
    again = "restore it (MLflow has it too), or resume with the launch file, which writes it again"
    with undamaged(path, f"{again}; if a newer tacit wrote it, use that version"):
        return LaunchConfig.model_validate_json(path.read_bytes(), context={FOLDER: folder})


def problems(error: ValidationError) -> list[str]:
    """One line per problem: field path, the value given, and the fix."""
    return config_errors.lines(error, LaunchConfig)


def config_digest(config: LaunchConfig) -> str:
    """SHA-256 over everything that can change a result, as canonical JSON."""
    return hashlib.sha256(digested(config).encode()).hexdigest()


def digested(config: LaunchConfig) -> str:
    """Everything in a launch file that can change a result, as canonical JSON."""
    missing = type(config).model_fields.keys() - vars(config)
    assert not missing, f"the digest of a launch file needs {missing}, which this stage does not declare"
    content = config.model_dump(mode="json", exclude=_NOT_PART_OF_THE_LAUNCH)
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def cron(schedule: str) -> str:
    """The cron expression of a schedule: five fields, in UTC.

    Raises:
      ValueError: neither a preset nor a cron expression, or one without any date, such as 31 February.
    """
    from croniter import CroniterBadDateError, croniter  # few launch files have a schedule

    expression = _PRESETS.get(schedule.strip().lower(), schedule)
    drawn = re.search(r"(?i)(^|[\s,])r($|[\s,(/])", expression)  # croniter's R is another time at each reading
    if drawn or len(expression.split()) != _CRON_FIELDS or not croniter.is_valid(expression):
        raise ValueError(
            f"got {schedule!r}; give a cron expression of five fields, as in '0 6 1 * *', or one of "
            f"{', '.join(_PRESETS)}"
        )
    try:
        croniter(expression, datetime(2026, 1, 1, tzinfo=UTC)).get_next()
    except CroniterBadDateError as error:
        raise ValueError(f"got {schedule!r}, which no date fits; give days that a month has") from error
    return expression


def launch_id(config: LaunchConfig, date: str | None = None) -> str:
    """``<name>-<digest>[-<date>]``: the same file is the same launch; a scheduled run adds its date.

    The id covers the reviewers, although no stage's result depends on them: removing a reviewer from the file makes
    another launch.
    """
    digest = config_digest(config)
    if config.reviewers:
        digest = hashlib.sha256(json.dumps([digest, sorted(set(config.reviewers))]).encode()).hexdigest()
    return "-".join(part for part in (config.name, digest[:8], date) if part)
