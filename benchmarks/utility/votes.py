"""Whether a private vote over public sentences helps, at equal total rho, judged on held-out people.

OMP_NUM_THREADS=1 python -m benchmarks.utility.votes [FOLDER] [--only chat|blogs ...] [--draws 3] [--most TRAININGS]
    [--work runs/private_training]

FOLDER as of ``benchmarks.private_training``, whose populations and starts these are (WORK is shared with it). Every arm
is trained publicly for the same further steps from the same start: on public text as it is, or as devices' votes draw
it again. Then it is trained on devices with banded noise, or has counts, with what is left of rho 0.5. Rows go to
WORK/votes.jsonl as they are measured; what is there is not measured again. Noise is seeded: nobody is protected.
"""

import argparse
import copy
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.private_training.populations import People, people
from benchmarks.private_training.settings import RHO, SETTINGS, run_of
from benchmarks.private_training.training import trained
from benchmarks.utility.recalls import Recalls, recalls
from evaluation.arms.arm import PublicNGram, neural
from federated.votes import release
from federated.votes.clusters import GROUPS, group
from pipeline.config import LaunchConfig, load_launch
from pretrain import selection
from pretrain.config import PretrainConfig
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.train import pretrain
from pretrain.vocabulary import TokenStream

STEPS, RATE = 1000, 0.002
SHARES = (0.1, 0.3)
BANDED = next(setting for setting in SETTINGS if setting.name == "banded")
_KEYS = 2000  # where the draws of the votes' noise begin


@dataclass(frozen=True)
class Row:
    """One line: what of rho 0.5 went to votes, 0 for text as it is, and whether devices trained with the rest.

    Attributes:
      effective: how many equal sentences the drawn ones are worth, as a share.
    """

    population: str
    votes: float
    trained: bool
    draw: int
    effective: float
    network: Recalls
    ngram: Recalls | None


def main() -> None:
    """Measure what is missing, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--launch", type=Path, default=Path("dags/launches/demo-en-US.yaml"))
    parser.add_argument("--only", nargs="+", choices=["chat", "blogs", "SMS"], default=["chat", "blogs"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--work", type=Path, default=Path("runs/private_training"), help="private: text of devices")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    launch, path, left = load_launch(chosen.launch), chosen.work / "votes.jsonl", chosen.most
    for name in chosen.only:
        todo = [(votes, draw) for draw in range(chosen.draws) for votes in (0.0, *SHARES)]
        todo = [arm for arm in todo if not {True, False} <= done(path, name, *arm)]
        who = people(name, launch, chosen.folder, chosen.work) if todo and left else None
        for votes, draw in todo[:left] if who is not None else ():
            for row in measured(name, who, launch, votes, draw):
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
            left -= 1
        for line in table(name, rows(path)):
            print(line)


def rows(path: Path) -> list[Row]:
    """All rows there are."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    read = []
    for content in map(json.loads, lines):
        judged = {key: content[key] and Recalls(**content[key]) for key in ("network", "ngram")}
        read.append(Row(**content | judged))
    return read


def done(path: Path, name: str, votes: float, draw: int) -> set[bool]:
    """Of an arm, which of its rows there are: trained on devices, and before."""
    return {row.trained for row in rows(path) if (row.population, row.votes, row.draw) == (name, votes, draw)}


def measured(name: str, who: People, launch: LaunchConfig, votes: float, draw: int) -> Iterator[Row]:
    """One arm: public text drawn by votes or not, further public training, then training on devices."""
    public, effective = voted(who, launch.seed, votes * RHO, draw)
    words, model = launch.pretrain.sequence_words, copy.deepcopy(who.start.model)
    further = PretrainConfig(
        steps=STEPS,
        batch_sentences=64,
        sequence_words=words,
        learning_rate=RATE,
        evaluate_every_steps=STEPS,
        checkpoint_every_steps=STEPS,
    )
    with tempfile.TemporaryDirectory() as folder:
        pretrain(further, model, public, public.select(np.arange(20)), Path(folder), launch.seed)
    vocabulary = who.start.vocabulary
    ngram = recalls(PublicNGram(NGram.fit(public, vocabulary, 3)), who.test, vocabulary)
    yield Row(name, votes, False, draw, effective, recalls(neural(model), who.test, vocabulary), ngram)
    run = run_of(BANDED, len(who.devices), (1 - votes) * RHO)
    trained(model, run, BANDED, draw, who.devices, launch.seed)
    yield Row(name, votes, True, draw, effective, recalls(neural(model), who.test, vocabulary), None)


def voted(who: People, seed: int, rho: float, draw: int) -> tuple[TokenStream, float]:
    """Public text as it is, or drawn again by votes of so much rho; and its effective share."""
    public = who.start.public
    if not rho:
        return public, 1.0
    z = (2 * rho) ** -0.5
    groups = group(public, who.start.model.embedding.detach().double().numpy(), GROUPS, seed)
    released_K = release.released_votes(who.devices, groups, z, seeded_key(_KEYS + draw))
    weight_S = release.importance(released_K, groups.nearest(public.tokens_N), z)
    drawn = selection.resampled(public, selection.copies(weight_S, seed))
    return drawn, selection.effective_share(weight_S)


def table(name: str, measured: list[Row]) -> Iterator[str]:
    """Means over draws, and standard errors of them."""
    yield f"## {name}\n"
    yield "| votes' share of rho 0.5 | trained on devices | draws | top-1 | top-3 | distinct | 3-gram top-1 | worth |"
    yield "|---|---|---|---|---|---|---|---|"
    for after in (False, True):
        for votes in (0.0, *SHARES):
            some = [row for row in measured if (row.population, row.votes, row.trained) == (name, votes, after)]
            if not some:
                continue
            top1, top3, distinct = (
                [getattr(row.network, metric) for row in some] for metric in ("top1", "top3", "distinct")
            )
            ngram, worth = [row.ngram.top1 for row in some if row.ngram], np.mean([row.effective for row in some])
            yield (
                f"| {votes:g} | {'yes' if after else 'no'} | {len(some)} | {_mean(top1)} | {_mean(top3)} | "
                f"{np.mean(distinct):,.0f} | {_mean(ngram) if ngram else ''} | {worth:.0%} |"
            )
    yield ""


def _mean(values: list[float]) -> str:
    error = f" ± {np.std(values, ddof=1) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{error}"


if __name__ == "__main__":
    main()
