"""Figures of the audits: what they say aloud, which colour is a verdict, the same bytes every time."""

import re
import xml.etree.ElementTree as ET

import pytest

from reports.disclosure.findings import CanaryResult
from reports.figures.audit import exposure, of_audits
from tests.helpers.reports.reports_example import block, drawn, example


def canary(n_u: int, n_e: int, bits: float, ceiling: float | None, population: str = "compliant") -> CanaryResult:
    changes = {"population": population, "n_u": n_u, "n_e": n_e, "ceiling_bits": ceiling, "exposure_bits": bits}
    changes |= {"exposure_low_bits": bits - 0.2, "exposure_high_bits": bits + 0.2}
    return CanaryResult.model_validate(block("audit")["canaries"][0] | changes)


CANARIES = [canary(1, 1, 0.4, 6.5), canary(1, 14, 5.1, 6.5), canary(16, 14, 18.0, 40.0)]


def spoken(svg: str) -> str:
    ET.fromstring(svg)
    return re.search(r"<desc[^>]*>(.*?)</desc>", svg)[1]


def colours(svg: str) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", svg))


@pytest.mark.slow
def test_exposure_names_its_cells_and_marks_only_broken_ceilings() -> None:
    svg = exposure(CANARIES, 2_000_000)
    assert spoken(svg) == "3 canaries, the most exposed has 18.00 bits of 20.9; 0 above the ceiling of their rounds."
    for label in ("1 device, 1 copy", "16 devices, 14 copies", "compliant", "ceiling"):
        assert f">{label}<" in svg
    assert "#d1495b" not in colours(svg)
    broken = exposure([*CANARIES, canary(1, 1, 8.0, 6.5)], 2_000_000)
    assert "#d1495b" in colours(broken)
    assert "1 above the ceiling" in spoken(broken)
    assert exposure(CANARIES, 2_000_000) == svg


def test_stress_has_a_colour_of_its_own_and_no_ceiling_where_none_is_known() -> None:
    svg = exposure([canary(1, 200, 9.0, None, "stress")], 2_000_000)
    assert "#d9822b" in colours(svg)
    assert "#3b82c4" not in colours(svg)
    assert ">stress<" in svg
    assert ">ceiling<" not in svg


@pytest.mark.slow
def test_the_report_draws_canaries_and_nothing_of_the_noise() -> None:
    assert {"canaries", "canaries_stress"} < set(drawn())
    assert "audits" not in drawn()
    assert of_audits(None) == {}
    assert list(of_audits(example(audit=block("audit", canaries=[], stress=None)).audit)) == []


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="canaries: none"):
        exposure([], 10)
