"""Text of a rehearsal: people who type their locale's words and a few new ones, and public text of the same words."""

import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from federated.config.population import SyntheticPopulation
from federated.devices.synthetic import frequencies, typists
from pretrain import progress
from pretrain.files import atomic

_SHARD = 10_000  # devices in a file, which is made in memory
_MESSAGE = 5  # sentences in a row
_DOCUMENT, _SENTENCE = 40, 8  # sentences in a document of public text, and their words
_NEW = 4  # one sentence in so many ends with a new word, so that there are words to discover


def people(folder: Path, locale: str, devices: int, seed: int) -> None:
    """Write ``devices`` made-up people who typed yesterday, as Parquet with client_id, text, locale and ts.

    Every other word of theirs is the most common one, so that each training learns at least that, whatever its noise.
    Files that stand already are not made again.

    Raises:
      ValueError: no word frequencies for the locale's language.
    """
    folder.mkdir(parents=True, exist_ok=True)
    typed_at = datetime.now(UTC) - timedelta(days=1)
    new, common = new_words(locale), frequencies(locale)[0][0]
    asked = SyntheticPopulation(
        source="synthetic", name="typists", devices=devices, max_words_per_device=1, test_fraction=0.1
    )
    made = typists(asked, locale, seed).devices
    shards = -(-devices // _SHARD)
    made_a_shard = progress.along("made-up people", shards)
    for number in range(shards):
        shard = itertools.islice(made, _SHARD)
        path = folder / f"part-{number:05}.parquet"
        if path.exists():
            next(itertools.islice(shard, _SHARD, None), None)
            continue
        rows = [
            {"client_id": device, "text": text, "locale": locale, "ts": typed_at}
            for number, (device, texts) in enumerate(shard)
            for text in _messages(list(texts), common, new[number % len(new)])
        ]
        with atomic(path) as temporary:
            pq.write_table(pa.Table.from_pylist(rows), temporary)
        made_a_shard(1.0)


def new_words(locale: str) -> tuple[str, ...]:
    """Words of made-up people that no public text of a rehearsal has, each put together of two common ones."""
    common = frequencies(locale)[0]
    return tuple(common[rank] + common[rank + 10] for rank in (20, 40, 60))


def public(folder: Path, locale: str, words: int, vocabulary: int, seed: int) -> None:
    """Write about ``words`` words in the layout of C4: the ``vocabulary`` most common, each as often as any other.

    Made-up people know no grammar: all that they can teach a model is how often they type each word.
    """
    path = folder / "c4-train.00000-of-00001.json.gz"
    if path.exists():
        return
    known, rng = np.array(frequencies(locale)[0][:vocabulary]), np.random.default_rng(seed)
    with atomic(path) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as file:
        for _ in range(-(-words // (_DOCUMENT * _SENTENCE))):
            sentences = rng.choice(known, size=(_DOCUMENT, _SENTENCE))
            text = " ".join(f"{' '.join(sentence)}." for sentence in sentences)
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def _messages(sentences: Sequence[str], common: str, new: str) -> Iterator[str]:
    """Put the most common word after each other one, and a new word at the end of some sentences."""
    told = [f" {common} ".join(sentence[:-1].split()) for sentence in sentences]
    ended = [f"{words} {common}." if number % _NEW else f"{words} {new}." for number, words in enumerate(told)]
    for first in range(0, len(ended), _MESSAGE):
        yield " ".join(ended[first : first + _MESSAGE])
