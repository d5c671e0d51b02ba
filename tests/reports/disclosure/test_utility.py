"""An earlier launch's numbers come from its own disclosure, or not at all."""

import json

from reports.disclosure.utility import earlier
from tests.helpers.reports.reports_example import example


def test_it_is_what_the_disclosure_says() -> None:
    stated = json.loads(example().model_dump_json())
    block = earlier(stated)
    assert block is not None
    assert (block.loss.rho, block.loss.epsilon, block.loss.delta) == (None, 7.0211, 1e-6)
    assert (block.devices_at_least, block.words_added) == (990, 2)
    assert block.releases == {release.name: release.terms for release in example().releases}
    assert block.created_at == "2026-01-02T03:04:05+00:00"


def test_half_of_it_is_nothing() -> None:
    stated = json.loads(example().model_dump_json())
    for lacking in (stated | {"releases": None}, stated | {"accounting": stated["accounting"] | {"total": None}}, {}):
        assert earlier(lacking) is None
