"""Figures of the audits: what they say aloud, which colour is a verdict, the same bytes every time."""

import re
import xml.etree.ElementTree as ET

import pytest

from reports.figures import audit as figures_audit
from reports.figures.audit import CanaryPoint, Claimed

POINTS = [
    CanaryPoint("compliant", 1, 1, 0.4, 0.2, 0.6, 6.5),
    CanaryPoint("compliant", 1, 14, 5.1, 4.9, 5.3, 6.5),
    CanaryPoint("compliant", 16, 14, 18.0, 17.5, 18.4, 40.0),
    CanaryPoint("stress", 1, 200, 9.0, 8.8, 9.2, None),
]
ROWS = [
    Claimed("noise", 2.49, 2.45, 2.53, 2.5, contradicts=False, at_most=False),
    Claimed("mu", 1.6, 1.4, 1.9, 1.92, contradicts=False),
]


def spoken(svg: str) -> str:
    ET.fromstring(svg)
    return re.search(r"<desc[^>]*>(.*?)</desc>", svg)[1]


def colours(svg: str) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", svg))


def test_exposure_names_its_cells_and_marks_only_broken_ceilings() -> None:
    svg = figures_audit.exposure(POINTS, 2_000_000)
    assert (
        spoken(svg) == "4 canaries, the most exposed has 18.00 bits of 20.9; 0 above the ceiling that its rounds allow."
    )
    for label in ("1 device, 1 copy", "16 devices, 14 copies", "compliant", "stress", "ceiling"):
        assert f">{label}<" in svg
    assert "#d1495b" not in colours(svg)
    broken = figures_audit.exposure([*POINTS, CanaryPoint("compliant", 1, 1, 8.0, 7.9, 8.1, 6.5)], 2_000_000)
    assert "#d1495b" in colours(broken)
    assert "1 above the ceiling" in spoken(broken)
    assert figures_audit.exposure(POINTS, 2_000_000) == svg


def test_estimates_say_their_claims_and_the_audits_verdict() -> None:
    svg = figures_audit.estimates(ROWS)
    assert spoken(svg) == (
        "noise: 2.49, 2.45 to 2.53, claimed 2.5, not contradicted; mu: 1.6, 1.4 to 1.9, claimed at most 1.92, "
        "not contradicted."
    )
    assert {"#2e9e6b"} <= colours(svg)
    assert "#d1495b" not in colours(svg)
    wrong = figures_audit.estimates([*ROWS, Claimed("signal", 1.5, 1.4, 1.6, 1.0, contradicts=True)])
    assert "#d1495b" in colours(wrong)
    assert "signal: 1.5, 1.4 to 1.6, claimed at most 1, contradicted" in spoken(wrong)


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="points: none"):
        figures_audit.exposure([], 10)
    with pytest.raises(ValueError, match="claim above 0"):
        figures_audit.estimates([Claimed("mu", 1, 1, 1, 0, contradicts=False)])
