"""Rules of the repository that a linter does not see, or that must hold even when its settings change."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"pretrain", "discovery", "federated", "evaluation", "reports", "pipeline"}
MAY_IMPORT = {
    "pretrain": {"pretrain"},
    "discovery": {"discovery", "pretrain"},
    "federated": {"federated", "pretrain"},
    "evaluation": {"evaluation", "pretrain"},
    "reports": {"reports", "pretrain"},
    "pipeline": OURS,
    "dags": set(),
}
TEXT = {".py", ".yaml", ".yml", ".toml", ".md", ".in", ".lock", ".sh", ".env", ".json", ".j2", ".html", ".css", ""}


def tracked() -> list[Path]:
    """Files that belong to the repository, also those not yet committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / line for line in listing.splitlines() if (ROOT / line).is_file()]


FILES = tracked()
MODULES = [path for path in FILES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in MAY_IMPORT]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, at any depth; not those that only a type checker reads."""
    found: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        nodes += node.orelse if typing_only else ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # A package is also named with what is taken from it, as that may be a module.
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def uses_environment(path: Path) -> bool:
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return any(isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"} for node in tree)


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_imports_go_one_way(path: Path):
    package = path.relative_to(ROOT).parts[0]
    ours = {name for name in imports(path) if name.split(".")[0] in OURS}
    assert {name.split(".")[0] for name in ours} <= MAY_IMPORT[package]
    if package == "reports":
        assert all(name.startswith(("reports", "pretrain.config", "pretrain.files")) for name in ours)


@pytest.mark.parametrize("path", MODULES, ids=shown)
def test_heavy_and_foreign_imports_are_where_they_belong(path: Path):
    roots = {name.split(".")[0] for name in imports(path)}
    package, name = path.relative_to(ROOT).parts[0], shown(path)
    assert "airflow" not in roots or package == "dags"
    assert "mlflow" not in roots or name == "pipeline/tracking.py"
    if package == "dags" or path.name == "config.py":
        assert not roots & {"torch", "mlflow", "datasets"}
    if package != "dags":
        assert not uses_environment(path) or name == "pipeline/settings.py"


def test_docker_is_not_a_package():
    # It would shadow the `docker` package of PyPI, which MLflow depends on.
    assert not (ROOT / "docker" / "__init__.py").exists()


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".py"], ids=shown)
def test_no_file_is_longer_than_300_lines(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("name", ["airflow", "stages"])
def test_lock_files_hold_exact_pins_and_nothing_else(name: str):
    lines = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 50
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line)] == []
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    for line in (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8").splitlines():
        wanted = re.match(r"[A-Za-z0-9._-]+", line)
        assert wanted is None or re.sub(r"[-_.]+", "-", wanted[0]).lower() in pinned


def test_the_environments_stay_apart():
    stages = (ROOT / "requirements" / "stages.lock").read_text(encoding="utf-8")
    airflow = (ROOT / "requirements" / "airflow.lock").read_text(encoding="utf-8")
    assert "apache-airflow" not in stages
    assert not re.search(r"^(torch|mlflow|datasets)==", airflow, flags=re.MULTILINE)


# Not a link in a document but an address that code would reach, or a path of one machine.
_MACHINE = re.compile(r"(?<![\w.$}/~])/(?:home|Users|root|work|mnt)/[\w.]")
_HOST = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:internal|local|lan|corp)\b|\b(?:10|172|192)\.\d+\.\d+\.\d+\b")


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix in TEXT], ids=shown)
def test_no_path_or_host_of_one_machine(path: Path):
    if path == Path(__file__).resolve():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    assert _MACHINE.findall(text) == []
    assert _HOST.findall(text) == []


@pytest.mark.parametrize(
    ("text", "caught"),
    [("see /home/me/x", True), ("open('/root/x')", True), ("$HOME/work/x", False), ("a/work/b", False)],
)
def test_the_path_rule_catches_what_it_should(text: str, caught: bool):
    assert bool(_MACHINE.search(text)) is caught
