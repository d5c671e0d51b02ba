"""The documents name only what exists, and every command's help shows an example."""

import functools
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from federated.accounting.gaussian import epsilon_of_rho
from pipeline.cli.app import app
from pipeline.ground.errors import ENDINGS
from pipeline.launch.config import load_launch
from pipeline.publication.explanation import field_words
from pipeline.publication.gates.words import GATES
from reports.losses import guesser, strength, up
from tests.helpers.launches.checkout import tracked
from tests.helpers.launches.command import ended
from tests.helpers.reports.browser import tab

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "PITFALLS.md", "SECURITY.md", "federated/README.md", "docker/README.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
)
GENERATED = {ROOT / "docs" / "reference" / f"{name}.md" for name in ("commands", "fields", "gates")}


@functools.cache
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


def test_environment_variables_are_documented_and_no_others() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(TACIT_[A-Z_]+)`", page))
    sources = [path for path in tracked() if path.relative_to(ROOT).parts[0] not in ("tests", "docs", "benchmarks")]
    text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in sources if path.suffix != ".md")
    read = set(re.findall(r"\bTACIT_[A-Z_]+\b", text))
    # What is not in the page may be the beginning of names that are.
    assert {name for name in read - named if not any(each.startswith(f"{name}_") for each in named)} == set()
    assert named <= read


def test_a_shell_of_the_project_has_its_commands() -> None:
    command = ["make", "-o", "setup", "shell", "SHELL=/bin/sh"]
    done = subprocess.run(command, cwd=ROOT, input="command -v tacit\n", capture_output=True, text=True, check=True)
    assert done.stdout == f"{ROOT}/.venv/stages/bin/tacit\n"


def test_a_build_is_sent_nothing_but_what_images_copy() -> None:
    """Private runs, the ledger and secrets lie beside the code: what is sent is named, not what is left out."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {
        word
        for path in (ROOT / "docker").glob("*Dockerfile")
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for word in line.split()
    }
    assert copied == sent


def test_readme_gives_two_commands_first() -> None:
    block = re.search(r"```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block[1].strip().splitlines()] == ["make launch", "make test"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        to = (path.parent / target).resolve()
        assert to.exists() or to in GENERATED, target


def test_every_picture_is_shown_and_one_command_takes_it() -> None:
    images = ROOT / "docs" / "images"
    command = (ROOT / "benchmarks" / "pictures.py").read_text(encoding="utf-8")
    shown = "".join((ROOT / document).read_text(encoding="utf-8") for document in DOCUMENTS)
    for path in images.glob("*.png"):
        assert f'"{path.stem}"' in command, path.name
        assert f"images/{path.name})" in shown, path.name


def test_the_tree_in_the_documents_is_the_tree() -> None:
    text = (ROOT / "docs" / "tree.md").read_text(encoding="utf-8")
    named, package = set(), ""
    for indent, name in re.findall(r"^( {0,2})([a-z_]+)/ ", text, flags=re.MULTILINE):
        package = package if indent else name
        named.add(f"{package}/{name}" if indent else name)
    packages = {path.parent.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/__init__.py")}
    folders = {str(folder) for folder in packages if folder.parts[0] != "tests" and len(folder.parts) < 3}
    assert named == folders | {"dags", "docker", "docs", "benchmarks", "tests"}


def test_every_exit_code_has_its_heading_where_explain_leads() -> None:
    page = (ROOT / "docs" / "exit_codes.md").read_text(encoding="utf-8")
    codes = [int(code) for code in re.findall(r"^## (\d+): ", page, flags=re.MULTILINE)]
    assert codes == sorted(ENDINGS)
    for code, ending in ENDINGS.items():
        said = ended("explain", str(code)).stdout
        assert all(each in said for each in (ending.means, ending.then, "docs/exit_codes.md"))
    help_text = (ROOT / "pipeline" / "cli" / "app.py").read_text(encoding="utf-8").split('"""')[1]
    assert set(codes) == {int(code) for code in re.findall(r"\b(\d+) (?:done|permanent|temporary|a )", help_text)}


def test_the_table_of_epsilons_is_computed() -> None:
    text = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([0-9.]+) \| (.*) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 6
    for written, rest in rows:
        rho = float(written)
        small, large = (epsilon_of_rho(rho, delta) for delta in (1e-6, 1e-10))
        mu = math.sqrt(2 * rho)
        assert rest.split(" | ") == [up(mu), up(small), up(large), guesser(mu, 0.01), strength(small)]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents as a site, as ``make docs`` builds it: a broken link is an error."""
    site = tmp_path_factory.mktemp("documents")
    command = [Path(sys.executable).with_name("mkdocs"), "--quiet", "build", "--strict", "--site-dir", site]
    if not command[0].is_file():
        pytest.skip("mkdocs is not installed: make tools")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site


@pytest.mark.slow
def test_the_site_of_documents_has_the_reference_and_asks_nobody_for_anything(documents: Path) -> None:
    pages = {path.relative_to(documents).as_posix(): path.read_text("utf-8") for path in documents.rglob("*.html")}
    fields = {row.path.replace(".", "") for row in field_words() if "." in row.path}
    assert fields - set(re.findall(r'id="(\w+)"', pages["reference/fields.html"])) == set()
    assert set(GATES) - set(re.findall(r'id="(\w+)"', pages["reference/gates.html"])) == set()
    assert all(f">tacit {name}<" in pages["reference/commands.html"] for name in commands() if name != "ready")
    assert "federated.mechanisms.blt" in pages["reference/python.html"]
    asked = {
        (name, address)
        for name, text in pages.items()
        for address in re.findall(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="([^"]+)"', text)
        if "//" in address
    }
    assert asked == set()


@pytest.mark.slow
@pytest.mark.browser
def test_documents_fit_a_phone_and_can_be_searched_without_a_server(documents: Path, chromium: str, axe: Path) -> None:
    with tab(chromium) as page:
        for name, width in (("index", 390), ("tutorial", 390), ("reference/fields", 390), ("index", 1280)):
            page.open(documents / f"{name}.html", width, dark=width < 600)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.complaints == []
        assert page.violations(axe) == []
        page.open(documents / "index.html", 1280)
        page.complaints.clear()  # axe-core asks for style sheets in a way that files refuse
        page.evaluate(
            "(field => { field.focus(); field.value = 'canary rank'; field.dispatchEvent(new Event('input',"
            " {bubbles: true})); field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})) })"
            "(document.querySelector('.md-search__input'))"
        )
        found = "document.querySelectorAll('.md-search-result__item').length"
        page.evaluate(
            f"new Promise(done => {{ const look = () => {found} ? done() : setTimeout(look, 50); look();"
            " setTimeout(done, 20000) })"
        )
        assert page.evaluate(found) > 0
        assert page.complaints == []


def test_the_guide_to_containers_registers_the_budget_of_its_launch_file() -> None:
    text = (ROOT / "docker" / "README.md").read_text(encoding="utf-8")
    ((name, line),) = re.findall(r"ledger register (\S+) (--.*)", text)
    options = line.split()
    said = dict(zip(options[::2], options[1::2], strict=True))
    policy = load_launch(ROOT / "dags" / "launches" / f"{name}.yaml").policy
    assert {option: float(said[option]) for option in said if option != "--reviewer"} == {
        "--max-rho": policy.budget.rho,
        "--window-days": policy.budget.days,
        "--delta": policy.population_delta,
        "--max-words-epsilon": policy.population_max_words_epsilon,
        "--max-discovery-epsilon": policy.population_max_discovery_epsilon,
    }


def test_every_guard_of_a_pitfall_is_a_test() -> None:
    guards = re.findall(r"^\|.*\| ([^|]+) \|$", (ROOT / "PITFALLS.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = [name for guard in guards for name in re.findall(r"`(\w+)`", guard)]
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    assert len(named) > 20
    assert set(named) - tests == set()


def test_the_launch_files_that_the_guide_names_show_what_it_says() -> None:
    guide = (ROOT / "federated/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`.*`([\w-]+)\.yaml` \|$", guide, flags=re.MULTILINE)
    launches = {name: load_launch(ROOT / "dags" / "launches" / f"{name}.yaml").mechanism for _, name in rows}
    assert len(rows) >= 8
    for word, name in rows:
        assert word == launches[name].kind or getattr(launches[name], word), f"{name}.yaml shows no {word}"
