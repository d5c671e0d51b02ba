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
from tests.helpers.launches.installed import installed

pytestmark = pytest.mark.slow

# Opens of files that do not exist tell in the trace where a stage begins and ends.
_MARKED = """
from pipeline.run import runner
honest = runner._confined
def mark(what):
    try:
        open("/stage-" + what)
    except OSError:
        pass
def marked(ctx, *given):
    mark("begins/" + ctx.stage)
    try:
        return honest(ctx, *given)
    finally:
        mark("ends/" + ctx.stage)
runner._confined = marked
"""
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


def test_every_stage_opens_what_it_declares_and_no_other_file(strace: None, tmp_path: Path) -> None:
    seeded_launch.write_data(tmp_path)
    file = seeded_launch.write_launch(tmp_path, "central")
    installed(tmp_path, seeded_launch.population("central"))
    trace, checkout = tmp_path / "trace", Path(__file__).parents[2]
    traced = ("strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", "trace=open,openat,openat2", "-o", str(trace))
    done = seeded_launch.tacit(checkout, tmp_path, ["launch", file.name], fault=_MARKED, before=traced)
    assert done.returncode == 0, done.stderr
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
