"""The start that public text gives beside n-grams of the same text and vocabulary, on real held-out users.

.venv/stages/bin/python -m benchmarks.utility.starts FOLDER [--launch dags/launches/demo-en-US.yaml] [--only NAME]
    [--work FOLDER]

FOLDER holds Parquet files of users (``client_id, text``). The model is pretrained as the launch file says, on its
packaged text; n-grams are interpolated modified Kneser-Ney (as kenlm computes it) of orders 3 and 5. Nobody's text
trains anything: every user is held out. Prints Markdown; some minutes a language, and WORK keeps its start (that of
``python -m benchmarks.utility.what_ships`` is the same).
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.utility.real_users import public_start
from evaluation.arms.arm import Mixture, NextWord, PublicNGram, neural
from evaluation.arms.held_out import HeldOut, held_out
from evaluation.comparison.scoring import score
from pipeline.config import LaunchConfig, load_launch
from pretrain.ngrams.ngram import NGram
from pretrain.text import sentences
from pretrain.vocabulary import Vocabulary
from pretrain.words import write_words

USERS, WORDS_A_USER, HELD_OUT_WORDS = 400, 400, 80_000
POPULATIONS = {
    "en-US_chitchat": "en-US",
    "en_blogs": "en-US",
    "en_gitter_fcc": "en-US",
    "es-US_cowsl2h": "es-ES",
    "fr-FR_88milsms": "fr-FR",
}


def main() -> None:
    """Train a start a language, judge it beside the n-grams on each population."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--launch", type=Path, default=Path("dags/launches/demo-en-US.yaml"))
    parser.add_argument("--only", choices=POPULATIONS)
    parser.add_argument("--work", type=Path, help="private: goes on from here; default: a temporary folder")
    chosen = parser.parse_args()
    config = load_launch(chosen.launch)
    names = [name for name in POPULATIONS if chosen.only in (None, name)]
    for locale in dict.fromkeys(POPULATIONS[name] for name in names):
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            arms, vocabulary, size = starts(config, locale, (chosen.work or Path(folder)) / locale)
            print(f"## {locale}: {size:,} words of public text, {time.process_time() - began:.0f} s of CPU\n")
            print("| population | arm | top-1 | top-3 | first word of a sentence | different first suggestions |")
            print("|---|---|---|---|---|---|")
            for name in names:
                if POPULATIONS[name] == locale:
                    text = users(chosen.folder / f"{name}.parquet", locale, Path(folder) / name)
                    for arm, model in arms.items():
                        print(f"| {name} | {arm} | {judged(model, text, vocabulary)} |", flush=True)
            print()


def starts(config: LaunchConfig, locale: str, folder: Path) -> tuple[dict[str, NextWord], Vocabulary, int]:
    """The network and the n-grams of a language's packaged text, their vocabulary, and words of that text."""
    start = public_start(config, locale, folder)
    arms: dict[str, NextWord] = {
        f"{order}-gram": PublicNGram(NGram.fit(start.public, start.vocabulary, order)) for order in (3, 5)
    }
    network = neural(start.model)
    mixed = {"network": network, "network and 3-gram": Mixture(network, arms["3-gram"])}
    return arms | mixed, start.vocabulary, start.words


def users(path: Path, locale: str, folder: Path) -> HeldOut:
    """Text of some users, all of them held out."""
    table = pq.read_table(path, columns=["client_id", "text"]).to_pandas()
    clients = np.random.default_rng(0).permutation(sorted(table["client_id"].unique()))[:USERS]
    texts = table.groupby("client_id")["text"].apply(list)
    store = write_words(folder, (list(_sentences(texts[client], locale)) for client in clients))
    return held_out(store, np.arange(len(clients)), HELD_OUT_WORDS)


def judged(arm: NextWord, text: HeldOut, vocabulary: Vocabulary) -> str:
    """One row: recalls in percent of all words typed, and how many different words stand first."""
    scored = score(arm, text, text.ids(vocabulary), workers=1)
    starts_P = text.place_P == 0
    top1, top3 = (100 * np.mean(scored.rank_P < most) for most in (1, 3))
    first = 100 * np.mean(scored.rank_P[starts_P] < 1)
    return f"{top1:.2f} | {top3:.2f} | {first:.2f} | {len(set(scored.first_P.tolist())):,}"


def _sentences(texts: list[str], locale: str) -> Iterator[list[str]]:
    words = 0
    for text in texts:
        for sentence in sentences(text, locale):
            words += len(sentence)
            if words > WORDS_A_USER:
                return
            yield sentence


if __name__ == "__main__":
    main()
