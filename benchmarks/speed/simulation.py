"""Simulation speed compared with the reference kernel, pfl 0.6.0 and Flower 1.41.

    .venv/stages/bin/python -m benchmarks.speed.simulation [--turns 3] [--peers pfl,flower] [--cases tiny,...]

Same weights, rows, batches, learning rate and clip. Everybody runs one round of the same devices in turn, on
one thread; figures are medians of CPU time, the first turn left out. Each peer lives in an
environment of its own under ``build/``, made at the first run. Flower's figure is that of its whole
process tree.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.speed.workloads import CASES, CLIP, RATE, Case, clipped_sum, cpu_seconds, typed
from federated.local_training.rows import DeviceRows
from pretrain.kernel.threads import one_torch_thread
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from tests.federated.reference_sgd import clipped_sum as plainly

ROOT = Path(__file__).parents[2]
PEERS = {
    "pfl": ("pfl_peer.py", ["pfl[pytorch]==0.6.0", "torch==2.13.0"]),
    "flower": ("flower_peer.py", ["flwr[simulation]==1.41.0", "ray==2.55.1", "torch==2.13.0", "psutil"]),
}


class Peer:
    """A peer's process, which runs a round when told to."""

    def __init__(self, name: str, workload: Path) -> None:
        script, _ = PEERS[name]
        python = environment(name)
        peers = ROOT / "benchmarks" / "peers"
        settings = ["OMP_NUM_THREADS=1", "FLWR_TELEMETRY_ENABLED=0", f"PYTHONPATH={peers}"]
        self.log = (ROOT / "build" / f"bench-{name}.log").open("w")
        self.process = subprocess.Popen(
            ["env", *settings, str(python), str(peers / script), str(workload)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=workload.parent,
        )
        self.read()

    def read(self) -> float | None:
        """CPU seconds of the last round."""
        for line in self.process.stdout or ():
            if line.startswith('{"seconds"'):
                return json.loads(line)["seconds"]
        raise OSError(f"a peer ended; see {self.log.name}")

    def round(self) -> float:
        """Run one round."""
        self.tell("go")
        return float(self.read() or 0.0)

    def tell(self, word: str) -> None:
        """Send a line."""
        if self.process.stdin is None:
            raise OSError("a peer has no input")
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """No further round."""
        self.tell("stop")
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def environment(name: str) -> Path:
    """The peer's own Python; OSError if its packages cannot be had."""
    home = ROOT / "build" / f"bench-{name}"
    done = home / ".installed"
    if not done.exists():
        print(f"making {home.relative_to(ROOT)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        found = subprocess.run(
            [home / "bin/pip", "install", "-q", *PEERS[name][1]], check=False, capture_output=True, text=True
        )
        if found.returncode:
            raise OSError(f"{name} cannot be installed: {found.stderr.strip().splitlines()[-1]}")
        done.touch()
    return home / "bin/python"


def write_workload(path: Path, model: KeyboardLM, devices: list[DeviceRows], batch: int) -> None:
    """Write the file that a peer reads."""
    settings = {"devices": len(devices), "clip": CLIP, "rate": RATE, "batch": batch}
    arrays = {f"w.{name}": parameter.detach().numpy() for name, parameter in model.named_parameters()}
    for number, rows in enumerate(devices):
        arrays |= {f"inputs.{number}": rows.inputs_RT, f"targets.{number}": rows.targets_RT}
    np.savez(path, settings=np.array(json.dumps(settings)), **arrays)


def sgemm_peak() -> float:
    """FLOP/s of one thread in a product of 1024 x 1024."""
    one, other = torch.randn(2, 1024, 1024)
    return 2 * 1024**3 / min(cpu_seconds(lambda: one @ other) for _ in range(8))


def compare(case: Case, peers: list[str], turns: int) -> None:
    """Print the table of one workload."""
    model, devices, local = build_model(case.model, case.vocabulary, 0), typed(case), case.training
    (ROOT / "build").mkdir(exist_ok=True)
    path = ROOT / "build" / f"bench-{case.vocabulary}-{case.words}.npz"
    write_workload(path, model, devices, case.batch)
    running: dict[str, Peer] = {}
    for name in peers:
        try:
            running[name] = Peer(name, path)
        except OSError as error:
            print(f"{name}: not measured: {error}")
    acts = {
        "fast kernel": lambda: cpu_seconds(lambda: clipped_sum(model, devices, local, CLIP, case.chunk)),
        "reference": lambda: cpu_seconds(lambda: plainly(model, devices, local, CLIP, 1, kernel="reference")),
        **{name: peer.round for name, peer in running.items()},
    }
    spent: dict[str, list[float]] = {name: [] for name in acts}
    peaks = []
    for turn in range(turns + 1):
        peaks.append(sgemm_peak())
        for name, act in acts.items():
            seconds = act()
            if turn:
                spent[name].append(seconds)
    for peer in running.values():
        peer.stop()
    words = sum(int(np.count_nonzero(rows.targets_RT)) for rows in devices)
    embedding, hidden = case.model.embedding_dim, case.model.hidden_dim
    flop = 6 * words * (2 * embedding * 3 * hidden + hidden * embedding + embedding * case.vocabulary)
    fast = statistics.median(spent["fast kernel"])
    peak = statistics.median(peaks)
    print(f"\n{case.name}: {len(devices)} devices, {words} words, sgemm peak {peak / 1e9:.0f} GFLOP/s")
    print(f"{'':<14}{'devices/s':>11}{'words/s':>11}{'of peak':>9}{'fast is':>9}")
    for name, seen in spent.items():
        median = statistics.median(seen)
        share = flop / median / peak
        print(f"{name:<14}{len(devices) / median:>11.1f}{words / median:>11.0f}{share:>9.1%}{median / fast:>8.1f}x")


def main() -> None:
    """Print a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peers", default="pfl,flower")
    parser.add_argument("--cases", default="tiny,100,1600")
    options = parser.parse_args()
    with one_torch_thread():
        for name in options.cases.split(","):
            compare(CASES[name], [peer for peer in options.peers.split(",") if peer], options.turns)


if __name__ == "__main__":
    main()
