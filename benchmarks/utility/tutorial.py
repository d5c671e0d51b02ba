"""The tutorial to the letter by several keys: what its two launches decide and gain, each time in a new home.

.venv/stages/bin/python -m benchmarks.utility.tutorial [--homes 5]
"""

import argparse
import os
import tempfile
from pathlib import Path

from tests.helpers.launches.command import answered
from tests.helpers.launches.tutorial import TUTORIAL, Reader, blocks


def main() -> None:
    """Follow it, and print a row for each launch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--homes", type=int, default=5)
    homes = parser.parse_args().homes
    print("| home | launch | state | gain, its lower end | failed gates |\n|---:|---|---|---:|---|", flush=True)
    for number in range(1, homes + 1):
        with tempfile.TemporaryDirectory() as home:
            os.chdir(home)
            reader = Reader(Path(home))
            for block in blocks(TUTORIAL):
                reader.does(block)
            for row in answered(reader.home, "runs")["runs"]:
                status = answered(reader.home, "status", row["launch_id"])
                failed = ", ".join(gate["id"] for gate in status["failed_gates"]) or "none"
                low = 100 * row["top1_gain_low"]
                print(f"| {number} | {row['launch_id']} | {row['state']} | {low:+.1f} | {failed} |", flush=True)
            os.chdir(TUTORIAL.parent)


if __name__ == "__main__":
    main()
