"""Every benchmark is run as ``python -m benchmarks.NAME``: as a file it would see itself in place of our packages."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.helpers.launches.checkout import ROOT, tracked
from tests.helpers.processes.forked import Forked

# Those of peers/ run in environments of their own; the one that does not is kebbie's.
PATHS = [path for path in tracked() if path.is_relative_to(ROOT / "benchmarks") and path.suffix == ".py"]
COMMANDS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__"): path
    for path in PATHS
    if path.parent.name != "peers" and "__main__" in path.read_text(encoding="utf-8")
}
TEXT = {".py", ".md", ".txt", ".yaml", ".yml", ".sh", ".toml", ""}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_benchmark_says_how_it_is_run(name: str) -> None:
    assert f"python -m {name}" in (ast.get_docstring(ast.parse(COMMANDS[name].read_text(encoding="utf-8"))) or "")


def said(pattern: str) -> dict[str, set[str]]:
    """What a pattern matches, and in which of our files."""
    places: dict[str, set[str]] = {}
    for path in tracked():
        if path.suffix in TEXT:
            for name in re.findall(pattern, path.read_text(encoding="utf-8", errors="replace")):
                places.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return places


def test_nothing_names_a_benchmark_by_its_file() -> None:
    assert said(r"benchmarks/(?:\w+/)*\w+\.py") == {}


def test_every_benchmark_that_is_named_is_there() -> None:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PATHS} | COMMANDS.keys()
    named = said(r"-m (benchmarks(?:\.\w+)+)(?![\w.])")
    missing = {name: places for name, places in named.items() if name not in modules and "NAME" not in name}
    # Tables of finished studies name the commit that has their code.
    elsewhere = {place for places in missing.values() for place in places}
    assert [place for place in elsewhere if "those of commit" not in (ROOT / place).read_text(encoding="utf-8")] == []
    benches = re.search(r"^BENCHES \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert benches is not None
    assert {f"benchmarks.{name}" for name in benches[1].split()} <= COMMANDS.keys()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT / "benchmarks")))
def test_benchmarks_import_one_another_by_their_full_names(path: Path) -> None:
    """A bare name is found only where the file's folder comes first, and there others are not what they seem."""
    bare = {other.stem for other in PATHS if other.parent.name != "peers"} | {"peers", "papers"}
    bare -= {folder.parent.name for folder in ROOT.glob("*/__init__.py")}
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    assert bare & {name.split(".")[0] for name in names} == set()


@pytest.mark.slow
def test_every_benchmark_shows_its_help(forked: Forked) -> None:
    command = [forked.python, "-m", "tests.benchmarks.helpless", *sorted(COMMANDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
