"""Record what the seeded launches compute, into ``today.json``: run it when a change of the numbers is meant.

.venv/stages/bin/python tests/golden/make_today.py
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.golden import facts, seeded_launch
from tests.helpers.launches.command import LAUNCHED, tacit

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Launch, and write the file."""
    with tempfile.TemporaryDirectory() as scratch:
        computed = {name: recorded(Path(scratch) / name, name) for name in seeded_launch.FROZEN}
    (HERE / "today.json").write_text(json.dumps(computed, indent=1) + "\n", encoding="utf-8")


def recorded(home: Path, name: str) -> dict[str, dict[str, facts.Fact]]:
    """Facts of a launch, which is run in the folder ``home``."""
    home.mkdir()
    done = tacit(home, "launch", seeded_launch.begun(home, name).name)
    if done.returncode not in LAUNCHED:
        sys.exit(done.stdout + done.stderr)
    return facts.select(facts.of_run(seeded_launch.run_of(home, name), home / "runs" / "ledger.db"))


if __name__ == "__main__":
    main()
