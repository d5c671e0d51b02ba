"""Rules of the repository that a linter does not see."""

import ast
import functools
import re
import sys
import tomllib
from datetime import timedelta
from importlib import metadata
from pathlib import Path

import pytest

from federated.config.training import STAGE_TIMEOUT_MINUTES
from tests.helpers.launches.checkout import ROOT, tracked

OURS = {"pretrain", "discovery", "federated", "evaluation", "reports", "pipeline", "tacit"}
# The linter holds the order of our packages; it does not see these two, which may import no more of ours than this.
MAY_IMPORT = {"dags": (), "reports": ("reports", "pretrain.config", "pretrain.files")}
TEXT = {
    *(".py", ".yaml", ".yml", ".toml", ".md", ".in", ".lock", ".sh", ".env", ".json"),
    *(".j2", ".html", ".css", ".js", ""),
}


FILES = tracked()
CODE = [path for path in FILES if path.suffix == ".py"]
MODULES = [path for path in CODE if path.relative_to(ROOT).parts[0] in OURS | {"dags"}]
TESTS = [path for path in CODE if path.relative_to(ROOT).parts[0] == "tests"]
PRIVATE = re.compile("_[a-zA-Z]")
BY_NAME = {"getattr", "setattr", "delattr"}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, at any depth; not those that only a type checker reads."""
    names: set[str] = set()
    nodes: list[ast.AST] = [parsed(path)]
    while nodes:
        node = nodes.pop()
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        nodes += node.orelse if typing_only else ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # A package is also named with what is taken from it, as that may be a module.
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def private_names(path: Path) -> set[str]:
    """Names with one underscore in front that a file takes from another one."""
    tree = parsed(path)
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    for node in ast.walk(tree):
        # What a class of its own keeps or overrides is the file's own.
        private = isinstance(node, ast.Attribute) and PRIVATE.match(node.attr)
        if private and ast.unparse(node.value) not in ("self", "super()"):
            names.add(node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_NAME:
            texts = [part.value for part in node.args[:2] if isinstance(part, ast.Constant)]
            names |= {name for text in texts if isinstance(text, str) for name in text.split(".")}
    return {name for name in names if PRIVATE.match(name)} - {"_exit", "_repr_png_"}


@pytest.mark.slow
def test_dags_and_reports_import_no_more_of_ours_than_they_may():
    ours = [(path, name) for path in MODULES for name in imports(path) if name.split(".")[0] in OURS]
    allowed = [(path, name, MAY_IMPORT.get(path.relative_to(ROOT).parts[0], name)) for path, name in ours]
    assert [f"{shown(path)}: {name}" for path, name, may in allowed if not name.startswith(may)] == []


def value_of(name: str, path: Path) -> ast.expr:
    """What a module that the stages' environment cannot import assigns to a name."""
    (value,) = (
        node.value
        for node in parsed(path).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return value


def test_workers_wait_for_one_another_as_long_as_airflow_waits_for_a_stage():
    timeout = value_of("STAGE_TIMEOUT", ROOT / "dags" / "stage_task.py")
    assert isinstance(timeout, ast.Call)
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in timeout.keywords}
    assert timedelta(**given) == timedelta(minutes=STAGE_TIMEOUT_MINUTES)
    guide = " ".join((ROOT / "docs" / "fine_tuning.md").read_text(encoding="utf-8").split())
    assert f"ends a stage after {STAGE_TIMEOUT_MINUTES / 60:g} hours" in guide


def test_docker_is_not_a_package():
    # It would shadow the `docker` package of PyPI, which MLflow depends on.
    assert not (ROOT / "docker" / "__init__.py").exists()


# Who may do what only one reader of records does (``pipeline.run.known``), and why.
_READERS = {
    "read_record": {
        "pipeline/experiments/decide.py",
        "pipeline/run/run_dir.py",
        "pipeline/tracking/mlflow_tracker.py",
        "pipeline/verify/launch.py",
    },  # of a file that the ledger holds; the reader; what MLflow has, asked about after; whose an outsider's folder is
    "StageRecord.model_validate": {"pipeline/run/finished.py"},  # a computation before a crash, asked about at once
    "StageRecord.model_validate_json": {"pipeline/run/run_dir.py"},
    # Verification looks at what does not count, to say what is wrong; so does a re-use that is refused. A process
    # that a stage starts reads what the stage opened before: it needs no ledger.
    "as_it_lies": {
        "pipeline/stages/training/fine_tune_workers.py",
        *("pipeline/run/known.py", "pipeline/run/cache.py"),
        *("pipeline/verify/launch.py", "pipeline/verify/replay.py", "pipeline/verify/reused.py"),
    },
    # Only read: the ledger's own reads, its forecasts, and the question that each record asks.
    "PrivacyLedger": {
        "pipeline/run/known.py",
        "pipeline/preflight/devices.py",
        "pipeline/preflight/foresee.py",
        "pipeline/verify/expiry.py",
    },
    # The Airflow tab shows records as they lie, and says so: Airflow's environment has no ledger. Verification looks
    # for keys that stand twice in a record's text, which no parsed record shows.
    "'result.json'": {"dags/plugins/launch_tab.py", "pipeline/run/run_dir.py", "pipeline/verify/files.py"},
}


def uses(path: Path) -> set[str]:
    """What a file does of ``_READERS``: calls, names it takes or makes, strings."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            found.add(ast.unparse(node.func))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(repr(node.value))
        elif isinstance(node, ast.Name):
            found |= {node.id} if node.id != "PrivacyLedger" else set()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            reads = node.func.attr in ("read_text", "read_bytes", "open")
            if reads and any(isinstance(each, ast.Name) and each.id == "RESULT" for each in ast.walk(node.func)):
                found.add("'result.json'")
    return found


@pytest.mark.slow
def test_no_function_has_more_than_a_hundred_lines():
    """Its options and its documentation count too: a part that has a name is cut out."""
    lines = {
        f"{shown(path)}: {node.name}": node.end_lineno - node.lineno + 1
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(lines) > 3000
    assert not [name for name, length in lines.items() if length > 100]


@pytest.mark.slow
def test_one_reader_opens_the_records_of_stages():
    """A record that the ledger does not hold is nobody's: there is no second way to one."""
    found = {name: set() for name in _READERS}
    for path in MODULES:
        for name in _READERS.keys() & uses(path):
            found[name].add(shown(path))
    found["as_it_lies"].add("pipeline/run/known.py")
    assert found == _READERS


def test_a_second_reader_is_noticed(tmp_path: Path):
    sources = {
        "'result.json'": "json.loads((run / RESULT).read_text())",
        "read_record": "read_record(path)",
        "StageRecord.model_validate": "StageRecord.model_validate(content)",
        "as_it_lies": "RunDir(root, name, as_it_lies)",
        "PrivacyLedger": "PrivacyLedger(url).entries()",
    }
    for number, (name, source) in enumerate(sources.items()):
        (tmp_path / f"{number}.py").write_text(source, encoding="utf-8")
        assert name in uses(tmp_path / f"{number}.py")


def test_packages_say_nothing_in_their_init():
    # Mechanisms are a closed set, and the ``match`` over it stands there; ``import tacit`` gives the version.
    may_speak = ("mechanisms", "tacit")
    inits = [path for path in MODULES if path.name == "__init__.py" and path.parent.name not in may_speak]
    assert [shown(path) for path in inits if path.read_text(encoding="utf-8").strip()] == []


@pytest.mark.slow
def test_tests_take_nothing_from_test_files():
    wrong = [
        f"{shown(path)}: {name}"
        for path in TESTS
        for name in imports(path)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    ]
    assert wrong == []


@pytest.mark.slow
def test_tests_look_at_public_names_only():
    # Faults are planted inside functions, as a bug is.
    looking = [path for path in TESTS if path.name != "faults.py"]
    assert [f"{shown(path)}: {name}" for path in looking for name in sorted(private_names(path))] == []


def test_a_private_name_in_a_string_is_one(tmp_path: Path):
    path = tmp_path / "test_some.py"
    path.write_text('patch.setattr(noise, "_BLOCK", 7)\nmonkeypatch.delattr("noise._gone")\ngetattr(x, "__doc__")\n')
    assert private_names(path) == {"_BLOCK", "_gone"}


_LOCKS = ("airflow", "kubernetes", "stages", "check", "cuda")
_PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+( ; python_version == '3\.\d+')?")


@pytest.mark.parametrize("name", ["airflow", "stages"])
def test_lock_files_hold_exact_pins_and_nothing_else(name: str):
    lines = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 50
    assert [line for line in lines if not _PIN.fullmatch(line)] == []
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    assert {_normal(each) for each in required(name)} <= pinned


def required(name: str) -> list[str]:
    """Packages that a file of requirements names, with those of the file that it includes."""
    text = (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8")
    more = [package for other in re.findall(r"^-r (\w+)\.in$", text, flags=re.M) for package in required(other)]
    return more + re.findall(r"^[A-Za-z0-9][A-Za-z0-9._-]*", text, flags=re.M)


def _normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


@pytest.mark.slow
def test_the_wheel_depends_on_all_that_its_packages_import():
    """A clean environment has nothing else: an import that only another package brings fails there one day."""
    declared = {_normal(each) for name in ("tacit", "text") for each in required(name)}
    of_module = metadata.packages_distributions()
    taken = {
        name.split(".")[0] for path in MODULES if path.relative_to(ROOT).parts[0] in OURS for name in imports(path)
    }
    missing = {
        module
        for module in taken - OURS - sys.stdlib_module_names
        if not declared & {_normal(each) for each in of_module.get(module, ())}
    }
    assert missing == set()
    assert {_normal(each) for each in required("stages")} > declared


def test_the_wheel_holds_every_file_that_its_packages_read():
    """Documents, schemas of published formats, and what `make web` runs stay in the checkout."""
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "package-data"
    ]
    held = {path for package, globs in packaged.items() for glob in globs for path in (ROOT / package).glob(glob)}
    others = {path for path in FILES if path.relative_to(ROOT).parts[0] in OURS and path.suffix != ".py"} - held
    assert {shown(path) for path in others} == {
        *("federated/README.md", "reports/disclosure/schemas/2.0.json"),
        *("reports/web/install.sh", "reports/web/package-lock.json", "reports/web/package.json"),
    }


def test_what_cuda_needs_is_pinned_beside_the_stages_packages_and_not_among_them():
    lines = (ROOT / "requirements" / "cuda.lock").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not _PIN.fullmatch(line)] == []
    stages = (ROOT / "requirements" / "stages.lock").read_text(encoding="utf-8").splitlines()
    assert not {line.split("==")[0] for line in lines} & {line.split("==")[0] for line in stages}
    assert {"triton", "nvidia-cublas", "nvidia-nccl-cu13"} <= {line.split("==")[0] for line in lines}


def test_hashes_are_of_what_is_pinned():
    """Of all of it, or set-up ends with pip's check: who adds a pin runs `make hashes`."""
    pinned = {name: (ROOT / "requirements" / f"{name}.lock").read_text("utf-8").splitlines() for name in _LOCKS}
    pinned["torch"] = [pin for pin in pinned["stages"] if pin.startswith("torch==")]
    pinned["stages"] = [pin for pin in pinned["stages"] if pin not in pinned["torch"]]
    for name, pins in pinned.items():
        text = (ROOT / "requirements" / "hashes" / f"{name}.txt").read_text(encoding="utf-8")
        hashed = dict(
            re.findall(r"^(\S+==\S+)(?: ; .*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, flags=re.M)
        )
        lines = [line for line in text.splitlines() if not line.startswith("    --hash=")]
        assert len(lines) == len(hashed), f"{name}: something without a hash"
        assert {_plain(pin) for pin in hashed} == {_plain(pin) for pin in pins}, name


def _plain(pin: str) -> str:
    return re.sub(r"[-_.]+", "-", pin.partition("==")[0]).lower() + pin.partition("==")[2].partition(" ;")[0]


def test_the_environments_stay_apart():
    stages = (ROOT / "requirements" / "stages.lock").read_text(encoding="utf-8")
    airflow = (ROOT / "requirements" / "airflow.lock").read_text(encoding="utf-8")
    assert "apache-airflow" not in stages
    assert not re.search(r"^(torch|mlflow|datasets)==", airflow, flags=re.MULTILINE)


# Not a link in a document but an address that code would reach, or a path of one machine.
_MACHINE = re.compile(r"(?<![\w.$}/~])/(?:home|Users|root|work|mnt)/[\w.]")
_HOST = re.compile(
    r"\b(?:[a-z0-9-]+\.)+(?:(?:internal|lan|corp)\b|local(?=[:/\x22\x27]))|(?<!==)\b(?:10|172|192)\.\d+\.\d+\.\d+\b"
)


@pytest.mark.slow
def test_no_path_or_host_of_one_machine():
    wrong = []
    for path in FILES:
        if path.suffix in TEXT and path != Path(__file__).resolve():
            text = path.read_text(encoding="utf-8", errors="replace")
            wrong += [f"{shown(path)}: {name}" for name in (*_MACHINE.findall(text), *_HOST.findall(text))]
    assert wrong == []


@pytest.mark.slow
def test_the_path_rule_catches_what_it_should():
    texts = {"see /home/me/x": True, "open('/root/x')": True, "$HOME/work/x": False, "a/work/b": False}
    assert {text: bool(_MACHINE.search(text)) for text in texts} == texts
