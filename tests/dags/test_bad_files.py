"""One bad launch file gives one broken DAG with its error; the others stay."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.launches.file_names import EDITORS, NAMES, NO_NAMES

from .conftest import DEMO, ROOT, SCHEDULED

pytestmark = pytest.mark.timeout(300)

GOOD = {"good.yaml": DEMO, "timed.yaml": SCHEDULED, "like.yaml": "like: timed.yaml\nname: like\n"}
GOOD |= dict.fromkeys(NAMES, DEMO)
# File name -> content, and a part of what its DAG says.
BAD = {
    "no-yaml.yaml": ("locale: [", "not valid YAML"),
    "a-list.yaml": ("- 1\n", "a mapping of fields"),
    "empty.yaml": ("", "a mapping of fields"),
    "deep.yaml": ("[" * 5000, "not valid YAML"),
    "strange.yaml": ('locale: "en/../x"\n', "no language tag"),
    "reviewers.yaml": (DEMO + "reviewers: 5\n", "reviewers"),
    "reviewer-maps.yaml": (DEMO + "reviewers: [{a: b}]\n", "reviewers"),
    "runtime.yaml": (DEMO + "runtime: fast\n", "runtime"),
    "schedule-list.yaml": (DEMO + "schedule: [1, 2]\n", "schedule"),
    "schedule.yaml": (DEMO + "schedule: every now and then\n", "schedule.yaml"),
    "bytes.yaml": (b"locale: \xff\xfe\n", "utf-8"),
    **dict.fromkeys(NO_NAMES, (SCHEDULED, "no name of a launch file")),
    "like-nothing.yaml": ("like: gone.yaml\nname: a\n", "gone.yaml: not a file"),
    "like-elsewhere.yaml": ("like: ../good.yaml\nname: a\n", "no launch file in its folder"),
    "huge.yaml": ("# " + "x" * (1 << 20), "bytes"),
}


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory, database: None) -> dict:
    folder = tmp_path_factory.mktemp("launches")
    for name, content in (GOOD | {name: content for name, (content, _) in BAD.items()}).items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "folder.yaml").mkdir()
    for name in EDITORS:
        (folder / name).write_bytes(b"\x00\x05")
    # A process of its own, because the DAG files read their surroundings when they are imported.
    code = (
        "import json, sys; from pathlib import Path; from airflow.dag_processing.dagbag import BundleDagBag;"
        "bag = BundleDagBag(dag_folder=Path('dags'), bundle_path=Path('dags'), bundle_name='dags-folder');"
        "about = {n: [d.description, d.doc_md, sorted(d.tags), sorted(d.task_ids)] for n, d in bag.dags.items()};"
        "print(json.dumps([bag.import_errors, about]), file=sys.stderr)"
    )
    command = ["env", f"TACIT_LAUNCHES={folder}", sys.executable, "-c", code]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stderr.splitlines()
    errors, dags = json.loads(lines[-1])
    assert errors == {}
    return dags


def test_the_good_ones_stay(parsed: dict):
    for name in ("good", "timed", "like"):
        assert "publish" in parsed[name][3]
        assert "broken" not in parsed[name][2]
    beside = {f"{kind}-{name}" for kind in ("public_model", "experiment") for name in ("timed", "like")} | {
        "tacit-expiry"
    }
    assert beside <= parsed.keys()
    assert len(parsed) == len(GOOD) + len(beside) + len(BAD) + 1


@pytest.mark.parametrize("name", BAD)
def test_a_bad_one_says_what_is_wrong(parsed: dict, name: str):
    said = BAD[name][1]
    (found,) = [dag for dag in parsed.values() if f"`{name}`" in dag[1] and "broken" in dag[2]]
    assert said in found[0]
    assert said in found[1]
    assert found[3] == ["broken_launch_file"]


def test_a_folder_is_no_launch_file(parsed: dict):
    assert parsed["folder"][2] == ["broken", "launch"]


def test_names_that_airflow_does_not_take_hide_no_other_launch(dagbag, tmp_path: Path):
    from launch_file import read_or_error

    names = {read_or_error(tmp_path / name).name for name in ("a b.yaml", "a:b.yaml", "a_b.yaml")}
    assert len(names) == 3


def test_null_removes_what_a_file_is_like(tmp_path: Path):
    from launch_file import read_or_error
    from stage_task import trial_days

    (tmp_path / "other.yaml").write_text(SCHEDULED, encoding="utf-8")
    own = tmp_path / "own.yaml"
    own.write_text("like: other.yaml\nname: own\nschedule: null\nreviewers: ~\nexperiment: null\n", encoding="utf-8")
    read = read_or_error(own)
    assert (read.error, read.schedule, read.reviewers, trial_days(read)) == ("", None, (), None)
    assert read.approvals == 2
