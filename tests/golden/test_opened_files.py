"""Files that the stages of a launch open, as the kernel sees them: also those that Arrow, SQLite and torch open."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.ground import settings as settings_module
from pipeline.launch.config import load_kept_launch
from pipeline.run.known import run_folder
from pipeline.run.stage import access
from pipeline.stages.graph import STAGES
from tests.golden import seeded_launch
from tests.helpers.launches.command import LAUNCHED
from tests.helpers.processes.crash_points import traced
from tests.helpers.processes.forked import Forked

pytestmark = pytest.mark.slow

_OPEN = re.compile(r'open(?:at2?)?\((?:AT_FDCWD|\d+)?(?:<([^>]*)>)?(?:, )?"([^"]*)", (.*)= (-?\d+)')


def opened(trace: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield the stage, the path and whether it is listed, of every file that was opened while a stage ran."""
    stage = ""
    for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
        found = _OPEN.search(line)
        if found is None:
            continue
        folder, name, flags, descriptor = found.groups()
        path = name if name.startswith("/") else f"{folder}/{name}"
        if path.startswith("/stage-"):
            stage = path.rpartition("/")[2] if path.startswith("/stage-begins/") else ""
        elif stage and int(descriptor) >= 0:
            yield stage, path, "O_DIRECTORY" in flags


def test_every_stage_opens_what_it_declares_and_no_other_file(strace: None, tmp_path: Path, forked: Forked) -> None:
    file, trace = seeded_launch.begun(tmp_path, "central"), tmp_path / "trace"
    command = [str(forked.python), "-m", "tests.golden.faults", "marked", "launch", file.name]
    done, _ = traced(tmp_path, Path(command[0]), command[1:], ["-y", "-e", "trace=open,openat,openat2"], trace)
    assert done.code in LAUNCHED, done.output
    run = seeded_launch.run_of(tmp_path, "central")
    here = settings_module.load({"TACIT_HOME": str(tmp_path)})
    config = load_kept_launch(run / "public" / "launch" / "launch.json")
    paths = [str(tmp_path / path) for path in config.private_text.paths]
    config = config.model_copy(update={"private_text": config.private_text.model_copy(update={"paths": paths})})
    rules = {name: access(config, run_folder(here, run.name), here, name, STAGES) for name in STAGES}
    seen = list(opened(trace))
    assert {stage for stage, _, _ in seen} == {path.parent.name for path in run.glob("public/*/result.json")}
    text = str(tmp_path / "clients.parquet")  # which Arrow opens, and Python does not
    assert {stage for stage, path, _ in seen if path == text} == {"ingest_private"}
    # Folders are listed by the runner too, which looks for what it must watch.
    opens = [(stage, path) for stage, path, listed in seen if not listed]
    assert [(stage, path) for stage, path in opens if rules[stage].forbids(path, listing=False)] == []
