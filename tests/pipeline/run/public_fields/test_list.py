"""The list of what may leave: no public result has a field, or a stage a file, without a source."""

from typing import get_type_hints

import pytest
from pydantic import BaseModel

from pipeline.experiments.decide import LEAVING, DecisionResult
from pipeline.ground.errors import PermanentError
from pipeline.run.public_fields import FILES, FREE, blocks_of, require_listed, source
from pipeline.run.run_dir import StageRecord
from pipeline.run.stage import StageResult
from pipeline.stages.graph import STAGES
from reports.disclosure.document import Disclosure
from reports.disclosure.findings import AuditVerdict
from reports.disclosure.releases import SecAgg
from tests.helpers.launches.pipeline_launch import STAND_INS
from tests.helpers.reports.reports_example import CENTRAL_WORDS, COUNTS, EVALUATION, LOCAL_WORDS, example, releases


def public_models() -> set[type[BaseModel]]:
    """Every class of which a value leaves, blocks within blocks too."""
    returned = (get_type_hints(stage.function)["return"] for stage in STAGES.values())
    new, found = (
        {StageRecord, Disclosure, DecisionResult, *(block for each in returned for block in blocks_of(each))},
        set(),
    )
    while new:
        found |= new
        new = {
            block for model in new for field in model.model_fields.values() for block in blocks_of(field.annotation)
        } - found
    return found


def test_every_field_that_leaves_names_its_source() -> None:
    models = public_models()
    assert {"FineTune", "AuditVerdict", "AbTest", "Disclosure", "Spend"} <= {model.__name__ for model in models}
    missing = [
        f"{model.__name__}.{name}"
        for model in models
        for name, field in model.model_fields.items()
        if not blocks_of(field.annotation) and source(model, name, LEAVING) is None and name not in FREE
    ]
    assert not missing, f"say in pipeline/run/public_fields.py where these come from: {missing}"


def test_the_list_holds_nothing_that_nobody_states() -> None:
    by_name = {
        each.__name__: each for model in public_models() for each in model.__mro__ if issubclass(each, BaseModel)
    }
    for name, fields in LEAVING.items():
        model, _, field = name.partition(".")
        if model not in by_name:
            assert model in STAND_INS, name
            continue
        if field:
            assert field in by_name[model].model_fields
            continue
        stated = vars(by_name[model]).get("__annotations__", {})
        listed = [each for names in fields.values() for each in names.split()]
        assert len(set(listed)) == len(listed), name
        assert set(listed) <= set(stated), f"{name}: {set(listed) - set(stated)}"
    assert set(FILES) - STAND_INS <= set(by_name)


class WithEstimate(AuditVerdict):
    """What the audit published once."""

    estimate: float


class Audited(StageResult):
    audits: tuple[AuditVerdict, ...]


ROW = {"type": "noise_added", "tested": "the noise", "verdict": "passed"}


def test_a_whole_disclosure_may_leave() -> None:
    encoding = SecAgg(
        bits=32,
        neighbours=4,
        threshold=3,
        inflated_norm=1.0,
        wrap_probability=0.0,
        clipped_fraction=1e-6,
        rounding_std=1e-9,
    )
    for made in ([LOCAL_WORDS, COUNTS, EVALUATION], [CENTRAL_WORDS]):
        require_listed(example(**releases(*made, secagg=encoding.model_dump())))


def test_a_figure_without_a_source_cannot_leave() -> None:
    honest = Audited(audits=(AuditVerdict(**ROW),))
    require_listed(honest)
    with pytest.raises(PermanentError, match=r"WithEstimate\.estimate: no source"):
        require_listed(Audited(audits=(WithEstimate(**ROW, estimate=1.00000042),)))
    with pytest.raises(PermanentError, match=r"Audited\.headline: noise"):
        require_listed(honest.model_copy(update={"headline": {"noise": 1.0}}))
    with pytest.raises(PermanentError, match=r"Audited\.curve: lengths"):
        require_listed(honest.model_copy(update={"curve": ({"lengths": 3.0},)}))
    with pytest.raises(PermanentError, match=r"figures\.json"):
        require_listed(honest, {"figures.json": "d" * 64})
