"""``CountedNGram``: a public n-gram model that private counts of words and pairs have moved.

Shape legend: V vocabulary, K counted contexts, G stored pairs, B contexts to predict after.

The file is one compressed ``.npz`` of plain arrays; nothing in it is pickled. It needs neither torch nor
the rest of this project, so that a published bundle predicts with it alone.
"""

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pretrain.files import atomic
from pretrain.ngrams.ngram import Level, NGram
from pretrain.reading.paths import require_file, shown

_FORMAT = "tacit-counted-1"
_MOST_BYTES = 1 << 28
# Weight of a mixture, fixed without private text.
NETWORK_SHARE = 0.5
# Against a division by 0 where every word has a pair.
_TINY = 1e-12


@dataclass(frozen=True)
class CountedNGram:
    """Public n-grams, a factor for each word, and pairs mixed in after the contexts that were counted.

    After history h the public side is ``q(w) = public(w | h) factor(w) / Z(h)``. After a counted last word c it
    has the share ``1 - trust(c)``; the rest goes to the pairs, and what they leave of it to the other words, as
    q divides it.

    Attributes:
      public: fitted to public text.
      factor_V: float64, ratio of each word's frequency to public text.
      row_V: int64, place of a word among the counted contexts, -1 if it is none; ``<bos>`` may be one.
      key_G: int64, sorted, ``row * V + next word``.
      pair_G: float64, probability of each pair after its context; those of one context sum to at most 1.
      trust_K: float64, share of the prediction that pairs have, in [0, 1].
    """

    public: NGram
    factor_V: np.ndarray
    row_V: np.ndarray
    key_G: np.ndarray
    pair_G: np.ndarray
    trust_K: np.ndarray

    @property
    def vocabulary_size(self) -> int:
        """Words of its vocabulary."""
        return self.public.vocabulary_size

    @property
    def order(self) -> int:
        """Longest k-grams of the public model; pairs need one word before, so 2 at least."""
        return max(self.public.order, 2)

    def dense(self, last_BK: np.ndarray) -> np.ndarray:
        """Probabilities ``[B, V]`` after each row's last tokens, ``<bos>`` included, -1 before it."""
        prob_BV = self.public.dense(last_BK) * self.factor_V
        prob_BV /= prob_BV.sum(axis=1, keepdims=True)
        row_B = np.where(last_BK[:, -1] >= 0, self.row_V[last_BK[:, -1]], -1)
        counted_B = np.flatnonzero(row_B >= 0)
        size = self.vocabulary_size
        first, last = (np.searchsorted(self.key_G, (row_B[counted_B] + more) * size) for more in (0, 1))
        for place, low, high in zip(counted_B, first, last, strict=True):
            words, pair, trust = (
                self.key_G[low:high] - row_B[place] * size,
                self.pair_G[low:high],
                self.trust_K[row_B[place]],
            )
            stored = prob_BV[place, words]
            left = max(1 - pair.sum(), 0.0) / max(1 - stored.sum(), _TINY)
            prob_BV[place] *= 1 - trust + trust * left
            prob_BV[place, words] = (1 - trust) * stored + trust * pair
        return prob_BV


def mixed(network_BV: np.ndarray, counts_BV: np.ndarray) -> np.ndarray:
    """Probabilities of the mixture from those of a network and of counts, both ``[B, V]``."""
    return NETWORK_SHARE * network_BV + (1 - NETWORK_SHARE) * counts_BV


def require_loadable(public: NGram, most_pairs: int) -> None:
    """Raise ValueError if a model of this n-gram and number of pairs would exceed the limit of ``load``."""
    size = 3 * 8 * sum(len(level.key_G) for level in public.levels) + 2 * 8 * (most_pairs + public.vocabulary_size)
    if size > _MOST_BYTES:
        raise ValueError(
            f"public_text.max_tokens: the n-gram of so much text and its counts take {size:,} bytes, and a bundle has "
            f"at most {_MOST_BYTES:,}; lower it, or remove the block counts"
        )


def save(model: CountedNGram, path: Path) -> None:
    """Write a model; what is loaded predicts exactly what was saved.

    Arrays: ``format``, ``vocabulary_size``, the fields of ``CountedNGram`` by name and, for each k-gram length k,
    the fields of its ``Level`` as ``key_k``, ``prob_k``, ``backoff_k`` and ``discounts_k``.
    """
    arrays: dict[str, Any] = {
        "format": np.array(_FORMAT),
        "vocabulary_size": np.array(model.vocabulary_size),
        "factor_V": model.factor_V,
        "row_V": model.row_V,
        "key_G": model.key_G,
        "pair_G": model.pair_G,
        "trust_K": model.trust_K,
    }
    for k, level in enumerate(model.public.levels, start=1):
        parts = {"key": level.key_G, "prob": level.prob_G, "backoff": level.backoff_G, "discounts": level.discounts}
        arrays |= {f"{name}_{k}": np.asarray(part) for name, part in parts.items()}
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load(path: Path) -> CountedNGram:
    """Read what ``save`` wrote.

    Raises:
      ValueError: another format, or damaged.
    """
    fix = "publish the launch again"
    require_file(path, "counts", fix)
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(entry.file_size for entry in packed.infolist())
        if size > _MOST_BYTES:
            raise ValueError(f"{path.name}: unpacks to {size:,} bytes, and at most {_MOST_BYTES:,} are read; {fix}")
        model = _unpacked(path)
    except ValueError as error:  # numpy's, of an array that is pickled or cut
        if str(error).startswith(path.name):
            raise
        raise ValueError(f"{path.name}: damaged, or no table of counts ({shown(error)}); {fix}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, IndexError, NotImplementedError) as error:
        raise ValueError(f"{path.name}: damaged, or no table of counts ({shown(error)}); {fix}") from error
    _check(model, path.name, fix)
    return model


def _check(model: CountedNGram, name: str, fix: str) -> None:
    """ValueError unless the arrays fit together, so that nothing fails after some words."""
    words, contexts = model.vocabulary_size, len(model.trust_K)
    fits = model.factor_V.shape == model.row_V.shape == (words,) and model.key_G.shape == model.pair_G.shape
    fits = fits and bool(model.public.levels) and contexts * words < 1 << 62
    floats = (model.factor_V, model.pair_G, model.trust_K, *(level.prob_G for level in model.public.levels))
    fits = fits and all(array.dtype.kind == "f" and np.isfinite(array).all() for array in floats)
    fits = fits and all(array.dtype.kind == "i" for array in (model.row_V, model.key_G))
    if not fits or not (model.row_V < contexts).all():
        raise ValueError(f"{name}: its arrays do not fit together; {fix}")


def _unpacked(path: Path) -> CountedNGram:
    with np.load(path, allow_pickle=False) as arrays:
        if "format" not in arrays or str(arrays["format"]) != _FORMAT:
            raise ValueError(f"{path.name}: not a table of counts in format {_FORMAT!r}; publish the launch again")
        levels: list[Level] = []
        while f"key_{len(levels) + 1}" in arrays:
            k = len(levels) + 1
            one, two, more = arrays[f"discounts_{k}"].tolist()
            levels.append(Level(arrays[f"key_{k}"], arrays[f"prob_{k}"], arrays[f"backoff_{k}"], (one, two, more)))
        return CountedNGram(
            NGram(int(arrays["vocabulary_size"]), tuple(levels)),
            *(arrays[name] for name in ("factor_V", "row_V", "key_G", "pair_G", "trust_K")),
        )
