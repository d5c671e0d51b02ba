"""The command line as a user and as Airflow meet it: exit codes, one JSON object, help that teaches."""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml
from click.testing import Result

from pipeline.cli import app as cli
from pipeline.cli.support import check_delta, command
from pipeline.ground import settings
from pipeline.ground.errors import BudgetExceeded, StageBusy
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.gains import measured_on
from pipeline.run import runner
from pipeline.run.known import write_down
from pipeline.run.run_dir import RESULT, read_record, record_text
from pretrain.model import export
from pretrain.model.keyboard_lm import build_model
from pretrain.model.predictor import KeyboardPredictor
from pretrain.text import vocabulary
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from pretrain.writing import truecasing
from tests.helpers.launches.command import ended
from tests.helpers.launches.pipeline_launch import RAW, Calls, launch_config
from tests.helpers.launches.published import list_files
from tests.helpers.launches.tracking_database import put
from tests.helpers.reports.keyboard_run import add_published

TACIT = Path(sys.executable).with_name("tacit")


class Shell:
    """Runs ``tacit`` in a folder of its own, inside the test's process."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self._monkeypatch = home, monkeypatch
        monkeypatch.chdir(home)
        monkeypatch.setenv("TACIT_HOME", str(home))

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> Result:
        with self._monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            return ended(*arguments, code=code)

    def json(self, *arguments: str, code: int = 0, **variables: str) -> dict:
        """The one line on standard output."""
        (line,) = self(*arguments, "--json", code=code, **variables).stdout.splitlines()
        return json.loads(line)


@pytest.fixture
def tacit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "trial.yaml").write_text(yaml.safe_dump(RAW), encoding="utf-8")
    return str(tmp_path / "trial.yaml")


@pytest.mark.slow
def test_check_a_good_file(tacit: Shell, file: str):
    expected = launch_id(launch_config())
    note = (
        "one device loses epsilon 3.07 at delta 1e-06 at worst, of policy.max_total_epsilon 10: local words 0.34 "
        "(shuffled), training 2.73 (rho 0.1667)"
    )
    gate = "policy.min_top1_gain: 0 holds 97% of such launches, by a forecast of +0.0 ± 0.0 points over the start"
    of_whom = f"these forecasts are what {measured_on(launch_config(), 1150)}"
    minutes = {"pretrain": 1, "fine_tune": 1}
    found = {"errors": [], "notes": [note, gate, of_whom], "cpu_minutes": minutes, "reuse": []}
    assert tacit.json("check", file) == {"ok": True, "launch_id": expected} | found
    assert tacit.json("check", file, "--date", "20261121")["launch_id"] == f"{expected}-20261121"
    assert expected in tacit("check", file).stdout
    assert not (tacit.home / "runs").exists(), "checking leaves nothing behind"
    assert "YYYYMMDD" in tacit.json("check", file, "--date", "today", code=65)["errors"][0]


def test_check_a_bad_file(tacit: Shell, tmp_path: Path):
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(RAW | {"seed": -1, "colour": "red"}), encoding="utf-8")
    answer = tacit.json("check", str(path), code=65)
    assert not answer["ok"]
    assert [line.split(":")[0] for line in answer["errors"]] == ["seed", "colour"]
    assert "colour" in tacit("check", str(path), code=65).stdout
    assert "does not exist" in tacit.json("check", "nowhere.yaml", code=65)["errors"][0]


@pytest.mark.slow
def test_the_installed_command_exits_as_the_application_does(tacit: Shell):
    """One process: what it prints and how it ends, as Airflow sees it."""
    done = subprocess.run([TACIT, "check", "nowhere.yaml", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 65
    assert json.loads(done.stdout) == tacit.json("check", "nowhere.yaml", code=65)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offers"),
    [("sta", {"stage", "status"}), ("check tri", {"trial.yaml"}), ("explain policy.max_r", {"policy.max_rho"})],
)
def test_shells_complete_commands_and_launches(words: str, offers: set[str], tacit: Shell, file: str):
    typed = {"COMP_WORDS": f"tacit {words}", "COMP_CWORD": str(len(words.split()))}
    variables = os.environ | {"_TACIT_COMPLETE": "complete_bash", "TACIT_HOME": str(tacit.home)} | typed
    done = subprocess.run([TACIT], env=variables, cwd=tacit.home, capture_output=True, text=True, check=True)
    assert offers <= set(done.stdout.split())


def test_a_wrong_command_line_is_not_a_retry(tacit: Shell):
    tacit("chekc", code=2)
    tacit("stage", "pretrain", code=2)


@pytest.mark.slow
def test_stage_errors_reach_airflow_as_code_and_json(tacit: Shell, file: str, tracking_database: Path):
    put(tracking_database, tacit.home)
    tacit("ledger", "init")
    run = launch_id(launch_config())
    answer = tacit.json("stage", "adapt", file, "--id", run, code=65)
    assert answer["exit_code"] == 65
    assert "has not finished" in answer["error"]
    assert "choose one of" in tacit.json("stage", "adopt", file, "--id", run, code=65)["error"]
    other = tacit.json("stage", "adapt", file, "--id", "trial-00000000", code=65)
    assert "run it under its own id" in other["error"]


@pytest.mark.slow
def test_ledger_commands(tacit: Shell, tracked: Settings, file: str):
    assert "empty" in tacit("ledger", "show").stdout
    config = launch_config()
    for name in ("ingest_private", "plan", "fine_tune"):
        runner.run_stage(name, config, launch_id(config), tracked, Calls().stages)
    shown = tacit.json("ledger", "show", "--population", "chitchat:people")
    assert [entry["kind"] for entry in shown["entries"]] == ["register", "reserve", "commit"]
    assert shown["totals"] == {"chitchat:people": 0.25}
    where = str(tracked.runs_dir / "ledger.db")
    assert tacit.json("ledger", "verify") == {"ledger": where, "ok": True, "problems": [], "entries": 6}
    assert where in tacit("ledger", "show").stdout
    assert "it has those of chitchat:people" in tacit.json("ledger", "show", "--population", "nobody", code=65)["error"]

    (tracked.runs_dir / "ledger.db").unlink()
    assert f"no privacy ledger at {where}" in tacit.json("ledger", "verify", code=65)["error"]
    refusal = tacit.json("ledger", "init", code=65)["error"]
    assert f"{tracked.log_dir} is the log of a privacy ledger with 6 entries that" in refusal
    assert refusal in tacit("status").stdout, "one advice"
    assert refusal in tacit.json("check", file)["notes"]
    PrivacyLedger.create(tracked)  # A fresh one is whole in itself, but the log remembers.
    problems = tacit.json("ledger", "verify", code=65)["problems"]
    assert any("log/checkpoint holds a checkpoint of 6" in problem for problem in problems)
    assert any("log holds entry 1" in problem for problem in problems)
    with sqlite3.connect(where) as database:
        database.execute("DROP TRIGGER privacy_ledger_no_update")
    assert "no_update is gone" in tacit("ledger", "verify", code=65).stdout


EPSILON = ("--max-words-epsilon", "40", "--delta", "1e-4", "--reviewer", "ana")


def test_a_ledger_is_made_on_purpose_and_populations_are_registered_by_people(tacit: Shell, tmp_path: Path):
    where = str(tmp_path / "runs" / "ledger.db")
    assert "tacit ledger init" in tacit.json("ledger", "show", code=65)["error"]
    assert not Path(where).exists(), "looking makes nothing"
    assert tacit.json("ledger", "init") == {"ledger": where, "made": True, "entries": 0}
    assert "another installation on the same people spends a budget of its own" in tacit("ledger", "init").stdout
    assert tacit.json("ledger", "init") == {"ledger": where, "made": False, "entries": 0}
    assert Path(where).stat().st_mode & 0o777 == 0o600, "it holds secrets"
    made = tacit.json("ledger", "register", "people", "--max-rho", "1", *EPSILON, "--window-days", "365")
    stated = {"max_words_epsilon": 40.0, "delta": 1e-4, "max_discovery_epsilon": None, "window_days": 365}
    stated |= {"lifetime_rho": None}
    assert made["budget"] == stated | {"max_rho": 1.0}
    again = tacit.json("ledger", "register", "people", "--max-rho", "9", *EPSILON, code=65)
    assert "registered by" in again["error"]
    assert (
        "--max-rho: no option is given" in tacit.json("ledger", "budget", "people", "--reason", "x", code=65)["error"]
    )
    assert "--reason" in tacit.json("ledger", "budget", "people", "--max-rho", "9", "--reason", " ", code=65)["error"]
    changed = tacit.json("ledger", "budget", "people", "--max-rho", "9", "--reason", "reviewed")
    assert changed["budget"] == stated | {"max_rho": 9.0}, "the rest stays"
    assert "in the worst window" not in tacit("ledger", "show").stdout, "nothing was spent"
    registration = ("ledger", "register", "windowed", "--max-rho", "1", *EPSILON, "--lifetime-rho", "3")
    assert "--window-days" in tacit.json(*registration, code=65)["error"]
    assert "in any 60 days, and rho 3 for ever" in tacit(*registration, "--window-days", "60").stdout
    for wrong in ("0", "-1", "nan", "inf", "1001", "1e300"):
        assert "--max-rho" in tacit.json("ledger", "register", "more", "--max-rho", wrong, *EPSILON, code=65)["error"]
    tacit("ledger", "register", "theirs", "--max-rho", "1", *EPSILON, "--raised-by", "somebody-else")
    refused = tacit.json("ledger", "budget", "theirs", "--max-rho", "9", "--reason", "x", code=65)["error"]
    assert "may be changed by somebody-else, not by" in refused
    for name in ("", " ", "a b", "\u0430na"):
        said = tacit.json("ledger", "register", "more", "--max-rho", "1", *EPSILON, "--raised-by", name, code=65)[
            "error"
        ]
        assert said.startswith("--raised-by: ")
    alone = ("ledger", "register", "more", "--max-rho", "1", "--max-words-epsilon", "40", "--delta", "1e-4")
    assert tacit.json(*alone, code=65)["error"].startswith("--reviewer: 0 named")
    assert tacit.json(*alone, "--reviewer", "ana", "--min-approvals", "2", code=65)["error"].startswith("--reviewer: 1")
    for wrong in ("gone=1", "population_max_rho=1", "min_variety=many", "min_variety", "min_variety=nan"):
        assert tacit.json(*alone, "--reviewer", "ana", "--gate", wrong, code=65)["error"].startswith("--gate: ")
    said = tacit(
        *alone, "--reviewer", "ana", "--airflow", "https://airflow.example", "--gate", "min_variety=0.5"
    ).stdout
    assert "1 approvals of ana" in said
    assert "ana cannot answer by 'tacit review'" in said, "this ledger is in SQLite"


def test_the_example_of_a_registration_runs_as_its_help_gives_it(tacit: Shell):
    tacit("ledger", "init")
    text = tacit("ledger", "register", "--help").stdout
    given = " ".join(re.sub("[│╭╮╰╯─]", " ", text).split()).partition("Example: tacit ")[2]
    example = given[: re.search(r"--reviewer \w+", given).end()]
    assert tacit.json(*shlex.split(example))["rules"]["reviewers"]


def test_a_registration_of_people_names_airflow_and_notes_who_cannot_answer(tacit: Shell):
    """As under `make stack`, whose Airflow is on this machine, and compose, where it is asked in clear."""
    register = ("ledger", "register", "--max-rho", "1", "--delta", "1e-4", "--reviewer", "ana")
    tacit("ledger", "init")
    reader = {"TACIT_AIRFLOW_USER": "reader", "TACIT_AIRFLOW_PASSWORD": "hunter2"}
    for name, address, named, clear in (
        ("stack", "http://127.0.0.1:8080", "http://127.0.0.1:8080", False),
        ("tls", "https://airflow.example", "https://airflow.example", False),
        ("compose", "http://api-server:8080", "", True),
    ):
        done = json.loads(tacit(*register, name, "--json", TACIT_AIRFLOW_URL=address, **reader).stdout)
        assert done["rules"]["airflow"] == named
        assert sum("owner alone can open" in note for note in done["notes"]) == 1, "this ledger is in SQLite"
        assert sum("counts for people" in note for note in done["notes"]) == clear
    assert tacit.json(*register, "none")["rules"]["airflow"] == ""
    other = tacit(*register, "other", "--airflow", "", "--json", TACIT_AIRFLOW_URL="https://airflow.example", **reader)
    assert json.loads(other.stdout)["rules"]["airflow"] == ""
    changed = tacit.json("ledger", "budget", "stack", "--max-rho", "2", "--reason", "more")
    assert (changed["rules"]["airflow"], len(changed["notes"])) == ("http://127.0.0.1:8080", 1)
    simulated = tacit.json("ledger", "register", "made_up_files:x", "--max-rho", "1", "--delta", "0.1")
    assert (simulated["notes"], simulated["rules"]["airflow"]) == ([], "")


def test_a_database_that_is_down_is_temporary(tacit: Shell):
    url = "postgresql+psycopg2://user:hunter2@127.0.0.1:9/nowhere"
    done = tacit("ledger", "show", "--json", code=75, TACIT_LEDGER_URL=url)
    assert json.loads(done.stdout)["exit_code"] == 75
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.slow
def test_plan(tacit: Shell, file: str):
    answer = tacit.json("plan", file, "--devices", "1000")
    assert answer["feasible"]
    assert answer["total"]["epsilon"] > 0
    text = tacit("plan", file, "--devices", "1000").stdout
    assert "one device loses epsilon 3." in text
    assert not re.search(r"at delta \S+, rho", text), "words found locally have no rho"
    assert not tacit.json("plan", file, "--devices", "1", code=65)["feasible"]
    assert tacit.json("plan", file)["training_devices"] == 1053, "the packaged population has a known size"


@pytest.mark.slow
def test_site_says_how_to_get_the_keyboards(tacit: Shell):
    bundle = add_published(tacit.home / "runs", "some-launch")
    here = settings.load({"TACIT_HOME": str(tacit.home)})
    assert tacit.json("site")["without"] == 0, "a record that the ledger does not hold publishes nothing"
    PrivacyLedger.create(here)
    published = read_record(bundle.parent / RESULT)
    waiting = published.model_copy(update={"result": {"published": False}})
    for record, without in ((waiting, 0), (published, 1)):
        write_down(record, here)
        (bundle.parent / RESULT).write_text(record_text(record), encoding="utf-8")
        assert tacit.json("site")["without"] == without
    index = str(tacit.home / "runs" / "index.html")
    assert tacit.json("site") == {"index": index, "keyboards": [], "without": 1}
    said = tacit("site", TACIT_WEB=str(tacit.home / "elsewhere")).stdout
    assert index in said
    assert f"{tacit.home / 'elsewhere'} holds no onnxruntime-web; 'make web' installs it" in said


def test_predict(tacit: Shell):
    words = Vocabulary((*SPECIALS, "see", "you", "soon", "later"))
    bundle = tacit.home / "bundle"
    bundle.mkdir()
    vocabulary.save(words, bundle / "vocabulary.json")
    truecasing.save({}, bundle / "truecase.json")
    export.export_onnx(build_model(launch_config().model, len(words), 1), bundle / "model.onnx")
    list_files(bundle, locale="en-US")
    answer = tacit.json("predict", str(bundle), "see you")
    assert answer["words"] == KeyboardPredictor(bundle).suggest("see you")
    assert len(answer["words"]) == 3
    assert answer["known"] is False, "no launch here registered it"


def test_unknown_run(tacit: Shell):
    assert "no launch" in tacit.json("verify", "trial-0123abcd", code=65)["error"]
    assert "does not exist" in tacit.json("audit", "../etc", code=65)["error"]


def _of_ours() -> ValueError:
    with pytest.raises(ValueError, match="delta: got 2") as raised:
        check_delta(2.0)
    return raised.value


@pytest.mark.parametrize(
    ("error", "code"), [(_of_ours(), 65), (BudgetExceeded("b"), 65), (OSError("o"), 75), (StageBusy("s"), 75)]
)
def test_expected_errors_become_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture):
    @command
    def fails(as_json: bool) -> None:
        raise error

    with pytest.raises(typer.Exit) as stopped:
        fails(as_json=True)
    assert stopped.value.exit_code == code
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"ok": False, "error": str(error), "exit_code": code}
    assert str(error) in printed.err


def test_a_bug_keeps_its_traceback():
    @command
    def buggy() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        buggy()
    # Rich's traceback would print local variables, and those may hold a client's text.
    assert cli.app.pretty_exceptions_enable is False
