"""Record what a seeded launch computes today, into ``today.json``: run it when a change of the numbers is meant.

    .venv/stages/bin/python tests/golden/make_today.py

Public training changed after version 0.1, and with it every loss, rank and weight that follows. So did who is held out
(by the population's secret, no longer by the launch's seed), and with it which devices say which words and train when:
the exact facts that follow are recorded here as ``moved``. All others, what a launch spends among them, are still held
against ``version-0.1.json``.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.golden import facts, seeded_launch
from tests.golden.make_version_0_1 import SEEDED, seeded_facts
from tests.helpers.launches.installed import installed

HERE = Path(__file__).resolve().parent
CHANGED = ("losses", "ranks", "weights")


def main() -> None:
    """Launch, and write the file."""
    with tempfile.TemporaryDirectory() as scratch:
        seeded_launch.write_data(Path(scratch))
        installed(Path(scratch), f"tiny-clients-{SEEDED}", simulated=True)
        computed = seeded_facts(HERE.parents[1], Path(scratch))
    before = json.loads((HERE / "version-0.1.json").read_text(encoding="utf-8"))["seeded_launch"]["exact"]
    moved = {name: fact for name, fact in computed["exact"].items() if fact != before.get(name)}
    recorded = {"machine": facts.machine(), "moved": moved} | {kind: computed[kind] for kind in CHANGED}
    (HERE / "today.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
