"""Stages of a launch as ``stages.json`` has them, so that parsing a DAG imports nothing of ours.

``make check`` holds the file against the code that makes it, ``python -m pipeline.stages.graph``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StageNode:
    """One stage.

    Attributes:
      group: part of the graph in which it is drawn.
      after: stages right before it.
      device: whether it computes on ``runtime.device``; or field and value of the launch file with which it does.
      whatever_fails: it runs once those before it have ended, however they ended.
    """

    name: str
    group: str
    after: tuple[str, ...]
    device: bool | tuple[str, str]
    whatever_fails: bool

    def computes_on_device(self, launch: Mapping[str, Any]) -> bool:
        """Return whether the stage computes on ``runtime.device`` under a launch file."""
        if isinstance(self.device, bool):
            return self.device
        field, wanted = self.device
        value: Any = launch
        for name in field.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value == wanted


def _node(content: Mapping[str, Any]) -> StageNode:
    return StageNode(**{name: tuple(value) if isinstance(value, list) else value for name, value in content.items()})


_FILE = Path(__file__).with_name("stages.json")
STAGES = {content["name"]: _node(content) for content in json.loads(_FILE.read_text(encoding="utf-8"))}
