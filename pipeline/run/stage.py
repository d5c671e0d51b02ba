"""Stage definitions: the context that a stage gets, its result, and the privacy loss that it may spend."""

import hashlib
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from federated.config.population import PopulationKey
from pipeline.ground.errors import PermanentError, RefusedUntouched
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.ledger.spend import Spend
from pipeline.run.run_dir import RESULT, RunDir
from pretrain.config import Config
from reports.disclosure.findings import ReleaseAudit

_UNSTATED = PopulationKey("")


class Dataset(Config):
    """A data set a stage read: its name and digest, never its content."""

    name: str
    digest: str
    context: str = Field(description="'pretraining', 'fine-tuning', ...")


class StageResult(Config):
    """Base of every stage's result. Every field is public or already private: it goes to MLflow and XCom.

    A result that the disclosure shows inherits the disclosure's own block, so that each fact has one schema.
    Top-level numbers become MLflow metrics ``<stage>/<field>`` and rows of the printed table. A
    number that is not finite is refused: a gate could not compare it and JSON cannot hold it.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")

    headline: dict[str, float | str] = Field(default={}, description="scalars to show on the launch's parent run")
    datasets: tuple[Dataset, ...] = ()
    curve: tuple[dict[str, float], ...] = Field(default=(), description="points with a 'step' and other numbers")
    spend: Spend | None = Field(default=None, description="what a spending stage really spent")


@dataclass(frozen=True)
class StageContext:
    """Everything a stage function may use."""

    config: LaunchConfig
    run: RunDir
    settings: Settings
    stage: str
    key: bytes | None  # 256 bits, the same at every retry; only stages that spend have one
    # Tells caches and registered models apart where the configuration leaves it out.
    population: PopulationKey = _UNSTATED
    attempt: int = 0  # a newer one shuts it out (``run.fence``); 0 where nobody else may write

    @property
    def noise_key(self) -> bytes:
        """The key of a stage that spends."""
        assert self.key is not None, f"{self.stage} spends nothing"
        return self.key

    @contextmanager
    def before_devices(self) -> Iterator[None]:
        """Around checks of a spending stage: what they refuse gives its reservation back.

        Guarantee: only where nothing of a device was answered, summed or released by then, at this try or an earlier
        one; the runner sees that the stage left nothing private but its key.
        """
        try:
            yield
        except (ValueError, PermanentError) as error:
            raise RefusedUntouched(str(error)) from error

    @property
    def public(self) -> Path:
        """Folder of this stage's public files."""
        return self.run.public(self.stage)

    @property
    def private(self) -> Path:
        """Folder of this stage's private files."""
        return self.run.private(self.stage)


StageFunction = Callable[[StageContext], StageResult]


# Dotted fields of a launch file, which may depend on what it asks for.
Fields = Callable[[LaunchConfig], tuple[str, ...]]


def later(place: str) -> Callable[..., Any]:
    """The function at ``module:function``, which is imported when it is called: what computes is slow to import."""
    return lambda *given: imported(place)(*given)


def imported(place: str) -> Callable[..., Any]:
    """The function at ``module:function``."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def everything(config: LaunchConfig) -> tuple[str, ...]:
    """All fields of a launch file."""
    return tuple(type(config).model_fields)


def _nothing(ctx: StageContext) -> Mapping[str, object]:
    return {}


def _never(config: LaunchConfig) -> bool:
    return False


@dataclass(frozen=True)
class Replay:
    """Comparison of a stage with a second run, as ``verify`` makes it.

    Attributes:
      again: ``module:function`` that looks cheaply, of the context in a folder beside the launch's, the record and the
        launch's folder, and yields what differs; empty: the stage is run again.
      in_full: whether there is more to do where all is done again from its first step, for this launch.
      full: likewise ``module:function``, for that; empty: the stage is run again from nothing but its key.
      moving: fields of the result that later launches change.
      anywhere: whether it gives the same bits on every kind of processor.
      afresh: whether it is always run from nothing, and not taken up where it ended.
    """

    again: str = ""
    in_full: Callable[[LaunchConfig], bool] = _never
    full: str = ""
    moving: frozenset[str] = frozenset()
    anywhere: bool = False
    afresh: bool = False


@dataclass(frozen=True)
class Stage:
    """All that anything else knows of a stage; whether it spends or is public, its edges and its pool are derived.

    Attributes:
      name: never changes, as seeded keys are made of it.
      run: ``module:function``, imported when it runs, as what computes is slow to import.
      block: field of the launch file without which the stage is left out; empty: always there.
      needs, may_need: stages whose results or files it opens, always or for some launches. A spend is bound to them, so
        that a retry is the same release or is refused.
      follows: stages that come before it although it opens nothing of theirs: spends come after the plan, dear stages
        after cheap ones that may fail.
      evidence: stages that may fail, of those that it opens: it then runs without them and says so.
      reads: fields of the launch file that decide its outputs; by default all.
      sees: further fields that it is given, of which nothing that it makes depends.
      given: what else decides its outputs, as JSON values that name its content; None where it is made anew each time.
      code: files and folders of ours that decide what it makes, from the root of the packages. Of a release no more
        than the release itself: a change elsewhere must not ask people again. Empty: every launch makes it anew.
      libraries: of others, likewise.
      private: its private files and folders that later stages open.
      device: whether it computes on ``runtime.device``; or the field of the launch file and the value with which it
        does.
      planned: what it reserves before it runs, a worst case that looks at no private data; None of it where the launch
        asks for no release. A stage without this spends nothing.
      says: constants of ours that decide a release, which are bound like its inputs.
      audit: of a release that other launches may take over, its audit: given the context of who would, the launch that
        made it, the one that has it, and whether to make the audit if there is none yet. None if there is none.
      replay: how verification holds it against a second run; None: by itself.
    """

    name: str
    run: str | StageFunction
    block: str = ""
    needs: tuple[str, ...] = ()
    may_need: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    reads: Fields = everything
    sees: tuple[str, ...] = ()
    given: Callable[[StageContext], Mapping[str, object] | None] = _nothing
    code: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    device: bool | tuple[str, str] = False
    planned: Callable[[LaunchConfig, RunDir], Spend | None] | None = None
    says: Mapping[str, str] = field(default_factory=dict)
    audit: Callable[[StageContext, str, str, bool], ReleaseAudit | None] | None = None
    replay: Replay | None = None

    @property
    def spends(self) -> bool:
        """Return whether it may release something of devices under a budget."""
        return self.planned is not None

    @property
    def cached(self) -> bool:
        """Return whether other launches may take over what it made; a stage that names no code has no content key."""
        return bool(self.code)

    @property
    def opens(self) -> tuple[str, ...]:
        """Stages whose results or files it opens."""
        return (*self.needs, *self.may_need, *self.evidence)

    @property
    def function(self) -> StageFunction:
        """The function that runs it."""
        return imported(self.run) if isinstance(self.run, str) else self.run


Stages = Mapping[str, Stage]


def of_launch(config: LaunchConfig, stages: Stages) -> tuple[str, ...]:
    """Names of the stages that a launch runs, in order; under Airflow the others are tasks too, which say so."""
    return tuple(name for name, stage in stages.items() if not stage.block or getattr(config, stage.block) is not None)


def is_public(name: str, stages: Stages) -> bool:
    """Return whether a stage is cached and reads public data alone, so that any launch on any machine may take it over.

    Guarantee: a stage that may spend, that keeps something private for others, or that opens a stage which is not
    public is never public itself.
    """
    stage = stages.get(name)
    if stage is None or stage.spends or stage.private or not stage.cached:
        return False
    return all(is_public(other, stages) for other in stage.opens)


def view(config: LaunchConfig, name: str, stages: Stages) -> LaunchConfig:
    """The configuration with only the fields that a stage says it reads or sees; any other is an ``AttributeError``.

    Guarantee: a public stage cannot learn where private text is.

    Raises:
      ValueError: a public stage says that it is given ``private_text``.
    """
    names = (*stages[name].reads(config), *stages[name].sees)
    if is_public(name, stages) and any(each.partition(".")[0] == "private_text" for each in names):
        raise ValueError(f"reads: 'private_text' in the public stage {name!r}; a stage that needs it is not public")
    return only(config, names)


def only(block: Any, names: Iterable[str]) -> Any:
    """A configuration block with some of its fields; those of inner blocks are dotted."""
    parts = [name.partition(".") for name in names]
    inner = {first: [rest for name, _, rest in parts if name == first] for first, _, _ in parts}
    fields = {
        name: getattr(block, name) if "" in rests else only(getattr(block, name), rests)
        for name, rests in inner.items()
    }
    view = type(block).model_construct(**fields)
    # It fills in defaults, which would be read unnoticed.
    for name in view.__dict__.keys() - fields:
        del view.__dict__[name]
    return view


def field_of(content: dict[str, Any], name: str) -> object:
    """A field by its dotted name; None where the block leaves it out."""
    value: Any = content
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def concludes(name: str, stages: Stages) -> bool:
    """Return whether a stage uses other stages' results alone, once all evidence is there or was not to be had."""
    stage = stages[name]
    return bool(stage.evidence) or any(concludes(other, stages) for other in stage.opens if other in stages)


def stage_key(config: LaunchConfig, run: RunDir, name: str) -> bytes:
    """The stage's secret key. In 'seeded' mode, for tests, anyone can compute it from the configuration."""
    if config.mechanism.randomness == "seeded":
        return hashlib.sha256(f"tacit seeded {config.seed} {name}".encode()).digest()
    return run.secret(name)


def binding_of(
    config: LaunchConfig, run: RunDir, key: bytes, stage: Stage, begun: Mapping[str, Any] | None
) -> dict[str, str]:
    """Binding that makes a retry the same release: configuration, key (by commitment), inputs and constants.

    Args:
      begun: what the reservation that stands says; None if there is none.
    """
    inputs = {}
    for name in stage.opens:
        if name in stage.needs or run.record(name) is not None:
            run.result(name)
            inputs[name] = run.used[f"{name}/{RESULT}"]
    constants = stage.says if begun is None else {name: begun[name] for name in stage.says}
    return {
        **constants,
        "config": config_digest(config),
        "inputs": hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest(),
        "key": hashlib.sha256(b"tacit key commitment" + key).hexdigest(),
    }
