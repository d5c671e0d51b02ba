"""Computations that a launch and its verification share, made once: figures, and controls without noise.

That figures have the same bytes every time, and a control the same bits, is seen to by the tests beside them.
"""

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from federated.rounds.server import flat_weights
from pipeline.stages import audit

_FIGURES = {"training": "of_training", "discovery": "of_discovery", "audit": "of_audits", "comparison": "of_utility"}
_made: dict[object, Any] = {}


def _as_json(block: Any) -> str:
    return "" if block is None else block.model_dump_json()


def _kept(function: Callable[..., Any], key: Callable[..., object]) -> Callable[..., Any]:
    @functools.wraps(function)
    def once(*arguments: Any) -> Any:
        name = function.__qualname__, key(*arguments)
        if name not in _made:
            _made[name] = function(*arguments)
        return _made[name]

    return once


def _control(start: Any, planted: Any, config: Any, *rest: object) -> object:
    # The stage is given these blocks of the launch file, and not all of it.
    blocks = config.model_dump_json(include={"seed", "mechanism", "local_training", "server", "audit"})
    return flat_weights(start).tobytes(), repr(planted), planted.devices.tokens_N.tobytes(), blocks


@contextmanager
def made_once() -> Iterator[None]:
    """While this lasts, the same disclosure is drawn once and the same control is trained once."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in _FIGURES.items():
            figures = importlib.import_module(f"reports.figures.{module}")
            patch.setattr(figures, name, _kept(getattr(figures, name), _as_json))
        patch.setattr(audit, "control", _kept(audit.control, _control))
        yield
