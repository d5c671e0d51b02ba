"""Record what version 0.1 computes, into this folder; how ``version-0.1.json`` and ``run-0.1/`` were made.

    git worktree add ../0.1 41cdf38
    python tests/golden/make_version_0_1.py ../0.1

Run with the python of the stages environment. It launches tiny made-up launches with that checkout's code:

version-0.1.json       config digests of launch files; losses, ranks, privacy amounts and digests of one seeded launch
LAUNCH-0.1.yaml        every launch file that it shipped, as it was
run-0.1/tiny-tree.yaml the launch file of a finished run, with noise keys in files as a real launch has them
run-0.1/run.tar.xz     runs/<launch id>/, public and private; runs/ledger.db; model/, as MLflow had it registered

The keys of that run are made up too, and written before it begins, so it can be made again to the bit but for
times. In the archive MLflow's ``MLmodel`` names a folder of the machine no more, and MLflow's database is left out.
"""

import argparse
import hashlib
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.golden import facts, seeded_launch

HERE = Path(__file__).resolve().parent
SEEDED = "blt"  # with restarts and adaptive clipping: the mechanism with the most state
FINISHED = "tree"
TEXT = "this is"
_SPENDING = ("discover", "fine_tune")
_ELSEWHERE = "file:///made-up"
# Facts of the seeded launch that a test compares, by how exactly they must be the same on any machine. The gate
# ``simulated`` went with version 0.1; ``released`` and ``audit_power`` came after it.
SELECTED = {
    "exact": (
        r"launch_id|ledger/(?!attempt/).*|gate/(?!(simulated|released|audit_power|attempts|typists)/).*/passed"
        r"|file/(ingest_public|build_vocabulary|discover|plan|fine_tune)/.*"
        r"|result/discover/(words_found|epsilon_(central|clones)|device_level_epsilon0)"
        r"|result/fine_tune/(rho|mu|epsilon|sensitivity_squared|rounds|observed_.*|violations|synthetic_.*)"
        r"|result/fine_tune/(participation|separation)_histogram/.*"
    ),
    "losses": r"result/(pretrain|adapt|fine_tune)/curve/\d+/(step|train_loss|validation_loss)"
    r"|result/(fine_tune/epsilon_pld|discover/epsilon_attack)",
    "ranks": r"result/audit/canaries/\d+/rank",
    "weights": r"weights/.*",
}


def main() -> None:
    """Make all four."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path, help="of version 0.1")
    checkout = parser.parse_args().checkout.resolve()
    for launch in (checkout / "dags" / "launches").glob("*.yaml"):
        shutil.copy(launch, HERE / f"{launch.stem}-0.1.yaml")
    with tempfile.TemporaryDirectory() as scratch:
        homes = [Path(scratch) / name for name in ("seeded", "finished")]
        for home in homes:
            home.mkdir()
            seeded_launch.write_data(home)
        recorded = {
            "made_by": "tests/golden/make_version_0_1.py with commit 41cdf38, version 0.1",
            "machine": facts.machine(),
            "config_digests": _digests(checkout, homes[0]),
            "seeded_launch": seeded_facts(checkout, homes[0]),
        }
        recorded["suggestions"] = _finished(checkout, homes[1], HERE / "run-0.1")
        (HERE / "version-0.1.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


def select(found: dict[str, facts.Fact]) -> dict[str, dict[str, facts.Fact]]:
    """Facts of ``facts.of_run`` by the kinds of ``SELECTED``."""
    return {
        kind: {name: value for name, value in found.items() if re.fullmatch(pattern, name)}
        for kind, pattern in SELECTED.items()
    }


def seeded_facts(checkout: Path, home: Path) -> dict[str, dict[str, facts.Fact]]:
    """What a seeded launch by a checkout's code comes to; ``home`` holds the made-up data."""
    file = seeded_launch.write_launch(home, SEEDED)
    _done(seeded_launch.tacit(checkout, home, ["launch", file.name]))
    return select(facts.of_run(seeded_launch.run_of(home, SEEDED), home / "runs" / "ledger.db"))


def _digests(checkout: Path, home: Path) -> dict[str, dict[str, str]]:
    """SHA-256 of every shipped launch file's text and the digest of its configuration; that of every tiny launch."""
    shipped = sorted((checkout / "dags" / "launches").glob("*.yaml"))
    tiny = [seeded_launch.write_launch(home, mechanism) for mechanism in seeded_launch.MECHANISMS]
    code = (
        "import sys; from pathlib import Path; from pipeline.config import config_digest, load_launch\n"
        "for name in sys.argv[1:]: sys.stdout.write(config_digest(load_launch(Path(name))) + '\\n')"
    )
    command = [sys.executable, "-c", code, *map(str, shipped + tiny)]
    done = subprocess.run(command, env={"PYTHONPATH": str(checkout)}, capture_output=True, text=True, check=True)
    return {
        path.name: {"text": hashlib.sha256(path.read_bytes()).hexdigest(), "config": digest}
        for path, digest in zip(shipped + tiny, done.stdout.split(), strict=True)
    }


def _finished(checkout: Path, home: Path, into: Path) -> list[str]:
    """Make ``run-0.1``; returns what its bundle suggests after ``TEXT``."""
    file = seeded_launch.write_launch(home, FINISHED, randomness="secure")
    checked = seeded_launch.tacit(checkout, home, ["check", file.name, "--json"])
    _done(checked)
    launch_id = json.loads(checked.stdout)["launch_id"]
    for stage in _SPENDING:
        key = home / "runs" / launch_id / "private" / stage / "key"
        key.parent.mkdir(parents=True, mode=0o700)
        key.write_bytes(hashlib.sha256(f"a made-up key for {stage}".encode()).digest())
        key.chmod(0o600)
    _done(seeded_launch.tacit(checkout, home, ["launch", file.name]))
    bundle = home / "runs" / launch_id / "public" / "publish" / "bundle"
    predicted = seeded_launch.tacit(checkout, home, ["predict", str(bundle), TEXT, "--json"])
    _done(predicted)
    (model,) = (home / "runs" / "mlflow-artifacts").rglob("MLmodel")
    model.write_text(
        re.sub(r"file://\S*(?=/mlflow-artifacts)", _ELSEWHERE, model.read_text(encoding="utf-8")), encoding="utf-8"
    )
    into.mkdir(exist_ok=True)
    shutil.copy(file, into)
    places = {f"runs/{launch_id}": home / "runs" / launch_id, "model": model.parent}
    _pack(into / "run.tar.xz", {**places, "runs/ledger.db": home / "runs" / "ledger.db"}, str(home))
    return json.loads(predicted.stdout)["words"]


def _pack(archive: Path, places: dict[str, Path], home: str) -> None:
    """Pack files and folders; refuses what names this machine. No owner, no time, no lock files."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for name, place in places.items():
            files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
            for path in files:
                if path.name == ".lock":
                    continue
                content = path.read_bytes()
                for told in _names_of_this_machine(home, content):
                    sys.exit(f"{path}: names this machine: {told}")
                info = tarfile.TarInfo(name if path == place else f"{name}/{path.relative_to(place).as_posix()}")
                info.size, info.mode = len(content), path.stat().st_mode & 0o777
                packed.addfile(info, io.BytesIO(content))


def _names_of_this_machine(home: str, content: bytes) -> list[str]:
    """What of this machine's names stands in a file; in binary ones two or three letters say nothing."""
    names = [home, socket.gethostname(), str(Path.home()), str(HERE.parents[1])]
    try:
        content.decode()
    except UnicodeDecodeError:
        names = [name for name in names if len(name) > 3]
    whole = rb"(?<![a-zA-Z0-9_])%s(?![a-zA-Z0-9_])"
    return [name for name in names if re.search(whole % re.escape(name.encode()), content)]


def _done(command: subprocess.CompletedProcess) -> None:
    if command.returncode:
        sys.exit(command.stdout + command.stderr)


if __name__ == "__main__":
    main()
