"""The registered model of a locale and feature: its versions, and the aliases that point at them.

The alias ``candidate`` marks the version registered last, ``champion`` the one that users get, and ``previous`` the one
before it. Moving an alias is the publication, so each step can be repeated after a crash.

MLflow is only a display: anyone with access can register a model, edit its tags and move an alias. So the ledger holds
the digest of every registered bundle, and which of them is the champion; a version that it does not hold is neither
served nor restored. A publication goes through ``nominate``, or ``promote``, which makes its version champion.
"""

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from federated.config.population import PopulationKey, is_simulation
from pipeline.ground.errors import PermanentError, ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import FEATURES, LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.stage import StageContext
from pipeline.tracking import mlflow_tracker, shown
from pretrain.config import LOCALE
from pretrain.files import sha256, text_sha256
from pretrain.reading import paths

if TYPE_CHECKING:
    from pipeline.tracking.mlflow_tracker import MlflowClient

_log = logging.getLogger(__name__)
_BUNDLE = "data/bundle"


def model_name(locale: str, feature: str, *, simulated: bool = False) -> str:
    """Name of a registered model: ``keyboard-<locale>-<feature>``, checked as it becomes part of MLflow's filters.

    Args:
      simulated: True for a simulation, whose registered models have names of their own.

    Raises:
      ValueError: the locale or feature is invalid.
    """
    if not re.fullmatch(LOCALE, locale) or locale.endswith("\n"):
        raise ValueError(
            f"locale: {paths.shown(locale)} is neither a bundle's folder nor a BCP 47 tag; write it as in en-US"
        )
    if feature not in FEATURES:
        raise ValueError(f"feature: {paths.shown(feature)} does not exist; choose one of {', '.join(FEATURES)}")
    return f"{'simulated-' if simulated else ''}keyboard-{locale}-{feature}"


@dataclass(frozen=True)
class PublishedModel:
    """A registered version of a model: its launch and the digest of its bundle.

    Attributes:
      bundle_sha256: digest of ``bundle.json``, which holds the digests of all other files.
    """

    name: str
    version: int
    launch_id: str
    bundle_sha256: str


# Published version of each feature; a feature that was never published is left out.
Champions = Mapping[str, PublishedModel]

# Tags that identify the launch and bundle of a version.
_IDENTITY = ("tacit.launch", "bundle.sha256")


class Registry:
    """Registered models of one MLflow."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _client(self) -> "MlflowClient":
        return mlflow_tracker.connect(self._settings)

    @cached_property
    def _ledger(self) -> PrivacyLedger:
        return PrivacyLedger.of(self._settings)

    def names_of(self, config: LaunchConfig) -> dict[str, str]:
        """Name of the registered model of each feature of a launch, the main one first; see ``name_for``."""
        return {name: self.name_for(config.locale, name, config.population) for name in config.features}

    def name_for(self, locale: str, feature: str, population: PopulationKey | None) -> str:
        """Name of the registered model of a locale and feature, for the first population that published or for another.

        Guarantee: a publication for one population, such as a demo, never replaces another population's model and is
        never compared with it: each has a registered model of its own, and simulations have other names than people.

        Args:
          population: None for the population of people that published first.
        """
        name = model_name(locale, feature, simulated=population is not None and is_simulation(population))
        owner = self._owner(name)
        # MLflow allows no colon.
        return name if population is None or owner in (None, population) else f"{name}-{population.replace(':', '-')}"

    def _owner(self, name: str) -> PopulationKey | None:
        """Population of a registered model; None if it has no version."""
        claim = self._ledger.noted("model", "", name)
        return None if claim is None else claim.population

    def owner(self, name: str) -> PopulationKey:
        """Population of a registered model.

        Raises:
          ReleaseRefused: the model has no version.
        """
        owner = self._owner(name)
        if owner is None:
            raise ReleaseRefused(f"{name}: no launch was registered under this name; publish a launch first")
        return owner

    def require_of(self, name: str, population: PopulationKey) -> None:
        """Check that a registered model belongs to this population, and that the population is registered.

        Raises:
          PopulationUnknown: it is not registered, so no budget bounds its loss.
          ReleaseRefused: the model is another population's.
        """
        self._ledger.population(population)
        if (owner := self.owner(name)) != population:
            raise ReleaseRefused(
                f"{name}: a registered model of population {owner!r}, and no launch on {population!r} is its champion"
            )

    def register(
        self, config: LaunchConfig, launch_id: str, bundle: Path, tags: dict[str, str], feature: str | None = None
    ) -> int:
        """Register a launch's bundle for a feature, once, and return its version number.

        Args:
          feature: None for the main one.
        """
        feature, population = feature or config.feature, config.population
        name = self.name_for(config.locale, feature, population)
        if self._ledger.noted("model", "", name) is None:
            self._ledger.note("model", population, "", name, {"population": population})
        with mlflow_tracker.answering():
            if not self._client.search_registered_models(f"name = '{name}'"):
                about = {"locale": config.locale, "feature": feature, "population": population}
                self._client.create_registered_model(name, tags=about, description=_model_description(about))
            for version in self._client.search_model_versions(f"name = '{name}'"):
                if all(version.tags.get(key) == tags[key] for key in _IDENTITY):
                    return self._noted(name, int(version.version))
            tracker = mlflow_tracker.MlflowTracker(self._settings, config, launch_id)
            identity = {key: tags[key] for key in _IDENTITY}
            # A crash between logging and registering left a model behind: it is used, or deleted.
            logged = tracker.logged_model(identity)
            source, model_id = logged or mlflow_tracker.log_bundle(
                self._settings, tracker.parent_run_id, bundle, identity
            )
            made = self._client.create_model_version(
                name,
                source,
                tracker.parent_run_id,
                tags=tags,
                description=version_description(tags),
                model_id=model_id,
            )
            return self._noted(name, int(made.version))

    def _noted(self, name: str, version: int) -> int:
        published = self.published(name, version)
        self._ledger.bind_result(published.launch_id, _version(name, version), published.bundle_sha256)
        return version

    def alias(self, name: str, alias: str) -> int | None:
        """Return the version that an alias points at, or None."""
        with mlflow_tracker.answering():
            models = self._client.search_registered_models(f"name = '{name}'")
            value = models[0].aliases.get(alias) if models else None
            return None if value is None else int(value)

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Point an alias at a version."""
        with mlflow_tracker.answering():
            self._client.set_registered_model_alias(name, alias, str(version))

    def delete_alias(self, name: str, alias: str) -> None:
        """Remove an alias."""
        with mlflow_tracker.answering():
            self._client.delete_registered_model_alias(name, alias)

    def describe(self, name: str, key: str, value: str) -> None:
        """Set a tag of a registered model, for readers of MLflow."""
        with mlflow_tracker.answering():
            self._client.set_registered_model_tag(name, key, value)

    def of_launch(self, name: str, launch_id: str) -> PublishedModel | None:
        """Return the newest version that a launch registered; None if it registered none."""
        with mlflow_tracker.answering():
            versions = self._client.search_model_versions(f"name = '{name}'")
        numbers = [int(version.version) for version in versions if version.tags.get("tacit.launch") == launch_id]
        return self.published(name, max(numbers)) if numbers else None

    def champion_before(self, name: str, launch_id: str) -> PublishedModel | None:
        """Return the baseline of a launch: the champion or, if that is the launch itself, the version before it."""
        for alias in ("champion", "previous"):
            number = self.alias(name, alias)
            if number is None:
                continue
            published = self.published(name, number)
            if published.launch_id != launch_id:
                return published
        return None

    def launch_of(self, name: str, version: int) -> str:
        """Return the launch that registered a version."""
        with mlflow_tracker.answering():
            return self._client.get_model_version(name, str(version)).tags["tacit.launch"]

    def before(self, name: str, version: int, leave_out: Collection[int]) -> int | None:
        """Return the newest older version of another launch that was champion; None if there is none."""
        launch = self.launch_of(name, version)
        with mlflow_tracker.answering():
            versions = self._client.search_model_versions(f"name = '{name}'")
        numbers = (int(each.version) for each in versions if each.tags.get("tacit.launch") != launch)
        older = sorted((number for number in numbers if number < version and number not in leave_out), reverse=True)
        return next((number for number in older if self.was_champion(self.published(name, number))), None)

    def published(self, name: str, version: int) -> PublishedModel:
        """Return a registered version, from its tags."""
        tags = self.tags(name, version)
        return PublishedModel(name, version, tags["tacit.launch"], tags["bundle.sha256"])

    def tags(self, name: str, version: int) -> dict[str, str]:
        """Return the tags of a registered version."""
        with mlflow_tracker.answering():
            return dict(self._client.get_model_version(name, str(version)).tags)

    def description(self, name: str, version: int) -> str:
        """Return the description of a registered version."""
        with mlflow_tracker.answering():
            return self._client.get_model_version(name, str(version)).description or ""

    def require_known(self, published: PublishedModel) -> None:
        """Check that a launch registered this version, with this bundle.

        Guarantee: every version that is served, restored or compared was published by a launch under this ledger.

        Raises:
          ReleaseRefused: the ledger does not hold its digest.
        """
        bound = self._ledger.bound_results(published.launch_id)
        recorded = bound.get(_version(published.name, published.version), ("", ""))[0]
        if recorded != published.bundle_sha256:
            raise ReleaseRefused(
                f"{published.name} version {published.version}: the ledger holds no such bundle of launch "
                f"{published.launch_id!r}, so it is not served; it was registered by hand, or its tags were changed"
            )

    def files(self, name: str, version: int, folder: Path) -> dict[str, str]:
        """Fetch a registered model into ``folder``, and return the SHA-256 of every file by path, its code included."""
        root = mlflow_tracker.download_model(self._settings, name, version, folder)
        noted_at_download = "registered_model_meta"
        return {file: digest for file, digest in shown.digests(root).items() if file != noted_at_download}

    def fetch(self, published: PublishedModel, folder: Path) -> Path:
        """Fetch a version's bundle into ``folder``.

        Raises:
          ReleaseRefused: the ledger does not hold its digest.
          PermanentError: a file differs from the registered one.
        """
        self.require_known(published)
        root = mlflow_tracker.download_model(self._settings, published.name, published.version, folder) / _BUNDLE
        digests = {"bundle.json": published.bundle_sha256}
        if sha256(root / "bundle.json") == published.bundle_sha256:
            digests |= json.loads((root / "bundle.json").read_text(encoding="utf-8"))["files"]
        for filename, digest in digests.items():
            if sha256(root / filename) != digest:
                raise PermanentError(
                    f"{published.name} version {published.version}: {filename} differs from the registered file; "
                    "restore MLflow's artifacts, or move the alias to an intact version"
                )
        return root

    def download(self, name: str, alias: str, folder: Path) -> Path:
        """Fetch the bundle behind an alias into ``folder``.

        Raises:
          ReleaseRefused: the alias does not exist, or the champion differs from the ledger's.
          LedgerTampered: the ledger cannot be relied on.
          PermanentError: a file differs from the registered one.
        """
        version = self.alias(name, alias)
        if version is None:
            raise ReleaseRefused(f"{name}: no version is {alias!r}; publish a launch first")
        published = self.published(name, version)
        if alias == "champion":
            self.require_champion(published)
        return self.fetch(published, folder)

    def require_champion(self, published: PublishedModel) -> None:
        """Check that this is the champion in the ledger, and that the ledger is behind no checkpoint.

        Raises:
          ReleaseRefused: the alias was not moved by a publication or a rollback.
          LedgerTampered: the ledger cannot be relied on.
        """
        self._ledger.require_whole({})
        recorded = self._ledger.bound_results(published.name).get("champion", ("", ""))[0]
        if recorded != _digest(published):
            raise ReleaseRefused(
                f"{published.name}: version {published.version} is called champion in MLflow, but the last publication "
                "or rollback set another one; restore the alias, or roll back"
            )

    def crown(self, published: PublishedModel) -> None:
        """Make a version the champion, in MLflow and in the ledger."""
        self.set_alias(published.name, "champion", published.version)
        self._ledger.bind_result(published.name, "champion", _digest(published))
        self._ledger.bind_result(published.launch_id, crowned(published.name, published.version), _digest(published))

    def was_champion(self, published: PublishedModel) -> bool:
        """Return whether a version was champion before; publishing it again must not undo a rollback."""
        bound = self._ledger.bound_results(published.launch_id)
        return bound.get(crowned(published.name, published.version), ("",))[0] == _digest(published)


def crowned(name: str, version: int) -> str:
    """Name under which the ledger holds that a version became champion."""
    return f"crowned {_version(name, version)}"


def _version(name: str, version: int) -> str:
    return f"{name} version {version}"


def _digest(published: PublishedModel) -> str:
    return text_sha256(f"{_version(published.name, published.version)} {published.bundle_sha256}")


def void(config: LaunchConfig) -> str:
    """Reason why a launch has no privacy guarantee, such as seeded noise; empty if it has one."""
    return "noise was seeded" if config.mechanism.randomness == "seeded" else ""


def nominate(config: LaunchConfig, registry: Registry, name: str, version: int) -> str:
    """Make a version the candidate of its registered model, and return that alias.

    Raises:
      ReleaseRefused, PopulationUnknown: see ``Registry.require_of``.
    """
    registry.require_of(name, config.population)
    registry.set_alias(name, "candidate", version)
    return "candidate"


def promote(config: LaunchConfig, registry: Registry, name: str, version: int) -> str:
    """Make a version the candidate and then the champion, and return the alias that it has.

    A version that was champion before keeps its alias, so that publishing a launch again does not undo a rollback.
    ``previous`` is never a version of the same launch.

    Guarantee: a void launch is never champion, nor is a launch on an unregistered population, or on a population that
    the registered model does not belong to: simulations never replace people's models, nor the other way round.

    Raises:
      ReleaseRefused, PopulationUnknown: see ``Registry.require_of``.
    """
    candidate = nominate(config, registry, name, version)
    if why := void(config):
        _log.warning("%s: version %d stays candidate and is never champion, as %s", name, version, why)
        return candidate
    published = registry.published(name, version)
    if not registry.was_champion(published):
        champion = registry.alias(name, "champion")
        if champion not in (None, version) and registry.published(name, champion).launch_id != published.launch_id:
            registry.set_alias(name, "previous", champion)
        registry.crown(published)
        _log.info("%s: version %d is champion (before: %s)", name, version, champion or "none")
    return "champion"


def require_compared(config: LaunchConfig, launch_id: str, compared: Mapping[str, Any], registry: Registry) -> None:
    """Check that the published model is still the baseline of the launch's comparison.

    Guarantee: a model never replaces one that it was not compared with, however long its publication, or its
    trial on some devices, waited.

    Args:
      compared: result of the comparison.

    Raises:
      ReleaseRefused: another launch was published, or a rollback happened, since the comparison.
    """
    stated = {config.feature: compared, **compared["others"]}
    for feature, name in registry.names_of(config).items():
        mine, had = registry.of_launch(name, launch_id), registry.champion_before(name, launch_id)
        if had is None or (mine is not None and registry.was_champion(mine)):
            continue
        then = stated[feature]["champion"]
        if then is None or (then["launch_id"], then["bundle_sha256"]) != (had.launch_id, had.bundle_sha256):
            raise ReleaseRefused(
                f"{launch_id} was compared with {_named(then)}, and users of {name} have version "
                f"{had.version} by now (launch {had.launch_id}), with which it was never compared; launch again"
            )


def _named(champion: Mapping[str, Any] | None) -> str:
    return "nothing" if champion is None else f"version {champion['version']} (launch {champion['launch_id']})"


def require_restorable(registry: Registry, published: PublishedModel) -> None:
    """Check that a version was champion before, so that it may be restored.

    Raises:
      ReleaseRefused: it never was champion, whatever MLflow's alias says, or the ledger does not hold its digest.
    """
    registry.require_known(published)
    if not registry.was_champion(published):
        raise ReleaseRefused(
            f"{published.name}: version {published.version} was never champion, so it is not restored; correct the "
            "alias 'previous' in MLflow"
        )


def _model_description(about: Mapping[str, str]) -> str:
    """Describe a registered model, as Markdown.

    Args:
      about: tags of the model: locale, feature and population.
    """
    return (
        f"Model of keyboards in {about['locale']} for {about['feature']}, trained on population "
        f"`{about['population']}`. `champion` is the users' version, `previous` the version that `tacit rollback` "
        "restores, `candidate` the version registered last. The ledger holds the digest of every version: a version "
        "without one is neither served nor restored, whatever its alias."
    )


def version_description(tags: Mapping[str, str]) -> str:
    """Describe a version, as Markdown.

    Args:
      tags: tags of the version (``pipeline.stages.publish.registered_tags``).
    """
    return (
        f"Launch `{tags.get('tacit.launch', '?')}`: one device loses {tags.get('privacy.loss', '?')}. Its disclosure "
        "is in the bundle. The launch's `proof/` holds the model's signature; the privacy ledger holds the SHA-256 of "
        "`bundle.json`, which holds those of all other files."
    )


def published_before(ctx: StageContext) -> Champions:
    """Return the baseline of each feature of a launch, for its locale and population."""
    registry = Registry(ctx.settings)
    population = ctx.population or ctx.config.population
    names = {feature: registry.name_for(ctx.config.locale, feature, population) for feature in ctx.config.features}
    had = {feature: registry.champion_before(name, ctx.run.launch_id) for feature, name in names.items()}
    return {feature: published for feature, published in had.items() if published is not None}


def published_then(
    ctx: StageContext, stated: Mapping[str, Any] | None, others: Mapping[str, Mapping[str, Any] | None] | None = None
) -> Callable[[StageContext], Champions]:
    """Return a function that looks up the baselines stated by a finished stage, for the main feature and others."""

    def then(_: StageContext) -> Champions:
        named = {ctx.config.feature: stated, **(others or {})}
        return {
            feature: Registry(ctx.settings).published(each["registered_model"], each["version"])
            for feature, each in named.items()
            if each is not None
        }

    return then
