"""A launch file that is like another one is the launch of a file with all fields."""

from pathlib import Path

import pytest
import yaml

from pipeline.launch.config import fields, inherited, launch_id, load_launch
from tests.helpers.launches.checkout import ROOT

OTHER = ROOT / "dags" / "launches" / "es-ES.yaml"
OWN = """
like: es-ES.yaml
name: es-MX
locale: es-MX
private_text: {name: es-MX, paths: [mx/*.parquet]}
policy: {budget: {days: 30}}
discovery: {epsilon0: 4.5}
evaluation: null
"""


def beside(folder: Path, text: str, name: str = "es-MX.yaml") -> Path:
    (folder / "es-ES.yaml").write_text(OTHER.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_it_is_the_launch_of_a_file_with_all_fields(tmp_path: Path) -> None:
    written = yaml.safe_load(OTHER.read_text(encoding="utf-8"))
    own = yaml.safe_load(OWN)
    written |= {name: own[name] for name in ("name", "locale", "evaluation")}
    written["private_text"] |= own["private_text"]
    written["discovery"]["epsilon0"] = 4.5
    written["policy"]["budget"]["days"] = 30
    del written["policy"]["cover_everything"]
    (tmp_path / "whole.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    own["policy"]["cover_everything"] = False
    like = load_launch(beside(tmp_path, yaml.safe_dump(own)))
    whole = load_launch(tmp_path / "whole.yaml")
    assert like == whole
    assert launch_id(like) == launch_id(whole)
    assert like.policy.budget.rho == load_launch(OTHER).policy.budget.rho


def test_a_change_of_the_other_file_is_another_launch(tmp_path: Path) -> None:
    path = beside(tmp_path, "like: es-ES.yaml\nname: es-MX\nlocale: es-MX\n")
    before = launch_id(load_launch(path))
    other = path.with_name("es-ES.yaml")
    other.write_text(other.read_text(encoding="utf-8").replace("steps: 5_000", "steps: 4_000"), encoding="utf-8")
    assert launch_id(load_launch(path)) != before


def test_a_block_of_another_kind_inherits_nothing() -> None:
    other = {
        "name": "a",
        "discovery": {"kind": "central", "noise_multiplier": 1},
        "model": {"cell": {"kind": "cifg", "size": 1}},
    }
    own = {"like": "a.yaml", "name": "b", "discovery": {"kind": "ldp"}, "model": {"cell": {"size": 2}}}
    cell = {"cell": {"kind": "cifg", "size": 2}}
    assert inherited(own, other) == {"name": "b", "discovery": {"kind": "ldp"}, "model": cell}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("like: fr-FR.yaml\nname: a\n", "like: 'fr-FR.yaml' is no launch file in its folder"),
        ("like: ../es-ES.yaml\nname: a\n", "is no launch file in its folder"),
        ("like: [es-ES.yaml]\nname: a\n", "is no launch file in its folder"),
        ("like: es-ES.yaml\nlocale: es-MX\n", "name: missing, or that of es-ES.yaml"),
        ("like: es-ES.yaml\nname: es-ES\n", "name: missing, or that of es-ES.yaml"),
        ("like: es-ES.yaml\nname: a\npolicy: {max_rhos: 1}\n", "policy.max_rhos: no such field"),
    ],
)
def test_errors_name_the_field(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        load_launch(beside(tmp_path, text))


def test_a_file_is_like_a_whole_one(tmp_path: Path) -> None:
    beside(tmp_path, "like: es-ES.yaml\nname: es-MX\n")
    third = beside(tmp_path, "like: es-MX.yaml\nname: es-AR\n", "es-AR.yaml")
    with pytest.raises(ValueError, match=r"like: es-MX.yaml is itself like es-ES.yaml; name that file"):
        load_launch(third)
    assert fields(third) == {"like": "es-MX.yaml", "name": "es-AR"}
