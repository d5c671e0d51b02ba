"""The registered model of a locale and feature: versions and the aliases that point at them."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import tracking
from pipeline.config import LaunchConfig
from pipeline.errors import ReleaseRefused
from pipeline.settings import Settings

if TYPE_CHECKING:
    from mlflow import MlflowClient  # noqa: TID251 - a name for the type checker, never imported


def model_name(locale: str, feature: str) -> str:
    """``keyboard-<locale>-<feature>``."""
    return f"keyboard-{locale}-{feature}"


class Registry:
    """Registered models of one MLflow."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _client(self) -> "MlflowClient":
        return tracking.connect(self._settings)

    def register(self, config: LaunchConfig, launch_id: str, bundle: Path, tags: dict[str, str]) -> int:
        """Version number of a bundle; the same bundle of the same launch is registered once."""
        name = model_name(config.locale, config.feature)
        with tracking.answering():
            if not self._client.search_registered_models(f"name = '{name}'"):
                self._client.create_registered_model(name, tags={"locale": config.locale, "feature": config.feature})
            for known in self._client.search_model_versions(f"name = '{name}'"):
                if all(known.tags.get(key) == tags[key] for key in ("tacit.launch", "bundle.sha256")):
                    return int(known.version)
            run_id = tracking.MlflowTracker(self._settings, config, launch_id).parent_run_id()
            source, model_id = tracking.log_bundle(self._settings, run_id, bundle)
            made = self._client.create_model_version(name, source, run_id, tags=tags, model_id=model_id)
            return int(made.version)

    def alias(self, name: str, alias: str) -> int | None:
        """The version an alias points at."""
        with tracking.answering():
            found = self._client.search_registered_models(f"name = '{name}'")
            value = found[0].aliases.get(alias) if found else None
            return None if value is None else int(value)

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Point an alias at a version."""
        with tracking.answering():
            self._client.set_registered_model_alias(name, alias, str(version))

    def delete_alias(self, name: str, alias: str) -> None:
        """Let an alias point nowhere."""
        with tracking.answering():
            self._client.delete_registered_model_alias(name, alias)

    def download(self, name: str, alias: str, folder: Path) -> Path:
        """Bring the bundle behind an alias into ``folder``.

        Raises:
          ReleaseRefused: the alias points nowhere.
        """
        version = self.alias(name, alias)
        if version is None:
            raise ReleaseRefused(f"{name}: no version is {alias!r}; publish a launch first")
        return tracking.download_model(self._settings, name, version, folder) / "data" / "bundle"
