"""Variety of first suggestions: trained networks and broken ones, at ten sizes of the test.

OMP_NUM_THREADS=1 python -m benchmarks.utility.variety FOLDER [--work FOLDER]

FOLDER and ``--work`` are those of ``benchmarks.utility.crossing``, whose trained networks are measured. Broken arms are
the start with Gaussian noise on every weight, its most frequent words alone, and the most typed word alone. At each
size, random people are drawn until they typed that many words.

Shape legend: M known words, A arms, D people.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.utility import arms, populations
from benchmarks.utility.cell import Cell
from benchmarks.utility.recall import Arm, predictions, words_typed
from evaluation.comparison import scoring, slices
from evaluation.noisy.compare import PUBLIC_WORDS
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams import counted
from pretrain.text.corpus import open_corpus
from pretrain.text.vocabulary import SPECIALS, UNK, TokenStream, join_streams

SIZES = (1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 20_000, 30_000, 50_000, 100_000)
DRAWS, SHARE = 200, 0.5
NOISES, MOST_FREQUENT = (0.1, 0.2, 0.3, 0.5), (5, 10)
STEPS = ("train-stepnoise0.02", "train", "train-stepnoise0.09")
# People who trained, and the arms made of them.
TRAINED: dict[str, dict[int, tuple[str, ...]]] = {
    "sms-fr": {0: STEPS},
    "chat": {0: ("start+counts", *STEPS, "counts-train")},
    "essays-es": {0: STEPS},
    "talk": {
        1_000: ("start+counts", "train", "counts-train"),
        3_000: ("start+counts", "train"),
        10_000: ("start+counts", "train"),
    },
}


@dataclass(frozen=True)
class Said:
    """First suggestions of arms on one text: person ``[M]``, typed word ``[M]``, suggestion ``[M]`` by arm.

    Attributes:
      words_D: words that each person typed, those outside the vocabulary among them.
    """

    owner_M: np.ndarray
    typed_M: np.ndarray
    first: dict[str, np.ndarray]
    words_D: np.ndarray

    def variety(self, arm: str, people: np.ndarray) -> float:
        """Variety among some people, as a launch measures it."""
        some = np.isin(self.owner_M, people)
        typed, first = self.typed_M[some], self.first[arm][some]
        unknown = np.full(int(self.words_D[people].sum()) - len(typed), UNK)
        typed, first = np.append(typed, unknown), np.append(first, unknown)
        no, nothing = np.zeros(len(typed), bool), np.zeros(len(typed))
        rank = np.where(typed == first, 0, scoring.MISS)
        return slices.variety(scoring.Scores(no, typed, rank, nothing, first, nothing, no, 1))

    def recall(self, arm: str) -> float:
        """Top-1 recall."""
        return float(np.sum(self.first[arm] == self.typed_M) / self.words_D.sum())


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, default=Path("build/crossing"))
    chosen = parser.parse_args()
    print("| population | arm | top-1 | different first words | variety | share | share, public text | passes |")
    print("|---|---|---:|---:|---:|---:|---:|---|")
    for population, trained in TRAINED.items():
        people = populations.opened(Cell(population, 0, "start"), chosen.folder, chosen.work)
        entrants = _entrants(people, chosen.work / "trained", trained)
        held_out, public = (_said(text, entrants) for text in (people.held_out, _public(people, chosen.work)))
        _tell(population, held_out, public)


def _entrants(people: populations.People, folder: Path, trained: dict[int, tuple[str, ...]]) -> dict[str, Arm]:
    start = people.start
    made = {"start": Arm(start.model(), None), "n-gram": Arm(None, start.ngram)}
    for count, arm in ((count, arm) for count, each in trained.items() for arm in each):
        files = folder / (f"{people.name}-{arm}" if count == 0 else f"{people.name}-{count}-{arm}")
        beside = counted.load(files / "counts.npz") if arm == "start+counts" else None
        network = start.model() if beside else start.load(files / "model.safetensors")
        made[f"{arm}, {count:,} people" if count else arm] = Arm(network, beside)
    return made | {f"start, noise {noise}": Arm(_shaken(start.model(), noise), None) for noise in NOISES}


def _shaken(model: KeyboardLM, noise: float) -> KeyboardLM:
    generator = torch.Generator().manual_seed(populations.SEED)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(noise * torch.randn(weights.shape, generator=generator))
    return model


def _public(people: populations.People, work: Path) -> TokenStream:
    locale = populations.POPULATIONS[people.name.partition("-0")[0]].locale
    stores = open_corpus(work / f"start-{locale}" / "corpus").validation
    text = join_streams([store.encode(people.start.vocabulary) for store in stores])
    return text.select(np.flatnonzero(np.cumsum(words_typed(text)) <= PUBLIC_WORDS))


def _said(text: TokenStream, entrants: dict[str, Arm]) -> Said:
    owners, typed = list[np.ndarray](), list[np.ndarray]()
    said: dict[str, list[np.ndarray]] = {name: [] for name in entrants}
    with torch.no_grad():
        for owner_M, typed_M, chances in predictions(text, list(entrants.values()), arms.SEQUENCE_WORDS):
            owners.append(owner_M)
            typed.append(typed_M)
            for name, chance_MV in zip(entrants, chances, strict=True):
                said[name].append(chance_MV[:, len(SPECIALS) :].argmax(axis=1) + len(SPECIALS))
    typed_M, first = np.concatenate(typed), {name: np.concatenate(each) for name, each in said.items()}
    common = np.argsort(-np.bincount(typed_M), kind="stable")
    for most in MOST_FREQUENT:
        kept = np.isin(first["start"], common[:most])
        first[f"start, {most} words"] = np.where(kept, first["start"], common[0])
    first["one word"] = np.full(len(typed_M), common[0])
    return Said(np.concatenate(owners), typed_M, first, words_typed(text))


def _tell(population: str, held_out: Said, public: Said) -> None:
    everybody = np.arange(len(held_out.words_D))
    shares = _shares(held_out, everybody)
    open_shares = _shares(public, np.arange(len(public.words_D)))
    passed = _passed(held_out)
    for arm in held_out.first:
        line = (population, arm, f"{100 * held_out.recall(arm):.1f}", f"{len(np.unique(held_out.first[arm])):,}")
        line += (f"{held_out.variety(arm, everybody):.1f}", f"{shares[arm]:.2f}", f"{open_shares[arm]:.2f}")
        print(f"| {' | '.join((*line, passed[arm]))} |", flush=True)


def _shares(said: Said, people: np.ndarray) -> dict[str, float]:
    """Variety of each arm as a share of the larger one of start and n-gram."""
    found = {arm: said.variety(arm, people) for arm in said.first}
    best = max(found["start"], found["n-gram"])
    return {arm: value / best for arm, value in found.items()}


def _passed(said: Said) -> dict[str, str]:
    """Least and largest share of draws of people, over the sizes, in which an arm passes."""
    random, passed = np.random.default_rng(populations.SEED), list[dict[str, float]]()
    for size in (each for each in SIZES if each <= said.words_D.sum()):
        draws = [_shares(said, _drawn(said, size, random)) for _ in range(DRAWS)]
        passed.append({arm: float(np.mean([draw[arm] >= SHARE for draw in draws])) for arm in said.first})
    ends = {arm: (min(each[arm] for each in passed), max(each[arm] for each in passed)) for arm in said.first}
    return {arm: f"{low:.1%}" if low == high else f"{low:.1%} to {high:.1%}" for arm, (low, high) in ends.items()}


def _drawn(said: Said, size: int, random: np.random.Generator) -> np.ndarray:
    people = random.permutation(len(said.words_D))
    return people[: int(np.searchsorted(np.cumsum(said.words_D[people]), size)) + 1]


if __name__ == "__main__":
    main()
