"""The package of live experiments stands on top: launches without one know nothing of it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The block of the launch file; the command's place in the list of commands; the publication that starts its DAG.
NAME_IT = {"pipeline/launch/config.py", "pipeline/cli/app.py", "dags/stage_task.py"}
# Of the package itself; MLflow calls the list of a locale's launches an experiment too.
# A rehearsal, on top as well, leaves the block out.
_ITS_OWN = ("pipeline/experiments/", "dags/experiment.py", "pipeline/tracking/", "pipeline/rehearsal/")
_PRODUCT = ("tacit", "pipeline", "discovery", "federated", "evaluation", "reports", "pretrain", "dags", "docker")


def test_the_core_names_experiments_in_three_files() -> None:
    files = [path for top in (*_PRODUCT, "docs") for path in (ROOT / top).rglob("*") if path.suffix in (".py", ".j2")]
    names = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    assert len(names) > 400
    naming = {name for name, text in names.items() if re.search(r"experiment|\blive_", text, re.IGNORECASE)}
    assert {name for name in naming if not name.startswith(_ITS_OWN)} == NAME_IT
