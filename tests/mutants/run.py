"""Seed each bug of the lists beside and below this file in a copy of the checkout; the tests named with it must fail.

``python -m tests.mutants.run`` runs all of them, ``python -m tests.mutants.run audits "float32 normals"`` a list or
a bug by name. Ends with 1 if a bug survives, or if a list no longer fits the code.
"""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import yaml

from tests.mutants import seeding

ROOT = Path(__file__).resolve().parents[2]
LISTS = sorted(Path(__file__).parent.rglob("*.yaml"))
PARALLEL = 2
TIMEOUT_SECONDS = 300
NO_TESTS = 5
# Imported once, before a process forks off for each bug: most of a short test's time. Nothing of this project.
PRELOADED = ("torch", "scipy.stats", "scipy.optimize", "pandas", "pyarrow.parquet", "sqlalchemy", "dp_accounting.pld")


@dataclass(frozen=True)
class Mutant:
    """One seeded bug.

    Attributes:
      subject: the list that it stands in.
      file: path of the code, from the root.
      function: where in the file, dotted; empty for the whole of it (``seeding``).
      original: an expression or statements that stand in the function exactly once; of a template, text.
      replacement: the bug.
      why: what would go wrong in the field.
      killed_by: tests of which one at least must fail, as pytest names them.
    """

    subject: str
    name: str
    file: str
    original: str
    replacement: str
    why: str
    killed_by: tuple[str, ...]
    function: str = ""

    def misfit(self) -> str:
        """Why the list is out of date; empty if it is not."""
        missing = [test for test in self.killed_by if not _there(test)]
        if missing:
            return f"no such test: {', '.join(missing)}"
        path, where = ROOT / self.file, f"{self.file}, function {self.function or '(the module)'}"
        if not path.is_file():
            return f"no such file: {self.file}"
        source = path.read_text(encoding="utf-8")
        python = path.suffix == ".py"
        code = self.function, self.original, self.replacement
        count = seeding.count(source, *code) if python else source.count(self.original)
        return "" if count == 1 else f"{where}: " + ("no such function" if count < 0 else f"{count} originals, not one")

    def seeded(self, source: str) -> str:
        """The file with the bug."""
        if self.file.endswith(".py"):
            return seeding.seeded(source, self.function, self.original, self.replacement)
        return source.replace(self.original, self.replacement)


def _there(test: str) -> bool:
    """Whether a test is there, as pytest names it: a file, and the function in it."""
    file, *names = test.partition("[")[0].split("::")
    path = ROOT / file
    return path.is_file() and all(f"def {name}(" in path.read_text(encoding="utf-8") for name in names)


def read() -> list[Mutant]:
    """All bugs of all lists."""
    return [
        Mutant(subject=path.stem, **(row | {"killed_by": tuple(row["killed_by"])}))
        for path in LISTS
        for row in yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    ]


def tracked() -> list[str]:
    """Files of the checkout, also those not yet committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def copy_to(folder: Path) -> Path:
    """The checkout as it is, uncommitted changes included."""
    for name in tracked():
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    return folder


def run_tests_in(folder: Path, tests: Sequence[str], kernels: Path | None) -> NoReturn:
    """Run tests in a copy and end this process with pytest's exit code; output goes to the copy's ``output``."""
    os.chdir(folder)
    with (folder / "output").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    # No bytecode: a mutant may have the original's size and second.
    os.environ |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    if kernels:
        os.environ["NUMBA_CACHE_DIR"] = str(kernels)
    # This checkout's own packages give way to the copy's.
    sys.path[:] = [str(folder), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    code = 3
    try:
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", f"--timeout={TIMEOUT_SECONDS}", *tests])
    finally:
        sys.stdout.flush()
        os._exit(int(code))


@dataclass
class Job:
    """Tests to run in a process of their own, in a copy that they have for themselves."""

    tests: Sequence[str]
    mutant: Mutant | None = None
    original: str = ""
    folder: Path = ROOT
    began: float = 0.0

    def start(self, folder: Path) -> int:
        """Seed the bug, if there is one, and fork; the process's number."""
        self.folder, self.began, kernels = folder, time.monotonic(), None
        if self.mutant:
            path = folder / self.mutant.file
            self.original = path.read_text(encoding="utf-8")
            path.write_text(self.mutant.seeded(self.original), encoding="utf-8")
            # Numba's cache does not see a change in a function that another file's calls: compile anew.
            kernels = folder / "kernels" if "numba" in self.original else None
        process = os.fork()
        if process == 0:
            run_tests_in(folder, self.tests, kernels)
        return process

    def end(self) -> tuple[str, float]:
        """Put the original back; what pytest said last, and seconds."""
        if self.mutant:
            (self.folder / self.mutant.file).write_text(self.original, encoding="utf-8")
            shutil.rmtree(self.folder / "kernels", ignore_errors=True)
        output = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
        return output.strip()[-2000:], time.monotonic() - self.began


def run(jobs: Iterable[Job], folders: list[Path]) -> Iterator[tuple[Job, int, str, float]]:
    """Each job with its exit code, pytest's last words and seconds, as they end; one at a time in each folder."""
    waiting, free, running = deque(jobs), list(folders), dict[int, Job]()
    while waiting or running:
        while waiting and free:
            job = waiting.popleft()
            running[job.start(free.pop())] = job
        process, status = os.wait()
        job = running.pop(process)
        free.append(job.folder)
        yield job, os.waitstatus_to_exitcode(status), *job.end()


def main(names: list[str]) -> int:
    """Run the bugs asked for, all if none is; 1 if one survives."""
    mutants = [mutant for mutant in read() if not names or {mutant.name, mutant.subject} & set(names)]
    if not mutants:
        print(f"no such bug or list: {', '.join(names)}; lists: {', '.join(path.stem for path in LISTS)}")
        return 1
    misfits = {mutant: misfit for mutant in mutants if (misfit := mutant.misfit())}
    for mutant, misfit in misfits.items():
        print(f"the list is out of date: {mutant.subject}: {mutant.name}: {misfit}")
    if misfits:
        return 1
    for module in PRELOADED:
        importlib.import_module(module)
    began, total, survivors, killed = time.monotonic(), len(mutants), [], Counter()
    with tempfile.TemporaryDirectory(prefix="tacit-mutants-") as place:
        folders = [copy_to(Path(place) / str(number)) for number in range(PARALLEL)]
        tests = sorted({test for mutant in mutants for test in mutant.killed_by})
        print(f"{total} seeded bugs; first the {len(tests)} tests that must find them, without any", flush=True)
        # Without a test pytest would run all.
        parts = [part for number in range(PARALLEL) if (part := tests[number::PARALLEL])]
        for _, code, output, _ in run([Job(part) for part in parts], folders):
            if code not in (0, NO_TESTS):
                print(output, "the tests fail without a bug already", sep="\n")
                return 1
        jobs = [Job(mutant.killed_by, mutant) for mutant in mutants]
        for number, (job, code, output, seconds) in enumerate(run(jobs, folders), start=1):
            # Only a test that failed: a module that does not even import is no bug that could slip through.
            if code == 1:
                killed[job.mutant.subject] += 1
            else:
                survivors.append((job.mutant, output))
            verdict = "killed" if code == 1 else "SURVIVES"
            print(f"{number:3}/{total} {verdict:8} {seconds:5.1f} s  {job.mutant.name}", flush=True)
    for mutant, output in survivors:
        print(f"\nSURVIVES {mutant.name} ({mutant.file}): {mutant.why}\n{output}")
    for subject, seeded in sorted(Counter(mutant.subject for mutant in mutants).items()):
        print(f"{subject:14} {killed[subject]:3} of {seeded:3} killed")
    seconds, cpu = time.monotonic() - began, sum(os.times()[:4])
    print(f"{total - len(survivors)} killed, {len(survivors)} survived in {seconds:.0f} s, {cpu:.0f} s of CPU")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
