"""Stages in small: functions of a test in the place of what the product runs."""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.run.stage import Stage, StageFunction, Stages
from pipeline.stages.graph import STAGES


def stages_of(functions: Mapping[str, StageFunction], *known: Stage) -> dict[str, Stage]:
    """Stages that run these functions, by their names.

    Args:
      known: what else is known of some of them. Of the others only what decides whether a launch has them, and which
        of those before them may fail.
    """
    fields = {stage.name: stage for stage in known}
    assert fields.keys() <= functions.keys(), f"nothing runs {fields.keys() - functions.keys()}"
    return running({name: fields.get(name) or _bare(name) for name in functions}, **functions)


def running(stages: Stages, **functions: StageFunction) -> dict[str, Stage]:
    """The same stages, of which those that are named run something else."""
    assert functions.keys() <= stages.keys(), f"there is no {functions.keys() - stages.keys()}"
    return {name: replace(stage, run=functions.get(name, stage.run)) for name, stage in stages.items()}


def _bare(name: str) -> Stage:
    real = STAGES.get(name)
    return Stage(name, "") if real is None else Stage(name, "", block=real.block, evidence=real.evidence)
