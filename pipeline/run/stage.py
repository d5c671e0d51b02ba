"""Stage definitions: a stage's context, its result, and its declaration."""

import hashlib
import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from federated.config.population import PopulationKey
from pipeline.ground.errors import PermanentError, RefusedUntouched
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.ledger import entries
from pipeline.ledger.entries import Spend
from pipeline.run.bookkeeping import AUDIT
from pipeline.run.run_dir import KEY, RESULT, RunDir
from pretrain.access import Access
from pretrain.config import Config
from pretrain.reading.paths import as_glob
from reports.disclosure.findings import ReleaseAudit

_UNSTATED = PopulationKey("")
SOURCES = "private_text.paths"  # in ``Stage.private``: the files of the people's text


class Dataset(Config):
    """A data set that a stage read: its name and digest, never its content."""

    name: str
    digest: str
    context: str = Field(description="'pretraining', 'fine-tuning', ...")


class StageResult(Config):
    """Base of every stage's result. Every field is public or already differentially private, as it goes to MLflow.

    A result that the disclosure shows inherits the disclosure's own block, so that each fact has one schema.
    Top-level numbers become MLflow metrics ``<stage>/<field>`` and rows of the printed table. A
    number that is not finite is refused: a gate could not compare it and JSON cannot hold it.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")

    headline: dict[str, float | str] = Field(default={}, description="scalars to show on the launch's parent run")
    datasets: tuple[Dataset, ...] = ()
    curve: tuple[dict[str, float], ...] = Field(default=(), description="points with a 'step' and other numbers")
    spend: Spend | None = Field(default=None, description="actual spend of a spending stage")


@dataclass(frozen=True)
class StageContext:
    """Inputs of a stage function."""

    config: LaunchConfig
    run: RunDir
    settings: Settings
    stage: str
    key: bytes | None  # 256 bits, the same at every retry; None for stages without a key
    # Distinguishes caches and registered models of launches with the same configuration.
    population: PopulationKey = _UNSTATED
    attempt: int = 0  # a newer attempt fences it out (``run.fence``); 0 where no other attempt can write

    @property
    def noise_key(self) -> bytes:
        """Key of a spending stage."""
        assert self.key is not None, f"{self.stage} spends nothing"
        return self.key

    @contextmanager
    def before_devices(self) -> Iterator[None]:
        """Guard the checks of a spending stage: if one refuses, the stage's reservation is given back.

        Guarantee: it is given back only if no device has contributed, at this attempt or an earlier one; the runner
        checks that the stage left no private file but its key.
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


# Dotted fields of a launch file, which may depend on its content.
Fields = Callable[[LaunchConfig], tuple[str, ...]]


def later(place: str) -> Callable[..., Any]:
    """Return a wrapper that imports ``module:function`` at its first call, as numeric modules are slow to import."""
    return lambda *given: imported(place)(*given)


def imported(place: str) -> Callable[..., Any]:
    """Import the function at ``module:function``."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def everything(config: LaunchConfig) -> tuple[str, ...]:
    """Return all fields of a launch file."""
    return tuple(type(config).model_fields)


def _nothing(ctx: StageContext) -> Mapping[str, object]:
    return {}


def _never(config: LaunchConfig) -> bool:
    return False


@dataclass(frozen=True)
class Replay:
    """Declaration of how ``verify`` compares a stage with a second run.

    Attributes:
      again: ``module:function`` of a cheap check; it takes a context in a folder beside the launch's, the record and
        the launch's folder, and yields differences. Empty: run the stage again.
      in_full: returns whether a full check of this launch, a run from the stage's key alone, does more than the cheap
        one.
      moving: fields of the result that later launches change.
      anywhere: True if the stage gives the same bits on every type of processor.
      afresh: True if the second run always starts from nothing, and never from the first run's final state.
    """

    again: str = ""
    in_full: Callable[[LaunchConfig], bool] = _never
    moving: frozenset[str] = frozenset()
    anywhere: bool = False
    afresh: bool = False


@dataclass(frozen=True)
class Stage:
    """Declaration of a stage. Its edges, its pool, and whether it spends or is public are derived from these fields.

    Attributes:
      name: never changes, as seeded keys are made of it.
      run: ``module:function``, imported when the stage runs, as numeric modules are slow to import.
      block: field of the launch file without which the stage is left out; empty: always included.
      needs, may_need: stages whose results or files it opens, always or for some launches. A spend is bound to them, so
        that a retry is the same release or is refused.
      follows: stages that run before it although it opens none of their files: spends come after the plan, expensive
        stages after cheap ones that may fail.
      evidence: opened stages that may fail; the stage then runs without them and reports that.
      reads: fields of the launch file that decide its outputs; by default all.
      sees: further fields that it gets, which do not affect its outputs.
      given: everything else that decides its outputs, as JSON values that identify it; None: the stage is not cached.
      code: tacit's files and folders that decide its outputs, from the root of the packages. For a release, only the
        release itself: a change elsewhere must not spend again. Empty: every launch runs the stage.
      libraries: third-party libraries that decide its outputs.
      private: private files and folders of other stages that it opens, as ``stage/name``; ``SOURCES`` for those of the
        people's text. It opens no other private file (``pretrain.access``).
      device: True if it computes on ``runtime.device``.
      planned: returns the worst-case spend that it reserves before it runs, without reading private data, or None if
        the launch asks for no release. A stage without this field spends nothing.
      says: constants in the code that decide a release, bound like its inputs.
      audit: returns the audit of a reusable release; it takes the context of the reusing launch, the launch that made
        the release, the launch that holds it, and whether to make a missing audit. None if there is no such audit.
      replay: the comparison with a second run in ``verify``; None: other checks of ``verify`` cover it.
      remade: ``module:function`` that makes those fields and files of its public half again which follow from public
        files (``run.public_fields.REMADE``). It takes a context in a folder with other stages' public files alone, the
        record, and the folder of the stage's own public files; it returns fields as JSON values. Empty: it has none.
      repeated: ``module:function`` that runs what only a repetition gives again, and yields differences. It takes a
        context in such a folder, the record and the launch's folder. Empty: nothing can be repeated.
      salted: ``module:function`` that gives those fields of a reused result that commit to private text, under the salt
        of the reusing launch, whose context it takes, as JSON values. Empty: it has none.
      asks_people: True if a person's files, such as a blocklist, may be among its inputs.
      attests: ``module:function`` that adds statements about the stage's outputs to the launch's proof; it takes the
        launch's folder, the settings and the record.
      line: its result in a few words for a terminal, a format string over the result's fields.
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
    device: bool = False
    planned: Callable[[LaunchConfig, RunDir], Spend | None] | None = None
    says: Mapping[str, str] = field(default_factory=dict)
    audit: Callable[[StageContext, str, str, bool], ReleaseAudit | None] | None = None
    replay: Replay | None = None
    remade: str = ""
    repeated: str = ""
    salted: str = ""
    asks_people: bool = False
    attests: str = ""
    line: str = ""

    @property
    def spends(self) -> bool:
        """Return whether the stage may make a release under a budget."""
        return self.planned is not None

    @property
    def cached(self) -> bool:
        """Return whether other launches may reuse its outputs; a stage that names no code has no content key."""
        return bool(self.code)

    @property
    def opens(self) -> tuple[str, ...]:
        """Return the stages whose results or files it opens."""
        return (*self.needs, *self.may_need, *self.evidence)

    def fields(self, config: LaunchConfig) -> tuple[str, ...]:
        """Return the dotted fields of a launch file that it is given."""
        return (*self.reads(config), *self.sees)

    @property
    def function(self) -> StageFunction:
        """Import the function that runs the stage."""
        return imported(self.run) if isinstance(self.run, str) else self.run


Stages = Mapping[str, Stage]


def of_launch(config: LaunchConfig, stages: Stages) -> tuple[str, ...]:
    """Names of the stages that a launch runs, in order; Airflow shows the others as skipped tasks."""
    return tuple(name for name, stage in stages.items() if not stage.block or getattr(config, stage.block) is not None)


def is_public(name: str, stages: Stages) -> bool:
    """Return whether a stage is cached and reads public data alone, so that any launch on any machine may reuse it.

    Guarantee: a stage that may spend, that keeps private files for others, or that opens a non-public stage is never
    public itself.
    """
    stage = stages.get(name)
    if stage is None or stage.spends or stage.private or kept(name, stages) or not stage.cached:
        return False
    return all(is_public(other, stages) for other in stage.opens)


def kept(name: str, stages: Stages) -> tuple[str, ...]:
    """Private files and folders of a stage that later stages open, and that a launch which reuses it copies."""
    opened = (each.partition("/") for stage in stages.values() for each in stage.private)
    return tuple(dict.fromkeys(file for of, _, file in opened if of == name and file not in (KEY, AUDIT)))


def access(config: LaunchConfig, run: RunDir, settings: Settings, name: str, stages: Stages) -> Access:
    """Files that a stage may open: its own, public ones of stages that it declares, and private ones by name.

    Guarantee: a stage opens no other file of any launch, none of the people's text, and no log of a keyboard, as
    far as ``pretrain.access`` sees.
    """
    stage, launches = stages[name], (each for each in run.root.iterdir() if (each / "public").is_dir())
    globs = (as_glob(Path(each))[1] for each in getattr(config.private_text, "paths", ()))
    texts = (glob(each, recursive=True) for each in globs)  # noqa: PTH207 - Path.glob refuses absolute ones
    sources = [Path(path) for matches in texts for path in matches]
    opened = [run.path / half / name for half in ("public", "private")]
    opened += [run.folder_of(other) / "public" / other for other in stage.opens]
    kept_files = (file for file in stage.private if file != SOURCES)
    opened += [run.folder_of(file.partition("/")[0]) / "private" / file for file in kept_files]
    opened += sources if SOURCES in stage.private else []
    guarded = (*launches, *sources, settings.device_logs)
    return Access(name, frozenset(map(os.path.realpath, guarded)), frozenset(map(os.path.realpath, opened)))


def view(config: LaunchConfig, name: str, stages: Stages) -> LaunchConfig:
    """Restrict a configuration to the fields that a stage declares; reading another is an ``AttributeError``.

    Guarantee: a public stage cannot learn where private text is.

    Raises:
      ValueError: a public stage declares ``private_text``.
    """
    names = stages[name].fields(config)
    if is_public(name, stages) and any(each.partition(".")[0] == "private_text" for each in names):
        raise ValueError(f"reads: 'private_text' in the public stage {name!r}; a stage that needs it is not public")
    return only(config, names)


def only(block: Any, names: Iterable[str]) -> Any:
    """Restrict a configuration block to some of its fields; names in inner blocks are dotted."""
    parts = [name.partition(".") for name in names]
    inner = {first: [rest for name, _, rest in parts if name == first] for first, _, _ in parts}
    fields = {
        name: getattr(block, name) if "" in rests else only(getattr(block, name), rests)
        for name, rests in inner.items()
    }
    view = type(block).model_construct(**fields)
    # Validation would fill in defaults, which could then be read without a declaration.
    for name in view.__dict__.keys() - fields:
        del view.__dict__[name]
    return view


def field_of(content: dict[str, Any], name: str) -> object:
    """Return a field by its dotted name; None if its block is absent."""
    value: Any = content
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def concludes(name: str, stages: Stages) -> bool:
    """Return whether a stage only combines other stages' results, and runs even if some of them failed."""
    stage = stages[name]
    return bool(stage.evidence) or any(concludes(other, stages) for other in stage.opens if other in stages)


def stage_key(config: LaunchConfig, run: RunDir, name: str) -> bytes:
    """Return the stage's secret key. In 'seeded' mode, for tests, anyone can compute it from the configuration."""
    if config.mechanism.randomness == "seeded":
        return hashlib.sha256(f"tacit seeded {config.seed} {name}".encode()).digest()
    return run.secret(name)


def drawn_anew(config: LaunchConfig, run: RunDir, name: str) -> bytes:
    """Return the stage's key as an empty folder of the same launch draws it: another one, unless it is derived."""
    with tempfile.TemporaryDirectory() as folder:
        return stage_key(config, RunDir(Path(folder), run.launch_id), name)


def public_facts(config: LaunchConfig, run: RunDir, name: str) -> tuple[str, ...]:
    """Public facts of a stage's launch, from which no key of its noise may follow."""
    facts = (run.launch_id, config.name, config.locale, str(config.population), str(config.seed), name)
    return (*facts, config_digest(config))


def release_key(config: LaunchConfig, run: RunDir, name: str) -> bytes:
    """Return the key of a stage's release.

    Guarantee: unless the launch file declares a seed, the key follows neither from public facts of the launch, by
    common constructions, nor from launch and stage, by any: an empty folder draws another one.

    Raises:
      PermanentError: anyone could make this key.
    """
    from evaluation.audit.released.key import is_public  # numpy, which a look at a launch does not need

    key = stage_key(config, run, name)
    if config.mechanism.randomness == "seeded":
        return key
    if key == drawn_anew(config, run, name) or is_public(key, public_facts(config, run, name)):
        raise PermanentError(
            f"private/{name}/{KEY}: anyone could make this key and subtract its noise; find out how it came there, "
            "delete it, and run the stage again, or launch under another name if its noise was released"
        )
    return key


def binding_of(
    config: LaunchConfig, run: RunDir, key: bytes, stage: Stage, begun: Mapping[str, Any] | None
) -> dict[str, str]:
    """Binding that makes a retry the same release: configuration, key (``commitment``), inputs and constants.

    Args:
      begun: binding of the standing reservation; None if there is none.
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
        **commitment(config, key),
    }


def commitment(config: LaunchConfig, key: bytes) -> dict[str, str]:
    """Commitment to a release's key, as its binding states it; the ledger lets no other release have a secret one."""
    name = f"seeded_{entries.KEY}" if config.mechanism.randomness == "seeded" else entries.KEY
    return {name: hashlib.sha256(b"tacit key commitment" + key).hexdigest()}
