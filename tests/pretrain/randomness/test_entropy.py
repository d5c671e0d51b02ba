"""Secrets come from the operating system, by one function."""

import ast
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from pretrain.randomness import entropy
from pretrain.randomness.entropy import fresh_bytes

ROOT = Path(entropy.__file__).parents[2]
PACKAGES = ("dags", "discovery", "evaluation", "federated", "pipeline", "pretrain", "reports", "tacit")
# Modules, and functions of modules, that draw bits by another way, or of a generator that can be predicted.
OTHERS = {"secrets", "random", "uuid", "os.urandom", "os.getrandom", "time.time_ns", "numpy.random.bytes"}
_DRAWS = "from pretrain.randomness.entropy import fresh_bytes; print(fresh_bytes(32).hex())"


def test_they_are_what_the_system_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, given = [], bytes(range(48))
    monkeypatch.setattr(secrets, "token_bytes", lambda size: (asked.append(size), given[:size])[1])
    assert [fresh_bytes(32), fresh_bytes(48)] == [given[:32], given]
    assert asked == [32, 48]


def test_of_two_processes_each_draws_its_own() -> None:
    """In processes whose draws no test has taken in hand."""
    command = [sys.executable, "-c", _DRAWS]
    drawn = {subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout for _ in range(2)}
    assert len(drawn) == 2


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_else_draws(package: str) -> None:
    files = [path for path in (ROOT / package).rglob("*.py") if path != Path(entropy.__file__)]
    assert files
    found = [f"{path.relative_to(ROOT)}: {name}" for path in files for name in drawing(path) if name in OTHERS]
    assert not found, "draw by pretrain.randomness.entropy.fresh_bytes"


def drawing(path: Path) -> list[str]:
    """Imports of a file, and the functions of modules that it names."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names.append(ast.unparse(node).replace("np.", "numpy.", 1))
    return names
