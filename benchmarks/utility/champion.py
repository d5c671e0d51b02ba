"""Public text chosen by the model that was shipped (``public_text.select_by: champion``) against the text as it is.

OMP_NUM_THREADS=1 python -m benchmarks.utility.champion FOLDER [--work FOLDER] [--draws N]

For each population: the champion is the network that people train from the usual start, as a first launch ships it; its
likelihoods resample the public text, a second start is trained on that, and the same people train it with the same
noise. Both starts and both networks are scored on the same held-out people; intervals are of people alone. FOLDER as
for ``benchmarks.utility.crossing``. Noise is seeded, so nobody is protected: a measurement, not a launch.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks.utility import arms, populations
from benchmarks.utility.cell import Cell
from benchmarks.utility.populations import SEED, People
from benchmarks.utility.recall import Arm, gain
from pretrain.model.export import save_model
from pretrain.model.keyboard_lm import build_model
from pretrain.text.vocabulary import join_streams
from pretrain.training import selection
from pretrain.training.train import pretrain, start_from_frequencies

CELLS = (Cell("talk", 3_000, "train"), Cell("chat", 0, "train"), Cell("blogs", 3_000, "train"))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, default=Path("build/crossing"), help="private; resumes from here")
    parser.add_argument("--draws", type=int, default=1)
    chosen = parser.parse_args()
    print(
        "| population, draw | effective share | start, top-1 | by champion | gain | trained | from it | gain | top-3 |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for cell in (replace(cell, draw=draw) for cell in CELLS for draw in range(chosen.draws)):
        print(_row(cell, chosen.folder, chosen.work), flush=True)


def _row(cell: Cell, folder: Path, work: Path) -> str:
    people = populations.opened(cell, folder, work)
    place = work / "champion" / cell.name
    champion, _ = arms.made(cell, people, place / "first")
    share, again = _resampled(people, place, cell.draw, champion)
    second, _ = arms.made(cell, again, place / "second")
    scored = [
        arms.hits(arm, people.held_out)
        for arm in (Arm(people.start.model(), None), Arm(again.start.model(), None), champion, second)
    ]
    total = people.words_D.sum()
    start, chosen, first, last = (f"{100 * hits.top1_D.sum() / total:.2f}" for hits in scored)

    def difference(one: int, other: int, what: str) -> str:
        value, error = gain(getattr(scored[one], what), getattr(scored[other], what), people.words_D)
        return f"{100 * value:+.2f} ± {196 * error:.2f}"

    ends = [difference(1, 0, "top1_D"), first, last, difference(3, 2, "top1_D"), difference(3, 2, "top3_D")]
    return f"| {cell.population}, {cell.draw} | {share:.2f} | {start} | {chosen} | " + " | ".join(ends) + " |"


def _resampled(people: People, place: Path, draw: int, champion: Arm) -> tuple[float, People]:
    """The same people with a start of the public text that the champion chose, and its effective share."""
    start, config = people.start, populations.launch()
    corpus = populations.public_text("en-US", place.parents[1])
    words = config.pretrain.sequence_words
    assert champion.network is not None
    private_S = selection.log_probabilities(champion.network, start.public, words)
    weight_S = selection.importance(
        private_S, selection.unread(start.public, start.vocabulary), selection.targets(start.public)
    )
    chosen = selection.resampled(start.public, selection.copies(weight_S, SEED + draw))
    validation = join_streams([store.encode(start.vocabulary) for store in corpus.validation])
    weights = place / "start.safetensors"
    if not weights.exists():
        model = build_model(start.config, len(start.vocabulary), config.seed)
        start_from_frequencies(model, chosen.tokens_N)
        pretrain(config.pretrain, model, chosen, validation, place / "work", config.seed)
        save_model(model, weights)
    return selection.effective_share(weight_S), replace(people, start=replace(start, public=chosen, weights=weights))


if __name__ == "__main__":
    main()
