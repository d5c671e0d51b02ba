"""Private counts of words and pairs on public n-grams, on real held-out devices, as tables.

.venv/stages/bin/python -m benchmarks.utility.counts FOLDER [--only NAME] [--choose]

FOLDER holds ``users/*.parquet`` (``client_id, text, locale, ts``) and ``public/*.parquet`` (``text, source``)
under the names below. Prints Markdown; about two minutes a population on one core. ``--choose`` instead varies
the constants of ``federated.counts`` on public text alone: manuals play the public text, what is left (news,
reviews, tweets, fortunes) is cut into pseudo-users that play the devices.

Base vocabulary: 4,000 words of public text. New words are those that most training devices use and the public
text lacks, up to 200: this measures counts, not discovery. Noise is seeded, for the same table every time.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from evaluation.arms.arm import PublicNGram
from evaluation.arms.held_out import HeldOut, held_out
from evaluation.comparison.scoring import score
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.population import FilePopulation
from federated.counts import cells as counted
from federated.counts.posterior import counted_ngram
from federated.counts.release import released_counts
from federated.devices import store as population
from federated.planning.pseudo_users import pseudo_users
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.text import sentences
from pretrain.vocabulary import EOS, TokenStream, Vocabulary, extend, from_counts
from pretrain.words import write_words

SEED, BASE_SIZE, NEW_WORDS, FEWEST_DEVICES = 1, 4000, 200, 10
WORDS_A_DEVICE, HELD_OUT_WORDS = 400, 20_000
RHOS, DRAWS, DELTA = (0.1, 0.5, 1.0), 3, 1e-6
POPULATIONS = {
    "en-US_chitchat": ("en-US", "en-US_public"),
    "en_blogs": ("en-US", "en-US_public"),
    "fr-FR_88milsms": ("fr-FR", "fr-FR_public"),
    "es-US_cowsl2h": ("es-US", "es-ES_public"),
}
PUBLIC = {"en-US_public": "en-US", "es-ES_public": "es-ES", "pt-BR_public": "pt-BR", "de-DE_public": "de-DE"}
MANUALS = ("libreoffice", "debian-handbook")
PSEUDO_USERS, MEDIAN_WORDS, CHOOSING_RHO = 1500, 150, 0.5
VARIED = {
    "contexts": (50, 200, 500, 1000),
    "typical_words": (0.0, 100.0, 1000.0, 10_000.0),
    "pair_weight": (0.5, 1.0, 2.0),
    "start_weight": (1.0, 2.0, 3.0),
    "clip_norm": (1.0, 5.0, 20.0),
    "half_trusted": (5.0, 20.0, 100.0),
}
_OF_CELLS = ("contexts", "typical_words", "pair_weight", "start_weight")


@dataclass(frozen=True)
class Setting:
    """What arms are made from and judged on."""

    vocabulary: Vocabulary
    base_size: int
    public: TokenStream
    devices: TokenStream
    text: HeldOut

    def judge(self, model: NGram | CountedNGram) -> tuple[float, float, int]:
        """Top-1 and top-3 recall in percent, and how many different words are suggested first."""
        scored = score(PublicNGram(model), self.text, self.text.ids(self.vocabulary), workers=2)
        words = len(scored.id_P)
        return (*(100 * np.count_nonzero(scored.rank_P < most) / words for most in (1, 3)), len(set(scored.first_P)))

    def counts(self, rho: float, draw: int, **changed: float) -> CountedNGram:
        """A model from one release."""
        z = (2 * rho) ** -0.5
        of_cells = {name: changed.pop(name) for name in _OF_CELLS if name in changed}
        cells = counted.choose(self.public, self.vocabulary, **of_cells)
        clip = {name: value for name, value in changed.items() if name == "clip_norm"}
        released_U = released_counts(self.devices, cells, z, seeded_key(draw), **clip)
        public = NGram.fit(self.public, self.vocabulary, 3)
        return counted_ngram(released_U, cells, public, self.base_size, z, **changed)


def main() -> None:
    """Fit, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=[*POPULATIONS, *PUBLIC])
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    for name in PUBLIC if options.choose else POPULATIONS:
        if options.only not in (None, name):
            continue
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            make = pretended if options.choose else real
            setting = make(options.folder, name, Path(folder))
            print(f"## {name}\n\n{_sizes(setting)}\n")
            for line in choices(setting) if options.choose else arms(setting):
                print(line, flush=True)
        print(f"\n{time.process_time() - began:.0f} s of CPU.\n", flush=True)


def arms(setting: Setting) -> Iterator[str]:
    """Public n-grams, and counts at each rho."""
    yield "| arm | epsilon at 1e-6 | top-1 | top-3 | different first suggestions |"
    yield "|---|---|---|---|---|"
    for order in (3, 5):
        top1, top3, distinct = setting.judge(NGram.fit(setting.public, setting.vocabulary, order))
        yield f"| public {order}-gram | 0 | {top1:.2f} | {top3:.2f} | {distinct} |"
    for rho in RHOS:
        drawn = np.array([setting.judge(setting.counts(rho, draw)) for draw in range(DRAWS)])
        (top1, top3, distinct), (spread1, spread3, _) = drawn.mean(axis=0), np.ptp(drawn, axis=0) / 2
        yield (
            f"| counts, rho {rho:g} | {epsilon_of_rho(rho, DELTA):.2f} | {top1:.2f} ± {spread1:.2f} | "
            f"{top3:.2f} ± {spread3:.2f} | {distinct:.0f} |"
        )


def choices(setting: Setting) -> Iterator[str]:
    """Top-1 and top-3 with one constant changed at a time, the same noise key in each."""
    yield "| changed | top-1 | top-3 |\n|---|---|---|"
    for shown, model in [
        ("public 3-gram", lambda: NGram.fit(setting.public, setting.vocabulary, 3)),
        ("none", lambda: setting.counts(CHOOSING_RHO, 0)),
        *_changed(setting),
    ]:
        top1, top3, _ = setting.judge(model())
        yield f"| {shown} | {top1:.2f} | {top3:.2f} |"


def _changed(setting: Setting) -> Iterator[tuple[str, Callable[[], CountedNGram]]]:
    for name, values in VARIED.items():
        for value in values:
            yield f"{name} {value:g}", lambda name=name, value=value: setting.counts(CHOOSING_RHO, 0, **{name: value})


def real(folder: Path, name: str, work: Path) -> Setting:
    """A population, with the public text of its language."""
    locale, public = POPULATIONS[name]
    store = write_words(work / "public", _documents(folder / "public" / f"{public}.parquet", locale))
    base = from_counts(store.word_counts(), BASE_SIZE)
    config = FilePopulation(
        source="files",
        paths=(str(folder / "users" / f"{name}.parquet"),),
        name="users",
        max_words_per_device=WORDS_A_DEVICE,
        test_fraction=0.2,
    )
    population.build_store(config, locale, SEED, work / "store")
    devices = population.open_store(work / "store")
    users = Counter(word for words in devices.device_words("train") for word in set(words) if word not in base.index)
    grown = extend(base, _ranked(users, FEWEST_DEVICES), NEW_WORDS)
    text = held_out(devices.words, devices.devices("test"), HELD_OUT_WORDS)
    return Setting(grown, len(base), store.encode(grown), devices.encode(grown, "train"), text)


def pretended(folder: Path, name: str, work: Path) -> Setting:
    """Manuals as public text, other public text as devices; a fifth of them are held out."""
    path, locale = folder / "public" / f"{name}.parquet", PUBLIC[name]
    manuals = write_words(work / "manuals", _documents(path, locale, manual=True))
    others = write_words(work / "others", _documents(path, locale, manual=False))
    base = from_counts(manuals.word_counts(), BASE_SIZE)
    missing = {word: count for word, count in others.word_counts().items() if word not in base.index}
    grown = extend(base, _ranked(missing, FEWEST_DEVICES), NEW_WORDS)
    users = pseudo_users(others.encode(grown), PSEUDO_USERS, "heavy-tailed", MEDIAN_WORDS, SEED)
    train = int(0.8 * len(users))
    # Spelled out again, as the comparison wants it; words outside the vocabulary stay outside.
    spelled = [_spelled(users.owner(owner), grown) for owner in range(train, len(users))]
    test = write_words(work / "test", spelled)
    text = held_out(test, np.arange(len(test)), HELD_OUT_WORDS)
    return Setting(grown, len(base), manuals.encode(grown), users.select(np.arange(train)), text)


def _documents(path: Path, locale: str, *, manual: bool | None = None) -> Iterator[list[list[str]]]:
    table = pq.read_table(path, columns=["text", "source"])
    for text, source in zip(table["text"].to_pylist(), table["source"].to_pylist(), strict=True):
        if manual in (None, source.startswith(MANUALS)):
            yield sentences(text, locale)


def _ranked(counts: dict[str, int] | Counter[str], fewest: int) -> Iterable[str]:
    return [word for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count >= fewest]


def _spelled(tokens: np.ndarray, vocabulary: Vocabulary) -> list[list[str]]:
    pieces = np.split(tokens, np.flatnonzero(tokens == EOS) + 1)[:-1]
    return [[vocabulary.words[token] for token in piece[:-1]] for piece in pieces]


def _sizes(setting: Setting) -> str:
    typed, new = int(np.sum(setting.devices.tokens_N != EOS)), len(setting.vocabulary) - setting.base_size
    return (
        f"{len(setting.devices)} devices with {typed:,} words, {setting.text.devices} held out; "
        f"{len(setting.public.tokens_N):,} public tokens; {new} new words."
    )


if __name__ == "__main__":
    main()
