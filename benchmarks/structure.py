"""Figures of the code's structure, of this checkout or of another one.

    python -m benchmarks.structure [--root CHECKOUT]

Rooms are the files and folders right inside a package, arrows the imports between them (also inside functions and for
types), and a floor stands above all that it imports. A circle is a group of modules that import one another. Nothing of
the checkout is imported: all is read from its source.

The price list has the lines of product and tests of each capability that a launch may leave out
(``benchmarks/capabilities.yaml``), and the launch files that use it. Its tests are those that mirror its files; what
others say of it in passing is not counted, so that prices are lower bounds.
"""

import argparse
import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

PACKAGES = ("pretrain", "discovery", "federated", "evaluation", "reports", "pipeline")
CAPABILITIES = Path(__file__).with_name("capabilities.yaml")
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
_FEW = 4  # launch files that are named
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
    print(f"\n{'capability':<54}{'product':>8}{'tests':>7}  used by")
    for price in prices(root):
        by = price.used_by
        used = "" if by is None else ", ".join(by) if 0 < len(by) < _FEW else f"{len(by) or 'no'} launch files"
        print(f"{price.capability:<54}{price.product:>8}{price.tests:>7}  {used}")


@dataclass(frozen=True)
class Price:
    """Lines of a capability.

    Attributes:
      used_by: launch files that ask for it; None for one that no field of a launch file asks for.
    """

    capability: str
    product: int
    tests: int
    used_by: tuple[str, ...] | None


def prices(root: Path) -> Iterator[Price]:
    """Lines of each capability, and the launch files that use it.

    Raises:
      ValueError: no file matches a pattern of this checkout's list.
    """
    launches = {path.stem: launch_fields(path) for path in sorted((root / "dags/launches").glob("*.yaml"))}
    for name, block in yaml.safe_load(CAPABILITIES.read_text(encoding="utf-8")).items():
        found = {path for pattern in block["files"] for path in root.glob(pattern) if path.suffix in (".py", ".yaml")}
        found = {path for path in found if path.relative_to(root).parts[0] in PRODUCT}
        if not found:
            raise ValueError(f"{CAPABILITIES.name}: {name}: no file matches {', '.join(block['files'])}")
        tests = {test for path in found for test in mirrors(root, path)}
        asks = [each for each, fields in launches.items() if asked(fields, block)] if "field" in block else None
        yield Price(name, total_lines(found), total_lines(tests), None if asks is None else tuple(asks))


def total_lines(paths: Iterable[Path]) -> int:
    """Lines of text files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def mirrors(root: Path, path: Path) -> Iterator[Path]:
    """Tests of a file of the product: those of its name, and those of its folder if it has the folder to itself."""
    folder = root / "tests" / path.relative_to(root).parent
    yield from folder.glob(f"test_{path.stem}.py")
    yield from folder.glob(f"{path.stem}/test_*.py")


def launch_fields(path: Path) -> Mapping[str, object]:
    """Fields of a launch file and of the file that it is like, by their full names."""
    own = yaml.safe_load(path.read_text(encoding="utf-8"))
    base = launch_fields(path.with_name(own["like"])) if "like" in own else {}
    fields = {**base, **dict(flat(own, ""))}
    return {name: value for name, value in fields.items() if own.get(name.partition(".")[0], 0) is not None}


def flat(block: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Fields of a block by their full names; a block is there as a field too."""
    for name, value in block.items():
        yield prefix + name, value
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")


def asked(fields: Mapping[str, object], capability: Mapping[str, object]) -> bool:
    """Return whether a launch file asks for a capability."""
    value = fields.get(str(capability["field"]))
    wanted = capability.get("is")
    if wanted == "more than one":
        return isinstance(value, int) and value > 1
    return value in wanted if isinstance(wanted, list) else value not in (None, False, [], ())


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
    return total_lines(paths)


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
