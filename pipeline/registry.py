"""The registered model of a locale and feature: versions and the aliases that point at them.

The alias ``candidate`` marks what was registered last, ``champion`` what users get and
``previous`` what they had before. Moving an alias is the release, so each step can be
repeated after a crash.
"""

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import tracking
from pipeline.config import LaunchConfig
from pipeline.errors import PermanentError, ReleaseRefused
from pipeline.settings import Settings
from pretrain.files import sha256

if TYPE_CHECKING:
    from pipeline.tracking import MlflowClient

_log = logging.getLogger(__name__)


def model_name(locale: str, feature: str) -> str:
    """``keyboard-<locale>-<feature>``."""
    return f"keyboard-{locale}-{feature}"


@dataclass(frozen=True)
class Published:
    """A registered version of a model: its launch and the digest of its bundle.

    Attributes:
      bundle_sha256: of ``bundle.json``, which holds the digest of every other file.
    """

    name: str
    version: int
    launch_id: str
    bundle_sha256: str


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
            for version in self._client.search_model_versions(f"name = '{name}'"):
                if all(version.tags.get(key) == tags[key] for key in ("tacit.launch", "bundle.sha256")):
                    return int(version.version)
            run_id = tracking.MlflowTracker(self._settings, config, launch_id).parent_run_id()
            source, model_id = tracking.log_bundle(self._settings, run_id, bundle)
            made = self._client.create_model_version(name, source, run_id, tags=tags, model_id=model_id)
            return int(made.version)

    def alias(self, name: str, alias: str) -> int | None:
        """The version an alias points at."""
        with tracking.answering():
            models = self._client.search_registered_models(f"name = '{name}'")
            value = models[0].aliases.get(alias) if models else None
            return None if value is None else int(value)

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Point an alias at a version."""
        with tracking.answering():
            self._client.set_registered_model_alias(name, alias, str(version))

    def delete_alias(self, name: str, alias: str) -> None:
        """Let an alias point nowhere."""
        with tracking.answering():
            self._client.delete_registered_model_alias(name, alias)

    def champion_before(self, name: str, launch_id: str) -> Published | None:
        """What users have without this launch: the champion or, where that is this launch itself, the one before."""
        for alias in ("champion", "previous"):
            number = self.alias(name, alias)
            if number is None:
                continue
            with tracking.answering():
                tags = self._client.get_model_version(name, str(number)).tags
            if tags["tacit.launch"] != launch_id:
                return Published(name, number, tags["tacit.launch"], tags["bundle.sha256"])
        return None

    def launch_of(self, name: str, version: int) -> str:
        """The launch that registered a version."""
        with tracking.answering():
            return self._client.get_model_version(name, str(version)).tags["tacit.launch"]

    def before(self, name: str, version: int, leave_out: Collection[int]) -> int | None:
        """The newest older version of another launch; None if there is none."""
        launch = self.launch_of(name, version)
        with tracking.answering():
            versions = self._client.search_model_versions(f"name = '{name}'")
        older = [
            int(each.version)
            for each in versions
            if int(each.version) < version and each.tags.get("tacit.launch") != launch
        ]
        return max((number for number in older if number not in leave_out), default=None)

    def fetch(self, published: Published, folder: Path) -> Path:
        """Bring a version's bundle into ``folder``.

        Raises:
          PermanentError: a file is not what was registered.
        """
        root = tracking.download_model(self._settings, published.name, published.version, folder) / "data" / "bundle"
        digests = {"bundle.json": published.bundle_sha256}
        if sha256(root / "bundle.json") == published.bundle_sha256:
            digests |= json.loads((root / "bundle.json").read_text(encoding="utf-8"))["files"]
        for filename, digest in digests.items():
            if sha256(root / filename) != digest:
                raise PermanentError(
                    f"{published.name} version {published.version}: {filename} is not what was registered; restore "
                    "MLflow's artifacts, or move the alias to a version that is whole"
                )
        return root

    def download(self, name: str, alias: str, folder: Path) -> Path:
        """Bring the bundle behind an alias into ``folder``.

        Raises:
          ReleaseRefused: the alias points nowhere.
        """
        version = self.alias(name, alias)
        if version is None:
            raise ReleaseRefused(f"{name}: no version is {alias!r}; publish a launch first")
        return tracking.download_model(self._settings, name, version, folder) / "data" / "bundle"


def promote(registry: Registry, config: LaunchConfig, version: int) -> None:
    """Make a version the candidate and then the champion; the old champion becomes ``previous``."""
    name = model_name(config.locale, config.feature)
    registry.set_alias(name, "candidate", version)
    champion = registry.alias(name, "champion")
    if champion == version:
        return
    if champion is not None:
        registry.set_alias(name, "previous", champion)
    registry.set_alias(name, "champion", version)
    _log.info("%s: version %d is champion (before: %s)", name, version, champion or "none")
