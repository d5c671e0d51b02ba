"""The command of a figure with training: its arguments, the place where its runs are made, its lines."""

import argparse
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.papers import paper
from benchmarks.papers.lab import FULL, SMALL, Lab
from benchmarks.papers.runs import Run

RECALL = "top-1 recall on\nheld-out devices (%)"
LAST = "top-1 recall of the\nlast model (%)"
LOSS = "nats a target on\nheld-out devices"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Arguments of every figure with training."""
    made = paper.parser(doc)
    made.add_argument("folder", type=Path, nargs="?", help="has users/en_blogs.parquet; default: the packaged chat")
    made.add_argument("--work", type=Path, help="private: keeps runs and goes on with them; default: a temporary one")
    made.add_argument("--full", action="store_true", help="the papers' model and 1,000 rounds, for a GPU")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return made


@contextmanager
def lab(chosen: argparse.Namespace) -> Iterator[Lab]:
    """The place that the arguments ask for."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        size = FULL if chosen.full else SMALL
        text = "blogs" if chosen.folder else "chat"
        work = (chosen.work or Path(folder)) / f"{text}-{'full' if chosen.full else 'small'}"
        work.mkdir(parents=True, exist_ok=True)
        yield Lab(size, chosen.folder, work, chosen.device)


def carry_out(doc: str | None, module: str, made: Callable[[Lab], paper.Result]) -> None:
    """The whole of a figure's ``main``."""
    chosen = parser(doc).parse_args()
    with lab(chosen) as place:
        paper.write(made(place), command(module, chosen), chosen.results)


def command(module: str, chosen: argparse.Namespace) -> str:
    """The command as it was given, places left out."""
    parts = [f"python -m benchmarks.papers.{module}", "FOLDER" if chosen.folder else ""]
    parts += ["--full" if chosen.full else "", f"--device {chosen.device}" if chosen.device != "cpu" else ""]
    return " ".join(part for part in parts if part)


def curves(runs: Mapping[str, Run], looks: Sequence[tuple[int, str]], what: str = "recall") -> list[paper.Line]:
    """One line a run."""
    pairs = zip(runs.items(), looks, strict=True)
    return [paper.Line(name, *run.curve(what), *look) for (name, run), look in pairs]


def table(runs: Mapping[str, Run]) -> Sequence[Sequence[object]]:
    """Heads and a row a run."""
    return [
        ["arm", "top-1 %", "top-3 %", "words suggested first"],
        *([name, run.top1, run.top3, run.distinct] for name, run in runs.items()),
    ]
