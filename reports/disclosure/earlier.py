"""Summary of an earlier launch's disclosure, shown beside a later launch."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from pretrain.config import Config


class Earlier(Config):
    """Loss, mechanism and size of the launch that users have, from its own disclosure."""

    created_at: str
    rho: float
    epsilon: float
    delta: float
    mechanism: Literal["tree", "blt", "banded", "independent"]
    rounds: int
    report_goal: int
    noise_multiplier: float
    clip_norm: float
    devices_at_least: int
    words_added: int


def earlier(stated: Mapping[str, Any]) -> Earlier | None:
    """The block for the content of a ``disclosure.json``; None where that does not say all of it."""
    kind, flat = (stated.get("mechanism") or {}).get("kind"), dict[str, Any]()
    for name in ("discovery", "population", "mechanism", "accounting", "launch"):
        flat |= stated.get(name) or {}
    flat |= {"epsilon": (flat.get("total") or {}).get("epsilon")}
    try:
        return Earlier.model_validate(
            {name: flat[name] for name in Earlier.model_fields if name in flat} | {"mechanism": kind}
        )
    except ValidationError:
        return None
