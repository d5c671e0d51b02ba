"""Verify that MLflow shows a launch's own statements: runs, files, numbers, and the registered model.

MLflow is only a display, which anyone with access can edit, so no content of it is trusted.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from pipeline.ground.errors import LaunchError, ServiceUnavailable
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.publication.registry import Registry, version_description
from pipeline.run.bookkeeping import differences, digests
from pipeline.run.proof import FOLDER
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, record_text
from pipeline.stages.graph import STAGES
from pipeline.stages.publish import registered_tags
from pipeline.tracking import mlflow_tracker, shown, table
from pipeline.tracking.mlflow_tracker import MlflowTracker
from pipeline.tracking.shown import LoggedRun
from pipeline.verify.check import Check, in_words
from pretrain.files import text_sha256


def tracked(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord]
) -> Iterator[Check]:
    """Check each stage's run in MLflow, and the launch's own."""
    tracker = MlflowTracker(settings, config, run.launch_id)
    for name, record in records.items():
        yield _held_against(f"tracked:{name}", tracker, f"{run.launch_id}/{name}", partial(_stage, config, record))
    yield _held_against("tracked", tracker, run.launch_id, partial(_launch, config, run, records))


def _held_against(identity: str, tracker: MlflowTracker, key: str, compare: Callable[[LoggedRun], list[str]]) -> Check:
    try:
        logged = tracker.logged(key)
    except ServiceUnavailable as error:
        return Check(id=identity, passed=None, detail=str(error))
    if not logged:
        return Check(id=identity, passed=None, detail="MLflow has no run of it")
    wrong = [f"there are {len(logged)} runs of it"] if len(logged) > 1 else []
    wrong += compare(logged[0])
    return Check(id=identity, passed=not wrong, detail=in_words(wrong) or "MLflow matches the record")


def _stage(config: LaunchConfig, record: StageRecord, logged: LoggedRun) -> list[str]:
    text = text_sha256(record_text(record))
    tags = {mlflow_tracker.RECORD: text, "tacit.stage": record.stage}
    expected: dict[str, list[tuple[int, float]]] = {}
    for key, step, value in shown.points(record):
        expected.setdefault(key, []).append((step, value))
    params = shown.stage_parameters(config.model_dump(mode="json"), STAGES[record.stage].fields(config))
    return [
        *(f"tag {name}" for name, value in tags.items() if logged.tags.get(name) != value),
        *differences(record.outputs | {RESULT: text}, logged.files),
        *_metrics({key: sorted(points) for key, points in expected.items()}, logged),
        *_parameters(params, logged),
    ]


def _launch(config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord], logged: LoggedRun) -> list[str]:
    headline = {key: value for record in records.values() for key, value in table.columns(record).items()}
    tags = {key: value for key, value in headline.items() if isinstance(value, str)}
    tags |= {"config.sha256": config_digest(config), "locale": config.locale, "feature": ", ".join(config.features)}
    curves: dict[str, list[tuple[int, float]]] = {}
    for key, step, value in (point for record in records.values() for point in table.curves(record)):
        curves.setdefault(key, []).append((step, value))
    present = {
        key: [(0, logged.latest[key])]
        for key, points in logged.metrics.items()
        if key not in curves and (0, logged.latest[key]) in points
    }
    params = shown.parameters(config.model_dump(mode="json"))
    wrong = [f"tag {name}" for name, value in tags.items() if logged.tags.get(name) != value]
    for key in sorted(headline.keys() - tags.keys() | present.keys()):
        if present.get(key) != [(0, headline.get(key))]:
            wrong.append(f"metric {key}")
    wrong += [f"metric {key}" for key, points in curves.items() if logged.metrics.get(key) != sorted(points)]
    proven = {f"{FOLDER}/{name}": digest for name, digest in digests(run.path / "public" / FOLDER).items()}
    wrong += differences(proven, {name: logged.files.get(name, "") for name in proven})
    return [*wrong, *_parameters(params, logged)]


def _parameters(expected: Mapping[str, str], logged: LoggedRun) -> Iterator[str]:
    """Yield messages for fields of the launch file that MLflow lacks or shows otherwise."""
    yield from (f"parameter {name}" for name, value in expected.items() if logged.params.get(name) != value)


def _metrics(expected: Mapping[str, list[tuple[int, float]]], logged: LoggedRun) -> Iterator[str]:
    """Yield messages for metrics that differ from the record."""
    for key in sorted(expected.keys() | logged.metrics.keys()):
        points = expected.get(key, [])
        if points != logged.metrics.get(key) or points[-1][1] != logged.latest.get(key):
            yield f"metric {key}"


def registered(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord]
) -> Iterator[Check]:
    """Fetch the registered model, and check that its files are the published ones and its tags fit the launch."""
    record = records.get("publish")
    if record is None or not record.result["published"]:
        return
    registry, stated = Registry(settings), record.result
    main = stated["registered_model"]
    versions = stated["versions"]
    if versions.get(main) != stated["version"] or len(versions) != len(config.features):
        detail = f"states version {stated['version']} of {main}, and of its features {versions}"
        yield Check(id="registered", passed=False, detail=detail)
        return
    for name, version in versions.items():
        expected = registered_tags(config, run.launch_id, run.path / "public" / "publish" / "bundle")
        passed, detail = _version(registry, record, name, version, expected)
        yield Check(id="registered" if name == main else f"registered:{name}", passed=passed, detail=detail)


def _version(
    registry: Registry, record: StageRecord, name: str, version: int, expected: Mapping[str, str]
) -> tuple[bool | None, str]:
    """Return whether one feature's registered version is the published one, with the reason."""
    try:
        wrong = list(_tags(registry.tags(name, version), expected))
        if registry.description(name, version) != version_description(expected):
            wrong.append("description")
        with tempfile.TemporaryDirectory() as folder:
            present = registry.files(name, version, Path(folder))
    except ServiceUnavailable as error:
        return None, str(error)
    except (LaunchError, ValueError, OSError) as error:
        return None, f"version {version} of {name} cannot be fetched: {error}"
    bundle = {f"data/{file}": digest for file, digest in record.outputs.items() if file.startswith("bundle/")}
    wrong += differences(bundle, {file: digest for file, digest in present.items() if file.startswith("data/")})
    wrong += differences(record.result["registered_files"], present)
    if wrong:
        return False, f"version {version} of {name}: {in_words(wrong)}"
    return True, f"version {version} of {name}: {len(present)} files fetched, equal to the published ones"


def _tags(present: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(present.keys() | expected.keys()):
        if present.get(name) != expected.get(name):
            yield f"tag {name}"
