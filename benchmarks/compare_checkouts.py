"""Do two checkouts compute the same? One seeded tiny launch for each mechanism with each, compared fact by fact.

    python -m benchmarks.compare_checkouts BEFORE_DIR AFTER_DIR [--launches tree,blt] [--python PATH]

Compared exactly: every tensor of the pretrained, adapted and fine-tuned model, vocabularies, mechanism file,
canaries, ONNX graphs, the last checkpoint, participation records, ledger amounts, gates, and every number in the
stages' results and in the disclosure. Times, durations and paths are not. What only one side has is a difference,
but for the echo of the configuration, where it is told and tolerated.

Exit code 0: nothing differs; 1: something does; 2: a launch failed. A minute for each checkout.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

# The launch is the one of the golden tests, of this checkout, whatever the two that are compared hold.
from tests.golden import facts, seeded_launch

# What a launch file said, told again: fields that became constants may be missing here, on one side.
CONFIGURATION = (
    r"disclosure/mechanism/(parameters|local_training|server)/",
    r"disclosure/discovery/(projected_words)$",
)
_SHOWN = 40


def main() -> int:
    """Run, compare, print."""
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="compare-checkouts-") as scratch:
        sides = []
        for side in ("before", "after"):
            home = args.keep / side if args.keep else Path(scratch) / side
            home.mkdir(parents=True)
            began = time.monotonic()
            failed = launch_all(getattr(args, side), home, args.launches, args.python)
            if failed:
                print(f"{side}: {failed}")
                return 2
            print(f"{side}: {len(args.launches)} launches in {time.monotonic() - began:.0f} s")
            sides.append(home)
        differ = [report(mechanism, sides[0], sides[1], args.allow) for mechanism in args.launches]
    print("DIFFERENT" if any(differ) else "the same")
    return int(any(differ))


def launch_all(checkout: Path, home: Path, mechanisms: Sequence[str], python: str) -> str:
    """Write data and launch files into ``home`` and launch each; returns what went wrong, or nothing."""
    seeded_launch.write_data(home)
    files = [seeded_launch.write_launch(home, name, typing=name == "tree").name for name in mechanisms]
    commands = [("--quiet", "launch", file, "--json") for file in files]
    register = ("ledger", "register", "--max-rho", "1000", "--max-epsilon", "100000", "--delta", "0.1")
    commands = [("ledger", "init"), *((*register, seeded_launch.population(name)) for name in mechanisms), *commands]
    done = seeded_launch.tacit(checkout.resolve(), home, *commands, python=python)
    return "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


def report(mechanism: str, before: Path, after: Path, allowed: Sequence[str]) -> bool:
    """Print how one mechanism's launch compares; returns whether it differs."""
    first, second = (
        facts.of_run(seeded_launch.run_of(home, mechanism), home / "runs" / "ledger.db") for home in (before, after)
    )
    common = first.keys() & second.keys()
    changed = sorted(name for name in common if not same(first[name], second[name]))
    alone = dict.fromkeys(first.keys() - common, "before") | dict.fromkeys(second.keys() - common, "after")
    tolerated = {name for name in alone if any(re.match(pattern, name) for pattern in (*CONFIGURATION, *allowed))}
    one_sided = sorted(alone.keys() - tolerated)
    counts = [Counter(name.split("/")[0] for name in names) for names in (common, changed, one_sided, tolerated)]
    print(f"\n{mechanism:<14}{'compared':>10}{'differ':>10}{'one side':>10}{'tolerated':>11}")
    for kind in sorted(set().union(*counts)):
        row = [count[kind] for count in counts]
        print(f"  {kind:<12}{row[0]:>10}{row[1]:>10}{row[2]:>10}{row[3]:>11}")
    _list("differs", [f"{name}: {first[name]} -> {second[name]}" for name in changed])
    _list("on one side", [f"{name}: only {alone[name]}" for name in one_sided])
    _list("configuration, tolerated", [f"{name}: only {alone[name]}" for name in sorted(tolerated)])
    return bool(changed or one_sided)


def same(first: facts.Fact, second: facts.Fact) -> bool:
    """Equal in type and bits; 1 and 1.0 are one number in JSON, and not-a-number equals itself."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    return first == second or (first != first and second != second)


def _list(title: str, lines: list[str]) -> None:
    if lines:
        print(f"  {title}:")
        print("\n".join(f"    {line}" for line in lines[:_SHOWN]))
        if len(lines) > _SHOWN:
            print(f"    and {len(lines) - _SHOWN} more")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("--python", default=sys.executable, help="of the stages environment; default: this one")
    parser.add_argument(
        "--launches",
        type=lambda text: text.split(","),
        default=list(seeded_launch.LAUNCHES),
        help=f"comma-separated, of {', '.join(seeded_launch.LAUNCHES)}; default: all",
    )
    parser.add_argument(
        "--allow", action="append", default=[], help="regular expression of facts that may be on one side only"
    )
    parser.add_argument("--keep", type=Path, help="a new folder for both sides' runs; default: a temporary one")
    args = parser.parse_args()
    unknown = sorted(set(args.launches) - seeded_launch.LAUNCHES.keys())
    if unknown:
        parser.error(f"--launches: {', '.join(unknown)}: choose of {', '.join(seeded_launch.LAUNCHES)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
