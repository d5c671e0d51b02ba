"""Other tools beside tacit, from claims that are data: the tables of README.md and docs/peers.md.

    python -m benchmarks.comparison                       paste the tables
    python -m benchmarks.comparison --packages FOLDER     first hold each claim against the peers' wheels in FOLDER

``benchmarks/comparison.yaml`` has a claim for each peer and capability, the version looked at, its source and the day.
A claim that a peer has something names a file of its package and what stands there; one that it has not names a
pattern that no source file of the package matches, tests left out.
"""

import argparse
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = Path(__file__).with_suffix(".yaml")
HEAD = "| | tacit |"


def claims(path: Path = CLAIMS) -> dict[str, Any]:
    """The data.

    Raises:
      ValueError: a claim is missing, double, of an unknown peer or capability, or without evidence.
    """
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    named = [(claim["peer"], claim["capability"]) for claim in data["claims"]]
    wanted = [(peer, capability) for peer in data["peers"] for capability in data["capabilities"]]
    if sorted(named) != sorted(wanted):
        wrong = sorted({*named} ^ {*wanted}) or sorted({each for each in named if named.count(each) > 1})
        raise ValueError(f"claims: one of each peer and capability; missing, unknown or double: {wrong}")
    for claim in data["claims"]:
        if not ({"file", "shows"} <= claim.keys() or "source" in claim or (not claim["has"] and "absent" in claim)):
            raise ValueError(
                f"claims: {claim['peer']}, {claim['capability']}: no evidence; add file and shows, or absent"
            )
        if claim["has"] and "says" not in claim:
            raise ValueError(f"claims: {claim['peer']}, {claim['capability']}: says is missing")
    return data


def cell(claim: Mapping[str, Any]) -> str:
    """A claim in a table."""
    return claim.get("says", "–")


def wide(data: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    """Capabilities by peers."""
    by_name = {(claim["peer"], claim["capability"]): claim for claim in data["claims"]}
    lines = [f"{HEAD} {' | '.join(peers)} |", f"|{'---|' * (len(peers) + 2)}"]
    for capability, ours in data["capabilities"].items():
        cells = [cell(by_name[peer, capability]) for peer in peers]
        lines.append(f"| {' | '.join([capability, ours, *cells])} |")
    return lines


def evidence(data: Mapping[str, Any]) -> Iterator[str]:
    """Every claim with its version, day and source."""
    yield "| peer | capability | has it | version | source | seen in | looked at |"
    yield "|---|---|---|---|---|---|---|"
    for claim in data["claims"]:
        peer = data["peers"][claim["peer"]]
        source = claim.get("source", peer["source"])
        absent = f"no match of `{claim.get('absent', '')}`".replace("|", "\\|")
        seen = f"`{claim['file']}`" if "file" in claim else (absent if "absent" in claim else "the repository")
        has = f"yes: {claim['says']}" if claim["has"] else f"no{': ' + claim['says'] if 'says' in claim else ''}"
        version = f"{peer['package']} {peer['version']}"
        row = [claim["peer"], claim["capability"], has, version, f"<{source}>", seen, str(data["looked"])]
        yield f"| {' | '.join(row)} |"


def pasted(text: str, head: str, table: Sequence[str]) -> str:
    """A document with a table replaced, which is known by its head's beginning."""
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith(head))
    last = next(number for number in range(first, len(lines)) if not lines[number].startswith("|"))
    return "\n".join([*lines[:first], *table, *lines[last:]])


def documents(data: Mapping[str, Any]) -> dict[Path, str]:
    """README and the page with their tables as the data has them."""
    short = [name for name, peer in data["peers"].items() if peer["readme"]]
    readme, page = ROOT / "README.md", ROOT / "docs" / "peers.md"
    made = pasted(page.read_text(encoding="utf-8"), HEAD, wide(data, list(data["peers"])))
    return {
        readme: pasted(readme.read_text(encoding="utf-8"), HEAD, wide(data, short)),
        page: pasted(made, "| peer | capability |", list(evidence(data))),
    }


def refuted(data: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield claims that the wheels in a folder do not bear out."""
    for name, peer in data["peers"].items():
        (wheel,) = folder.glob(f"{peer['package']}-{peer['version']}-*.whl")
        with zipfile.ZipFile(wheel) as packed:
            texts = {
                "METADATA" if each.endswith(".dist-info/METADATA") else each: packed.read(each).decode(errors="replace")
                for each in packed.namelist()
                if each.endswith((".py", ".dist-info/METADATA"))
            }
        for claim in (each for each in data["claims"] if each["peer"] == name):
            said = f"{name}, {claim['capability']}"
            if "file" in claim and claim["shows"] not in texts.get(claim["file"], ""):
                yield f"{said}: {claim['file']} does not show {claim['shows']!r}"
            for file, text in texts.items():
                tests = file.startswith(("tests/", "docs/")) or "_test" in file or "/tests/" in file
                if "absent" in claim and file.endswith(".py") and not tests:
                    yield from (
                        f"{said}: {file}: {found[0]!r}" for found in re.finditer(f"(?i){claim['absent']}", text)
                    )


def main() -> None:
    """Hold, paste."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, metavar="FOLDER", help="has the peers' wheels")
    chosen = parser.parse_args()
    data = claims()
    if chosen.packages and (wrong := list(refuted(data, chosen.packages))):
        raise SystemExit("\n".join(wrong))
    for path, text in documents(data).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
