"""The documents name only what exists, and every command's help shows an example."""

import re
from pathlib import Path

import pytest
import typer
import yaml

from federated.accounting import guarantees as accounting
from pipeline.cli.app import app
from pipeline.config import LaunchConfig

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "PITFALLS.md", "federated/README.md", "docker/README.md")


def commands() -> dict[str, str]:
    """Full name of every command -> its help."""
    found = {}

    def walk(command: object, name: str) -> None:
        children = getattr(command, "commands", None)
        if children is None:
            found[name] = command.help or ""
            return
        for child_name, child in children.items():
            walk(child, f"{name} {child_name}".strip())

    walk(typer.main.get_command(app), "")
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_shows_an_example(name: str) -> None:
    assert f"tacit {name}" in re.sub(r"\s+", " ", commands()[name])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_name_commands_that_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    known = commands()
    for words in re.findall(r"`(?:\S*bin/)?tacit ((?:[a-z_]+ ?)+)", text):
        first, *rest = words.split()
        # An argument may follow a command's name: the longest name that fits counts.
        named = {f"{first} {rest[0]}"} if rest else {name for name in known if name.startswith(f"{first} ")}
        assert named & known.keys() or first in known, f"tacit {words}"
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)", " ".join(re.findall(r"`[^`]+`|^make .*$", text, flags=re.M)))) <= targets


def test_readme_gives_two_commands_first() -> None:
    block = re.search(r"```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block[1].strip().splitlines()] == ["make launch", "make test"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_tree_in_the_readme_is_the_tree() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^([a-z]+)/ ", text, flags=re.MULTILINE))
    there = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {"dags", "docker", "benchmarks", "tests"}
    assert named == there


def test_the_mechanisms_to_choose_from_are_real_and_cost_what_is_said() -> None:
    blocks = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "federated/README.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    demo = yaml.safe_load((ROOT / "dags/launches/demo-en-US.yaml").read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match="leave stress out"):
        LaunchConfig.model_validate(demo | yaml.safe_load(blocks[-1]))
    demo["audit"]["populations"] = ["compliant"]
    launches = [LaunchConfig.model_validate(demo | yaml.safe_load(block)) for block in blocks]
    assert [launch.mechanism.kind for launch in launches] == ["tree", "blt", "banded", "independent"]
    for launch in launches:
        mechanism = launch.mechanism
        joined = 8 if mechanism.kind == "independent" else mechanism.max_participations
        reached = accounting.guarantee(mechanism, mechanism.rounds, mechanism.min_sep, joined, (mechanism.delta,))
        if mechanism.kind == "independent":
            assert reached.rho <= demo["policy"]["max_rho"]
        else:
            assert reached.rho == pytest.approx(0.5, abs=2e-4)
