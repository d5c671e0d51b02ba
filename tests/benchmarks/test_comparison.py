"""Claims about other tools: their tables are those of the data, and a claim without evidence or refuted is noticed."""

import zipfile
from pathlib import Path

import pytest
import yaml

from benchmarks import comparison

DATA = {
    "looked": "2026-11-30",
    "peers": {"Loom": {"package": "loom", "version": "1.2", "source": "https://example.org/loom", "readme": True}},
    "capabilities": {"noise": "yes", "audits": "yes"},
    "claims": [
        {"peer": "Loom", "capability": "noise", "has": True, "says": "some", "file": "loom/a.py", "shows": "def noise"},
        {"peer": "Loom", "capability": "audits", "has": False, "absent": "canary|audit"},
    ],
}


def written(folder: Path, *changes: dict) -> Path:
    """The data with its claims changed, as a file."""
    listed = [{**claim, **change} for claim, change in zip(DATA["claims"], (*changes, {}, {}), strict=False)]
    path = folder / "claims.yaml"
    path.write_text(yaml.safe_dump({**DATA, "claims": listed}), encoding="utf-8")
    return path


def test_the_tables_of_the_documents_are_those_of_the_data() -> None:
    for path, text in comparison.documents(comparison.claims()).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m benchmarks.comparison"


def test_each_peer_says_version_source_and_day() -> None:
    data = comparison.claims()
    assert {"Flower", "TFF", "pfl-research", "jax_privacy", "NVFlare", "OpenDP", "Opacus"} <= data["peers"].keys()
    rows = list(comparison.evidence(data))[2:]
    assert len(rows) == len(data["peers"]) * len(data["capabilities"])
    for peer in data["peers"].values():
        assert sum(f"| {peer['package']} {peer['version']} | <https://" in row for row in rows) == 12
    assert all(row.endswith(f"| {data['looked']} |") for row in rows)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([{"capability": "audits"}], "missing, unknown or double"),
        ([{"peer": "Weft"}], "Weft"),
        ([{}, {"absent": None, "has": True, "says": "many"}], "no evidence"),
        ([{"says": None}], "says is missing"),
    ],
)
def test_a_claim_that_is_missing_or_has_no_evidence_is_an_error(tmp_path: Path, changes: list, told: str) -> None:
    path = written(tmp_path, *changes)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for claim in content["claims"]:
        for name in [name for name, value in claim.items() if value is None]:
            del claim[name]
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        comparison.claims(path)


def test_claims_are_held_against_the_packages(tmp_path: Path) -> None:
    def packed(**files: str) -> None:
        with zipfile.ZipFile(tmp_path / "loom-1.2-py3-none-any.whl", "w") as wheel:
            for name, text in {"loom/a.py": "def noise(): pass\n", **files}.items():
                wheel.writestr(name, text)

    data = comparison.claims(written(tmp_path))
    packed()
    assert list(comparison.refuted(data, tmp_path)) == []
    packed(**{"loom/tests/b.py": "canary = 1", "loom/c.txt": "canary"})
    assert list(comparison.refuted(data, tmp_path)) == []
    packed(**{"loom/a.py": "def signal(): pass\n", "loom/b.py": "class CanaryScore: pass\n"})
    assert list(comparison.refuted(data, tmp_path)) == [
        "Loom, noise: loom/a.py does not show 'def noise'",
        "Loom, audits: loom/b.py: 'Canary'",
    ]


def test_a_table_is_replaced_and_the_rest_stays() -> None:
    text = "one\n\n| | tacit |\n|---|---|\n| old | row |\n\nafter | this\n"
    assert (
        comparison.pasted(text, comparison.HEAD, ["| | tacit | new |"]) == "one\n\n| | tacit | new |\n\nafter | this\n"
    )
