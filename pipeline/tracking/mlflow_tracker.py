"""MLflow: one parent run per launch, one child run per stage, one registered model per locale and feature.

    experiment  keyboard/<locale>
      run       <launch_id>            configuration, provenance, proof, its row in the table (``tracking.table``)
        run     <stage>                its fields, numbers and curve, digests of data sets, every public file

A run is identified by its ``tacit.key`` tag. Only files of the public half of a run directory are logged, and only
those that the stage's record names by digest. Times are those of the record: the hour in which a stage began, and its
seconds to two digits. A launch began with its first stage, and lasts as long as its stages (``_lasted``).
"""

import logging
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pretrain
from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.run.proof import FOLDER
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, read_record, record_text
from pipeline.telemetry.allowed import this_hour
from pipeline.tracking import shown, table
from pipeline.tracking.client import answering, connect, load, one_process, require_own, stand_once
from pretrain.files import atomic, scratch, sha256, text_sha256

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_log = logging.getLogger(__name__)

_KEY, RECORD, _CONTENT = "tacit.key", "tacit.record", "tacit.content"
_STATE = "tacit.state"
_NOTE = "mlflow.note.content"
_CHECKPOINT = "tacit.ledger"  # tag with the checkpoint of the ledger's log (``pipeline.ledger.outside``)
_HOUR = 3_600_000
_BATCH = 100  # MLflow's limit on parameters or tags in one request


class MlflowTracker:
    """Tracking of one launch; the ``Tracker`` of the runner."""

    def __init__(self, settings: Settings, config: LaunchConfig, launch_id: str) -> None:
        self._settings, self._config, self._launch_id = settings, config, launch_id

    @cached_property
    def _client(self) -> "MlflowClient":
        return connect(self._settings)

    def log_stage(self, run: RunDir, record: StageRecord, fields: Collection[str]) -> None:
        """Log a finished stage; logging the same record again changes nothing.

        Metrics can only be appended to, so an unfinished or outdated run is dropped and the
        stage gets a new one: a curve never holds a point twice.

        Args:
          fields: dotted fields of the launch file that the stage was given.
        """
        digest = text_sha256(record_text(record))
        key = f"{self._launch_id}/{record.stage}"
        begin, end = _span(record)
        with answering():
            parent = self._launch_run(begin)
            self._client.log_artifacts(parent, str(run.public(FOLDER)), FOLDER)
            for old in self._find(_KEY, key):
                if old.data.tags.get(RECORD) == digest:
                    return
                self._client.delete_run(old.info.run_id)
            tags = {"mlflow.parentRunId": parent, "tacit.stage": record.stage, **self._provenance(key)}
            shared = {_CONTENT: record.content, "tacit.reused_from": record.reused_from}
            tags |= {name: value for name, value in shared.items() if value}
            child = self._create_run(tags, record.stage, begin)
            self._log_params(child, shown.stage_parameters(self._config.model_dump(mode="json"), fields))
            self._log_points(child, ((name, value, end, step) for name, step, value in shown.points(record)))
            self._log_datasets(child, record)
            self._log_files(child, run, record)
            self._client.set_tag(child, RECORD, digest)
            self._client.set_terminated(child, end_time=end)
            self._log_datasets(parent, record)
            row = self._log_row(parent, record)
            decision = row.get("decision")
            self._describe(parent, row)
            before = self._client.get_run(parent).info.status
            self._set_status(parent, table.status_after(record, decision, before))

    def show_state(self, state: str, approvers: str = "") -> None:
        """Show the launch's state (``publication.approvals``) and its approvers as tags and status of its run."""
        with answering():
            parent = self.parent_run_id
            self._mend(self._experiment_id)
            tags = self._client.get_run(parent).data.tags
            for name, value in {_STATE: state, "approver": approvers}.items():
                if tags.get(name, "") != value:
                    self._client.set_tag(parent, name, value)
            self._set_status(parent, table.status_of_state(state))

    def _set_status(self, run_id: str, wanted: str) -> None:
        """Set the status of a launch's run, never to RUNNING, as a killed process could not reset it."""
        if wanted == table.WAITING:
            self._client.update_run(run_id, status=wanted)
            return
        stages = self._client.search_runs([self._experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'")
        lasted = _lasted((stage.info.start_time, stage.info.end_time) for stage in stages if stage.info.end_time)
        began = self._client.get_run(run_id).info.start_time
        self._client.set_terminated(run_id, wanted, end_time=began + lasted)

    def checkpoints(self) -> Mapping[str, str]:
        """Checkpoints of the ledger's log in MLflow, by place."""
        return checkpoints_of_locale(self._settings, self._config.locale)

    def keep_checkpoint(self, note: str) -> None:
        """Store the checkpoint of the ledger's log with the launch and its locale."""
        with answering():
            self._client.set_experiment_tag(self._experiment_id, _CHECKPOINT, note)
            self._client.set_tag(self.parent_run_id, _CHECKPOINT, note)

    def fetch(self, stage: str, filename: str, destination: Path) -> bool:
        """Fetch a public file of a finished stage; False if there is none."""
        with answering():
            return any(
                self._fetch(run, filename, destination) for run in self._find(_KEY, f"{self._launch_id}/{stage}")
            )

    def identical(self, stage: str, content: str) -> Iterator[tuple[StageRecord, Callable[[str, Path], bool]]]:
        """Yield finished public stages of this locale with this content key, each with a function that fetches them."""
        with answering():
            runs = self._find(_CONTENT, content)
        for run in runs:

            def fetch(filename: str, destination: Path, run: "Run" = run) -> bool:
                with answering():
                    return self._fetch(run, filename, destination)

            with scratch(self._settings.runs_dir, "fetch") as folder:
                path = folder / RESULT
                try:
                    record = read_record(path) if fetch(RESULT, path) else None
                except (PermanentError, ValueError) as error:
                    _log.warning("%s of run %s in MLflow is damaged: %s", stage, run.info.run_id, error)
                    continue
            if record and record.stage == stage:
                yield record, fetch

    @property
    def parent_run_id(self) -> str:
        """Id of the launch's own run, created at its first use."""
        return self._launch_run(_this_hour())

    def _launch_run(self, began: int) -> str:
        """Id of the launch's own run; a new one began at this time, as its first stage did."""
        key = self._launch_id
        self._experiment_id  # noqa: B018 - before the lock: it takes the same one
        with one_process(self._settings):
            if not self._find(_KEY, key):
                tags = {"tacit.launch": key, "config.sha256": config_digest(self._config), **self._provenance(key)}
                run_id = self._create_run(tags, key, began)
                self._log_params(run_id, shown.parameters(self._config.model_dump(mode="json")))
                self._client.log_dict(run_id, self._config.model_dump(mode="json"), "launch.json")
        # Machines that share a server but no disk may both have created one; all use the same.
        return self._find(_KEY, key)[0].info.run_id

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Show the launch as failed in MLflow if the block raises."""
        try:
            yield
        except Exception:
            with answering():
                for run in self._find(_KEY, self._launch_id):
                    self._show_failed(run.info.run_id)
            raise

    def _create_run(self, tags: Mapping[str, str], name: str, began: int) -> str:
        run_id = self._client.create_run(self._experiment_id, began, dict(tags), name).info.run_id
        self._client.update_run(run_id, status=table.WAITING)
        return run_id

    @cached_property
    def _experiment_id(self) -> str:
        name = table.experiment_name(self._config.locale)
        root = self._settings.artifact_root
        client = self._client  # before the lock: connecting takes the same one
        with one_process(self._settings):
            existing = client.get_experiment_by_name(name)
            place = root and f"{root}/{self._config.locale}"
            number = existing.experiment_id if existing else client.create_experiment(name, artifact_location=place)
            for tag, value in table.experiment_tags(number, self._config.locale).items():
                if not existing or existing.tags.get(tag) != value:
                    client.set_experiment_tag(number, tag, value)
        return number

    def _mend(self, experiment_id: str) -> None:
        """Show launches as failed whose process was killed before it could do so."""
        for run in self._client.search_runs([experiment_id], "tags.`tacit.launch` LIKE '%'"):
            launch = run.data.tags["tacit.launch"]
            if launch == self._launch_id or run.info.status not in (table.WAITING, "RUNNING"):
                continue
            if stage := table.interrupted_stage(self._settings.runs_dir / launch):
                _log.warning("%s: was killed in %s; MLflow now shows it as failed", launch, stage)
                self._show_failed(run.info.run_id)

    def _show_failed(self, run_id: str) -> None:
        self._client.set_tag(run_id, _STATE, table.FAILED.lower())
        self._set_status(run_id, table.FAILED)

    def logged_model(self, tags: Mapping[str, str]) -> tuple[str, str] | None:
        """URI and id of the complete logged model with these tags; deletes incomplete and duplicate ones."""
        with answering():
            models = self._client.search_logged_models([self._experiment_id])
            ours = [model for model in models if all(model.tags.get(name) == value for name, value in tags.items())]
            whole = [model for model in ours if model.status == "READY"]
            for model in ours:
                if model not in whole[:1]:
                    self._client.delete_logged_model(model.model_id)
            return (whole[0].model_uri, whole[0].model_id) if whole else None

    def logged(self, key: str) -> list[shown.LoggedRun]:
        """Runs in MLflow under a key: a launch's own run, or that of one of its stages."""
        with answering():
            return [self._logged(run) for run in self._find(_KEY, key)]

    def _logged(self, run: "Run") -> shown.LoggedRun:
        with tempfile.TemporaryDirectory() as folder:
            self._client.download_artifacts(run.info.run_id, "", dst_path=folder)
            files = shown.digests(Path(folder))
        points = {key: self._client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
        return shown.LoggedRun(
            status=run.info.status,
            latest=run.data.metrics,
            tags=run.data.tags,
            params=run.data.params,
            metrics={key: sorted((point.step, point.value) for point in history) for key, history in points.items()},
            files=files,
        )

    def _find(self, tag: str, value: str) -> list["Run"]:
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        found = list(self._client.search_runs([self._experiment_id], f"tags.`{tag}` = '{value}'", order_by=order))
        for run in found:
            require_own(run.info.artifact_uri, self._settings)
        return found

    def _provenance(self, key: str) -> dict[str, str]:
        tags = {_KEY: key, "locale": self._config.locale, "feature": ", ".join(self._config.features)}
        if self._settings.git_commit:
            tags["mlflow.source.git.commit"] = self._settings.git_commit
        return tags | {f"lock.{name}": digest for name, digest in self._settings.lock_digests.items()}

    def _log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        items = [Param(key, value) for key, value in params.items()]
        for start in range(0, len(items), _BATCH):
            self._client.log_batch(run_id, params=items[start : start + _BATCH])

    def _log_points(self, run_id: str, points: Iterable[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(*point) for point in points]
        for start in range(0, len(metrics), 10 * _BATCH):
            self._client.log_batch(run_id, metrics=metrics[start : start + 10 * _BATCH])

    def _log_datasets(self, run_id: str, record: StageRecord) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        # Only the digest of a data set is logged, no content. MLflow stores 36 characters of it.
        inputs = [
            DatasetInput(
                Dataset(name=item["name"], digest=item["digest"][:36], source_type="local", source='{"uri": "digest"}'),
                [InputTag("mlflow.data.context", item["context"])],
            )
            for item in record.result.get("datasets", [])
        ]
        if inputs:
            self._client.log_inputs(run_id, inputs)

    def _log_files(self, run_id: str, run: RunDir, record: StageRecord) -> None:
        public = run.path / "public" / record.stage
        stored = require_own(self._client.get_run(run_id).info.artifact_uri, self._settings)
        for name, digest in record.outputs.items():
            path = public / name
            if not path.resolve().is_relative_to(public.resolve()) or sha256(path) != digest:
                raise PermanentError(
                    f"{path}: not the public file that the stage wrote; run stage {record.stage} again"
                )
            self._client.log_artifact(run_id, str(path), artifact_path=name.rpartition("/")[0] or None)
            stand_once(path, f"{stored}/{quote(name)}")
        self._client.log_text(run_id, record_text(record), RESULT)

    def _log_row(self, parent: str, record: StageRecord) -> dict[str, str]:
        """Log a stage's columns in its launch's row and curves, once; return the row's tags.

        MLflow shows the value with the latest time, so values of one hour get increasing milliseconds.
        """
        present, row = self._client.get_run(parent).data, table.columns(record)
        tags = {name: value for name, value in row.items() if isinstance(value, str)}
        if present.tags.get(_STATE) in (None, table.FAILED.lower()):  # The launch resumes.
            tags[_STATE] = "unfinished"
        for name, value in tags.items():
            self._client.set_tag(parent, name, value)
        points = [
            (name, 0, value)
            for name, value in row.items()
            if not isinstance(value, str) and present.metrics.get(name) != value
        ]
        curves = list(table.curves(record))
        for name in {name for name, _, _ in curves}:
            history = self._client.get_metric_history(parent, name) if name in present.metrics else []
            logged = {(point.step, point.value) for point in history}
            points += [point for point in curves if point[0] == name and point[1:] not in logged]
        again = row.keys() & present.metrics.keys()
        times = [point.timestamp for name in again for point in self._client.get_metric_history(parent, name)]
        now = max([_this_hour(), *(moment + 1 for moment in times)])
        self._log_points(parent, ((name, value, now, step) for name, step, value in points))
        return {**present.tags, **tags}

    def _describe(self, parent: str, row: Mapping[str, str]) -> None:
        """Write the note on the page of a launch that its gates have decided."""
        if "decision" not in row or "loss" not in row:
            return
        reports = self._find(_KEY, f"{self._launch_id}/report")
        note = table.description(row, self._experiment_id, reports[0].info.run_id if reports else None)
        if row.get(_NOTE) != note:
            self._client.set_tag(parent, _NOTE, note)

    def _fetch(self, run: "Run", filename: str, destination: Path) -> bool:
        """Fetch a file of a finished stage's run; False if it has none of this name."""
        inside = filename.rpartition("/")[0] or None
        listed = {item.path for item in self._client.list_artifacts(run.info.run_id, inside)}
        if RECORD not in run.data.tags or filename not in listed:
            return False
        destination.parent.mkdir(parents=True, exist_ok=True)
        with scratch(destination.parent, "fetch") as folder:
            got = Path(self._client.download_artifacts(run.info.run_id, filename, dst_path=str(folder)))
            if filename == RESULT and sha256(got) != run.data.tags[RECORD]:
                _log.warning("%s: %s in MLflow differs from the logged one", run.data.tags[_KEY], RESULT)
                return False
            with atomic(destination) as temporary:
                got.replace(temporary)
        _log.info("fetched %s from MLflow", filename)
        return True


def _span(record: StageRecord) -> tuple[int, int]:
    """Begin and end of a stage in milliseconds, from its record: the hour, and its seconds to two digits.

    Guarantee: every time in MLflow follows from the record, whose seconds have two digits.
    """
    begin = round(1000 * datetime.fromisoformat(record.started_at).timestamp())
    return begin, begin + round(1000 * record.seconds)


def _lasted(stages: Iterable[tuple[int, int]]) -> int:
    """Duration of a launch in milliseconds: the shortest that its stages allow, one after the other.

    A stage's hour moves its begin on only if an hour or more has passed in any case, as while a launch waits for its
    reviewers: of two stages, one may have begun at the end of its hour and the other at the beginning of the next.

    Args:
      stages: begin, an hour, and end of each.
    """
    spans = sorted(stages)
    at = 0
    for begin, end in spans:
        at = max(at, begin - spans[0][0] - _HOUR) + end - begin
    return at


def _this_hour() -> int:
    """Current hour in milliseconds, as finer times of consecutive stages would reveal a stage's duration."""
    return round(1000 * datetime.fromisoformat(this_hour()).timestamp())


def log_bundle(settings: Settings, run_id: str, bundle: Path, tags: Mapping[str, str]) -> tuple[str, str]:
    """Log a bundle as a pyfunc model with its own code, and return its URI and id.

    MLflow calls ``pretrain.model.predictor._load_pyfunc`` on the bundle's folder: nothing is pickled,
    and the requirements are explicit instead of inferred. MLflow's refusal of a table without a required
    column repeats the table, which holds text; so the column is optional there, and the predictor refuses.
    """
    needed = ("numpy", "onnxruntime", "regex", "langcodes")
    with answering():
        mlflow = load(settings.tracking_uri)
        from mlflow.types.schema import Array, ColSpec, ParamSchema, ParamSpec, Schema

        from pretrain.model.predictor import COLUMN  # onnxruntime, which a look at a launch does not need

        signature = mlflow.models.ModelSignature(
            inputs=Schema([ColSpec("string", COLUMN, required=False)]),
            outputs=Schema([ColSpec(Array("string"))]),
            params=ParamSchema([ParamSpec("count", "long", 3)]),
        )
        with mlflow.start_run(run_id=run_id, log_system_metrics=False):
            logged = mlflow.pyfunc.log_model(
                name="keyboard",
                loader_module="pretrain.model.predictor",
                data_path=str(bundle),
                code_paths=[str(Path(pretrain.__file__).parent)],
                pip_requirements=[f"{name}=={version(name)}" for name in needed],
                tags=dict(tags),
                signature=signature,
                input_example=({COLUMN: "see you"}, {"count": 3}),
            )
        return logged.model_uri, logged.model_id


def download_model(settings: Settings, name: str, number: int, folder: Path) -> Path:
    """Copy a registered version into ``folder``; raises as ``require_own``."""
    client = connect(settings)
    with answering():
        address = client.get_model_version_download_uri(name, str(number))
        artifacts = load(settings.tracking_uri).artifacts
        return Path(artifacts.download_artifacts(require_own(address, settings), dst_path=str(folder)))


def checkpoints_of_locale(settings: Settings, locale: str) -> Mapping[str, str]:
    """Checkpoints of the ledger's log in MLflow, of a locale's experiment and of each of its launches, by place.

    Each covers all entries at the time when a launch last wrote to the ledger, so the removal of one is detected.

    Raises:
      ServiceUnavailable: MLflow does not answer.
    """
    client = connect(settings)
    with answering():
        logged = client.get_experiment_by_name(table.experiment_name(locale))
        if logged is None:
            return {}
        places = {f"experiment {logged.name} in MLflow": logged.tags.get(_CHECKPOINT)}
        for run in client.search_runs([logged.experiment_id], "tags.`tacit.launch` LIKE '%'"):
            places[f"run {run.data.tags['tacit.launch']} in MLflow"] = run.data.tags.get(_CHECKPOINT)
    return {place: text for place, text in places.items() if text}
