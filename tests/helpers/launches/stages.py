"""Stages in small: functions of a test in the place of what the product runs."""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.run.stage import Stage, StageFunction, Stages
from pipeline.stages.graph import STAGES


def stages_of(functions: Mapping[str, StageFunction], *known: Stage) -> dict[str, Stage]:
    """Stages that run these functions, by their names.

    Args:
      known: what else is known of some of them. Of the others only what decides whether a launch has them, and which
        of those before them may fail; they may open all that stand before them.
    """
    fields = {stage.name: stage for stage in known}
    assert fields.keys() <= functions.keys(), f"nothing runs {fields.keys() - functions.keys()}"
    names = tuple(functions)
    bare = {name: _bare(name, names[:number], names) for number, name in enumerate(names)}
    return running({name: fields.get(name) or bare[name] for name in names}, **functions)


def running(stages: Stages, **functions: StageFunction) -> dict[str, Stage]:
    """The same stages, of which those that are named run something else."""
    assert functions.keys() <= stages.keys(), f"there is no {functions.keys() - stages.keys()}"
    return {name: replace(stage, run=functions.get(name, stage.run)) for name, stage in stages.items()}


def _bare(name: str, before: tuple[str, ...], names: tuple[str, ...]) -> Stage:
    real = STAGES.get(name)
    if real is None:
        return Stage(name, "", may_need=before)
    private = tuple(file for file in real.private if file.partition("/")[0] in before)
    left_out = (other for other in (*real.needs, *real.may_need) if other not in names)
    return Stage(name, "", block=real.block, evidence=real.evidence, may_need=(*before, *left_out), private=private)
