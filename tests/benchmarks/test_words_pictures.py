"""Pictures of the words benchmark say what the committed table says."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.privacy.words_pictures import TABLE, curves, write
from tests.helpers.launches.checkout import ROOT

SPACE = "{http://www.w3.org/2000/svg}"


def test_every_population_of_the_table_has_a_curve() -> None:
    drawn = {curve.name: curve for curve in curves((ROOT / TABLE).read_text(encoding="utf-8"))}
    assert len(drawn) == 5
    assert all([point[0] for point in curve.central] == [0.5, 1, 2, 4] for curve in drawn.values())
    assert drawn["Typed chat, 927 devices"].local == (80, 15.7, 0.7)
    assert drawn["Synthetic people, 100,000 devices"].central[-1] == (4, 100, 0)


def test_a_table_without_its_local_row_is_refused() -> None:
    with pytest.raises(ValueError, match="one local row"):
        curves("# \n## Some\n\n12 devices answer\n\n| central | 1 | - | 2.0 | 3 | 0.0 | 1 |\n")


def test_committed_pictures_are_those_of_the_table(tmp_path: Path) -> None:
    for path in write(ROOT / TABLE, tmp_path):
        committed = (ROOT / TABLE).parent / path.name
        assert path.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")
        described = ElementTree.fromstring(path.read_text(encoding="utf-8")).find(f"{SPACE}desc")
        assert described is not None
        assert "local" in (described.text or "")
