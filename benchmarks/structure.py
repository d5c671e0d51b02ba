"""Figures of the code's structure, of this checkout or of another one.

    python -m benchmarks.structure [--root CHECKOUT]

Rooms are the files and folders right inside a package, arrows the imports between them (also inside functions and for
types), and a floor stands above all that it imports. A circle is a group of modules that import one another. Nothing of
the checkout is imported: all is read from its source.
"""

import argparse
import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGES = ("pretrain", "discovery", "federated", "evaluation", "reports", "pipeline")
PRODUCT = (*PACKAGES, "tacit", "dags", "docker")
_STAGES = (
    "ingest_public ingest_private pretrain plan discover build_vocabulary adapt count fine_tune audit ab_test "
    "audit_releases decide report publish"
)
STAGES = frozenset(_STAGES.split())
# Attributes of a launch file by which code asks which releases it makes.
_ASKED = re.compile(r"\.(trains|central_discovery|counts|evaluation)\b|\bisinstance\([^)]*(CentralConfig|TrieConfig)")
_BRANCH = re.compile(r"\b(if|elif|else|while|and|or|not|assert|is)\b")
_QUESTION = re.compile(r"(What|How|Who|Whom|Whether|Where)\b")
Arrows = Mapping[str, set[str]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="default: this checkout")
    root = parser.parse_args().root
    print(f"{'package':<12}{'files':>7}{'lines':>8}{'rooms':>7}{'floors':>8}{'arrows':>8}{'circles':>9}")
    for package in (name for name in PACKAGES if (root / name).is_dir()):
        arrows, circles = rooms(root, package), circles_of(files(root, package))
        counts = (len(sources(root, package)), lines(root, package), len(arrows), floors(arrows, circles_of(arrows)))
        print(
            f"{package:<12}{counts[0]:>7}{counts[1]:>8}{counts[2]:>7}{counts[3]:>8}{total(arrows):>8}{len(circles):>9}"
        )
    print()
    for name, places in (("product", PRODUCT), ("tests", ("tests",)), ("benchmarks", ("benchmarks",))):
        print(f"{name + ' lines':<44}{sum(lines(root, place) for place in places):>8}")
    tables = [each for place in PRODUCT for each in stage_tables(root, place)]
    outside = [each for each in tables if not each.startswith("pipeline/stages/")]
    amounts = {
        "tables keyed by stages outside stages/": outside,
        "lines that branch on releases": [each for place in PRODUCT for each in release_branches(root, place)],
        "literals that name a stage": [each for place in PRODUCT for each in stage_literals(root, place)],
    }
    for name, places in amounts.items():
        print(f"{name:<44}{len(places):>8}  in {len({each.split(':')[0] for each in places})} files")
    print(f"{'names of configuration':<44}{len(configuration(root)):>8}")
    asking, modules = asking_docstrings(root)
    print(f"{'modules whose docstring begins with a question':<44}{asking:>6}  of {modules}")


def sources(root: Path, place: str) -> list[Path]:
    """Python files of a folder."""
    return sorted((root / place).rglob("*.py")) if (root / place).is_dir() else []


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def lines(root: Path, place: str) -> int:
    """Lines of Python, templates, styles and scripts under a folder."""
    kinds = {".py", ".j2", ".html", ".css", ".js", ".sh"}
    paths = (path for path in (root / place).rglob("*") if path.is_file() and path.suffix in kinds)
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def rooms(root: Path, package: str) -> dict[str, set[str]]:
    """Rooms of a package and the rooms that each imports."""
    arrows = dict[str, set[str]]()
    for path in sources(root, package):
        inside = path.relative_to(root / package)
        if inside == Path("__init__.py"):
            continue
        room = inside.parts[0].removesuffix(".py")
        arrows.setdefault(room, set())
        for module in imported(parsed(path)):
            parts = module.split(".")
            if parts[0] == package and len(parts) > 1 and parts[1] != room:
                arrows[room].add(parts[1])
    return {room: found & arrows.keys() for room, found in arrows.items()}


def files(root: Path, package: str) -> dict[str, set[str]]:
    """Modules of a package and the modules of it that each imports."""
    paths = {".".join(path.relative_to(root).with_suffix("").parts): path for path in sources(root, package)}
    return {name: ({*imported(parsed(path))} & paths.keys()) - {name} for name, path in paths.items()}


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of all that a module imports, wherever."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def total(arrows: Arrows) -> int:
    """Number of arrows."""
    return sum(map(len, arrows.values()))


def reach(arrows: Arrows, room: str) -> set[str]:
    """Every room that a room imports, by whatever way."""
    seen, todo = set[str](), [room]
    while todo:
        for other in arrows[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return seen


def circles_of(arrows: Arrows) -> list[frozenset[str]]:
    """Groups of rooms that import one another."""
    reached = {room: reach(arrows, room) for room in arrows}
    groups = {
        frozenset(other for other in arrows if other in reached[room] and room in reached[other]) for room in arrows
    }
    return sorted((group for group in groups if group), key=sorted)


def floors(arrows: Arrows, circles: list[frozenset[str]]) -> int:
    """Length of the longest way down, where a circle is one room."""
    of = {room: group for group in circles for room in group}

    @cache
    def floor(room: str) -> int:
        together = of.get(room, frozenset({room}))
        below = {other for each in together for other in arrows[each]} - together
        return 1 + max((floor(other) for other in below), default=0)

    return max(map(floor, arrows), default=0)


def stage_tables(root: Path, place: str) -> Iterator[str]:
    """Places of tuples, lists, sets and dicts that name two stages or more."""
    for path in sources(root, place):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Dict):
                found = [key for key in node.keys if key is not None]
            elif isinstance(node, ast.Tuple | ast.List | ast.Set):
                found = list(node.elts)
            else:
                continue
            names = {each.value for each in found if isinstance(each, ast.Constant) and each.value in STAGES}
            if len(names) > 1:
                yield f"{path.relative_to(root)}:{node.lineno}"


def stage_literals(root: Path, place: str) -> Iterator[str]:
    """The file of each literal that is the name of a stage."""
    for path in sources(root, place):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in STAGES:
                yield str(path.relative_to(root))


def release_branches(root: Path, place: str) -> Iterator[str]:
    """Places of lines that ask which releases a launch makes, and do something else for it."""
    templates = sorted((root / place).rglob("*.j2")) + sorted((root / place).rglob("templates/**/*.*"))
    for path in dict.fromkeys([*sources(root, place), *templates]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            code = line.partition("#")[0]
            if code.lstrip().startswith(("from ", "import ")):
                continue
            if _ASKED.search(code) and _BRANCH.search(code):
                yield f"{path.relative_to(root)}:{number}"


def configuration(root: Path) -> set[str]:
    """Names of fields in the blocks of the launch file: annotated fields of classes derived from ``Config``."""
    classes = dict[str, tuple[set[str], set[str]]]()
    paths = [path for place in PACKAGES for path in sources(root, place)]
    paths = [path for path in paths if {"config", "policy"} & {*path.parts, path.stem}]
    for node in (node for path in set(paths) for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)):
        bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
        fields = {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign)
            and isinstance(each.target, ast.Name)
            and "ClassVar" not in ast.unparse(each)
        }
        classes[node.name] = bases, fields
    derived, grew = {"Config"}, True
    while grew:
        more = {name for name, (bases, _) in classes.items() if bases & derived} - derived
        derived, grew = derived | more, bool(more)
    return {f"{name}.{field}" for name in derived & classes.keys() for field in classes[name][1]}


def asking_docstrings(root: Path) -> tuple[int, int]:
    """Modules whose docstring begins with a question word, and all that have a docstring."""
    said = [ast.get_docstring(parsed(path)) for place in PRODUCT for path in sources(root, place)]
    stated = [each for each in said if each]
    return sum(bool(_QUESTION.match(each)) for each in stated), len(stated)


if __name__ == "__main__":
    main()
