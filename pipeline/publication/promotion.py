"""Promotion to champion, which users get: the one place that decides it and moves the aliases.

Publication, the end of an experiment and a rollback all come through here.
"""

import logging

from pipeline.ground.errors import ReleaseRefused
from pipeline.launch.config import LaunchConfig
from pipeline.publication.registry import Published, Registry

_log = logging.getLogger(__name__)


def void(config: LaunchConfig) -> str:
    """Why no guarantee of a launch holds for anybody; empty if they do."""
    return "noise was seeded" if config.mechanism.randomness == "seeded" else ""


def promote(config: LaunchConfig, registry: Registry, name: str, version: int) -> str:
    """Make a version the candidate and then the champion; the alias that it has got.

    Once: a version that was champion before stays what it is now, so that a launch that is published again after a
    rollback does not come back by itself. ``previous`` is never a version of the same launch.

    Guarantee: a void launch is never champion. Nor is one on a population that nobody registered, or of which the
    registered model is not: a simulation's takes no place of people's, nor theirs of a simulation's.

    Raises:
      ReleaseRefused, PopulationUnknown: see ``Registry.require_of``.
    """
    registry.require_of(name, config.population)
    registry.set_alias(name, "candidate", version)
    if why := void(config):
        _log.warning("%s: version %d stays candidate and is never champion, as %s", name, version, why)
        return "candidate"
    published = registry.published(name, version)
    if not registry.was_champion(published):
        champion = registry.alias(name, "champion")
        if champion not in (None, version) and registry.published(name, champion).launch_id != published.launch_id:
            registry.set_alias(name, "previous", champion)
        registry.crown(published)
        _log.info("%s: version %d is champion (before: %s)", name, version, champion or "none")
    return "champion"


def require_restorable(registry: Registry, published: Published) -> None:
    """See that a version was champion before, so that users may get it back.

    Raises:
      ReleaseRefused: it never was, whatever an alias of MLflow says, or the ledger does not know it.
    """
    registry.require_known(published)
    if not registry.was_champion(published):
        raise ReleaseRefused(
            f"{published.name}: version {published.version} never was champion, so nobody goes back to it; set the "
            "alias 'previous' in MLflow back"
        )
