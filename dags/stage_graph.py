"""Stages of a launch, read from ``stages.json``, so that parsing a DAG imports no other package of tacit.

``make check`` compares the file with its generator, ``python -m pipeline.stages.graph``.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StageNode:
    """One stage.

    Attributes:
      group: task group that shows it.
      after: its direct predecessors.
      device: True if it computes on ``runtime.device``.
      whatever_fails: it runs once its predecessors have ended, if one of them succeeded.
    """

    name: str
    group: str
    after: list[str]
    device: bool
    whatever_fails: bool


_FILE = Path(__file__).with_name("stages.json")
STAGES = {content["name"]: StageNode(**content) for content in json.loads(_FILE.read_text(encoding="utf-8"))}
