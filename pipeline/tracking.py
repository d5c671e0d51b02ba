"""MLflow: one parent run per launch, one child run per stage, one registered model per locale and feature.

    experiment  keyboard/<locale>
      run       <launch_id>            configuration, provenance, the scalars to compare launches by
        run     <stage>                parameters, metrics, data set digests, every public file

A run is found again by its ``tacit.key`` tag. Only files of the public half of a run directory
are logged, and only those that the stage's record names by digest.
"""

import fcntl
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pretrain
from pipeline import mlflow_file, shown
from pipeline.config import LaunchConfig, config_digest
from pipeline.errors import PermanentError, ServiceUnavailable
from pipeline.run_dir import RESULT, RunDir, StageRecord, record_text
from pipeline.settings import Settings, quiet_mlflow
from pipeline.telemetry import machine
from pretrain.files import atomic, scratch, sha256, text_sha256

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_log = logging.getLogger(__name__)

_KEY, RECORD, _CONTENT = "tacit.key", "tacit.record", "tacit.content"
# Once these have run, nothing is left for the parent run to wait for.
_LAST_STAGES = frozenset({"report", "publish"})
_WAITING = "SCHEDULED"
_SQLITE = "sqlite:///"
_BATCH = 100  # MLflow's most parameters or tags in one request


def connect(settings: Settings) -> "MlflowClient":
    """A client of the tracking store and registry, made if this is their first use.

    MLflow is imported here and not above: it takes seconds, and commands that find their work
    done never need it.

    Raises:
      ServiceUnavailable: the server or database does not answer.
      PermanentError: the database was made by an older MLflow.
    """
    quiet_mlflow()
    from mlflow import MlflowClient

    # Of several processes that meet a database without tables, all but one would fail: making a client makes them.
    with answering(), _one_process(settings):
        if settings.tracking_uri.startswith(_SQLITE):
            path = Path(settings.tracking_uri.removeprefix(_SQLITE))
            mlflow_file.ensure(path, lambda made: MlflowClient(f"{_SQLITE}{made}").search_experiments(max_results=1))
        client = MlflowClient(tracking_uri=settings.tracking_uri, registry_uri=settings.tracking_uri)
        client.search_experiments(max_results=1)
        return client


@contextmanager
def answering() -> Iterator[None]:
    """Turn what MLflow raises when its store does not answer into a ``ServiceUnavailable``."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if "mlflow db upgrade" in str(error):
            raise PermanentError(
                "MLflow's database was made by another version; back it up and run 'mlflow db upgrade' with its URL"
            ) from error
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise PermanentError(f"MLflow does not hold what was asked for: {error.message}") from error
        if error.error_code in ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"):
            raise ServiceUnavailable(f"MLflow does not answer: {error.message}") from error
        raise


class MlflowTracker:
    """Tracking of one launch; the ``Tracker`` of the runner."""

    def __init__(self, settings: Settings, config: LaunchConfig, launch_id: str) -> None:
        self._settings, self._config, self._launch_id = settings, config, launch_id

    @cached_property
    def _client(self) -> "MlflowClient":
        return connect(self._settings)

    def log_stage(self, run: RunDir, record: StageRecord) -> None:
        """Log a finished stage; a second time with the same record changes nothing.

        Metrics can only be appended to, so an unfinished or outdated run is dropped and the
        stage gets a new one: a curve never holds a point twice.
        """
        digest = text_sha256(record_text(record))
        key = f"{self._launch_id}/{record.stage}"
        with answering():
            parent = self.parent_run_id()
            for old in self._find(_KEY, key):
                if old.data.tags.get(RECORD) == digest:
                    return
                self._client.delete_run(old.info.run_id)
            tags = {"mlflow.parentRunId": parent, "tacit.stage": record.stage, **self._provenance(key)}
            shared = {_CONTENT: record.content, "tacit.reused_from": record.reused_from}
            tags |= {name: value for name, value in shared.items() if value}
            child = self._create_run(tags, record.stage)
            self._log_numbers(child, record)
            self._log_datasets(child, record)
            self._log_files(child, run, record)
            self._client.set_tag(child, RECORD, digest)
            self._client.set_terminated(child)
            self._log_headline(parent, record.result.get("headline", {}))
            if record.stage in _LAST_STAGES:
                self._client.set_terminated(parent)
            else:
                self._client.update_run(parent, status=_WAITING)

    def show_state(self, state: str) -> None:
        """Where the launch stands (``pipeline.release``), as a tag of its run."""
        with answering():
            parent = self.parent_run_id()
            if self._client.get_run(parent).data.tags.get("tacit.state") != state:
                self._client.set_tag(parent, "tacit.state", state)

    def fetch(self, stage: str, filename: str, destination: Path) -> bool:
        """Bring back a public file of a finished stage; False if there is none."""
        with answering():
            return any(
                self._fetch(run, filename, destination) for run in self._find(_KEY, f"{self._launch_id}/{stage}")
            )

    def identical(self, stage: str, content: str) -> Iterator[tuple[StageRecord, Callable[[str, Path], bool]]]:
        """Finished public stages of this locale with this content key, each with what fetches its files."""
        with answering():
            runs = self._find(_CONTENT, content)
        for run in runs:

            def fetch(filename: str, destination: Path, run: "Run" = run) -> bool:
                with answering():
                    return self._fetch(run, filename, destination)

            with scratch(self._settings.runs_dir, "fetch") as folder:
                path = folder / RESULT
                try:
                    record = StageRecord.model_validate_json(path.read_bytes()) if fetch(RESULT, path) else None
                except (PermanentError, ValueError) as error:
                    _log.warning("%s of run %s in MLflow is damaged: %s", stage, run.info.run_id, error)
                    continue
            if record and record.stage == stage:
                yield record, fetch

    def parent_run_id(self) -> str:
        """The launch's own run, made at the first use."""
        key = self._launch_id
        self._experiment_id  # noqa: B018 - before the lock: it takes the same one
        with _one_process(self._settings):
            if not self._find(_KEY, key):
                tags = {"tacit.launch": key, "config.sha256": config_digest(self._config), **self._provenance(key)}
                run_id = self._create_run(tags, key)
                self._log_params(run_id, shown.parameters(self._config.model_dump(mode="json")))
                self._client.log_dict(run_id, self._config.model_dump(mode="json"), "launch.json")
        # Machines that share a server but no disk may both have made one; all use the oldest.
        return self._find(_KEY, key)[0].info.run_id

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Show the launch as failed, where MLflow knows it, if what is done in this block fails."""
        try:
            yield
        except Exception:
            with answering():
                for run in self._find(_KEY, self._launch_id):
                    self._client.set_terminated(run.info.run_id, "FAILED")
            raise

    def _create_run(self, tags: Mapping[str, str], name: str) -> str:
        """A run that is never shown as running: nobody could tell when the process that logs it was killed."""
        run_id = self._client.create_run(self._experiment_id, tags=dict(tags), run_name=name).info.run_id
        self._client.update_run(run_id, status=_WAITING)
        return run_id

    @cached_property
    def _experiment_id(self) -> str:
        name = f"keyboard/{self._config.locale}"
        root = self._settings.artifact_root
        client = self._client  # before the lock: connecting takes the same one
        with _one_process(self._settings):
            experiment = client.get_experiment_by_name(name)
            if experiment:
                return experiment.experiment_id
            return client.create_experiment(name, artifact_location=root and f"{root}/{self._config.locale}")

    def logged_model(self, tags: Mapping[str, str]) -> tuple[str, str] | None:
        """URI and id of the model that was logged whole with these tags; what was cut off or is there twice goes."""
        with answering():
            models = self._client.search_logged_models([self._experiment_id])
            ours = [model for model in models if all(model.tags.get(name) == value for name, value in tags.items())]
            whole = [model for model in ours if model.status == "READY"]
            for model in ours:
                if model not in whole[:1]:
                    self._client.delete_logged_model(model.model_id)
            return (whole[0].model_uri, whole[0].model_id) if whole else None

    def logged(self, key: str) -> list[shown.Logged]:
        """What MLflow holds under a key: a launch's own run, or that of one of its stages."""
        with answering():
            return [self._logged(run) for run in self._find(_KEY, key)]

    def _logged(self, run: "Run") -> shown.Logged:
        with tempfile.TemporaryDirectory() as folder:
            self._client.download_artifacts(run.info.run_id, "", dst_path=folder)
            files = shown.digests(Path(folder))
        points = {key: self._client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
        return shown.Logged(
            status=run.info.status,
            latest=run.data.metrics,
            tags=run.data.tags,
            params=run.data.params,
            metrics={key: sorted((point.step, point.value) for point in history) for key, history in points.items()},
            files=files,
        )

    def _find(self, tag: str, value: str) -> list["Run"]:
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        return list(self._client.search_runs([self._experiment_id], f"tags.`{tag}` = '{value}'", order_by=order))

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

    def _log_numbers(self, run_id: str, record: StageRecord) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(*point) for point in (*machine.stamped(shown.points(record)), *machine.points())]
        for start in range(0, len(metrics), 10 * _BATCH):
            self._client.log_batch(run_id, metrics=metrics[start : start + 10 * _BATCH])

    def _log_datasets(self, run_id: str, record: StageRecord) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        # The digest names the data; nothing of a data set itself is logged. MLflow keeps 36 characters of it.
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
        public = run.public(record.stage)
        for name, digest in record.outputs.items():
            path = public / name
            if not path.resolve().is_relative_to(public.resolve()) or sha256(path) != digest:
                raise PermanentError(
                    f"{path}: not the public file that the stage wrote; run stage {record.stage} again"
                )
            self._client.log_artifact(run_id, str(path), artifact_path=name.rpartition("/")[0] or None)
        self._client.log_text(run_id, record_text(record), RESULT)

    def _log_headline(self, parent: str, headline: Mapping[str, float | str]) -> None:
        present = self._client.get_run(parent).data
        for key, value in headline.items():
            if isinstance(value, str):
                self._client.set_tag(parent, key, value)
            elif present.metrics.get(key) != value:
                self._client.log_metric(parent, key, value)

    def _fetch(self, run: "Run", filename: str, destination: Path) -> bool:
        """Bring a file of a finished stage's run; False if it has none of this name."""
        inside = filename.rpartition("/")[0] or None
        listed = {item.path for item in self._client.list_artifacts(run.info.run_id, inside)}
        if RECORD not in run.data.tags or filename not in listed:
            return False
        destination.parent.mkdir(parents=True, exist_ok=True)
        with scratch(destination.parent, "fetch") as folder:
            got = Path(self._client.download_artifacts(run.info.run_id, filename, dst_path=str(folder)))
            if filename == RESULT and sha256(got) != run.data.tags[RECORD]:
                _log.warning("%s: %s in MLflow is not what the stage logged", run.data.tags[_KEY], RESULT)
                return False
            with atomic(destination) as temporary:
                got.replace(temporary)
        _log.info("fetched %s from MLflow", destination.name)
        return True


def log_bundle(settings: Settings, run_id: str, bundle: Path, tags: Mapping[str, str]) -> tuple[str, str]:
    """Log a bundle as a pyfunc model that carries its own code; returns its URI and id.

    MLflow calls ``pretrain.predictor._load_pyfunc`` on the bundle's folder: nothing is pickled,
    and the requirements are stated instead of guessed.
    """
    needed = ("numpy", "onnxruntime", "regex", "langcodes")
    with answering():
        mlflow = load(settings.tracking_uri)
        with mlflow.start_run(run_id=run_id, log_system_metrics=False):
            logged = mlflow.pyfunc.log_model(
                name="keyboard",
                loader_module="pretrain.predictor",
                data_path=str(bundle),
                code_paths=[str(Path(pretrain.__file__).parent)],
                pip_requirements=[f"{name}=={version(name)}" for name in needed],
                tags=dict(tags),
            )
        return logged.model_uri, logged.model_id


def download_model(settings: Settings, name: str, number: int, folder: Path) -> Path:
    """Copy a registered version into ``folder``."""
    with answering():
        artifacts = load(settings.tracking_uri).artifacts
        return Path(artifacts.download_artifacts(f"models:/{name}/{number}", dst_path=str(folder)))


def load(uri: str = "") -> Any:
    """MLflow, imported at its first use as that takes seconds, and told of a tracking store."""
    quiet_mlflow()
    import mlflow

    if uri:
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
    return mlflow


@contextmanager
def _one_process(settings: Settings) -> Iterator[None]:
    settings.runs_dir.mkdir(parents=True, exist_ok=True)
    with (settings.runs_dir / ".mlflow.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
