"""Next words from a published bundle, through onnxruntime.

This file and ``pretrain/`` travel inside the registered model (MLflow calls ``_load_pyfunc``),
so it needs no torch and nothing else of this project. Nothing in a bundle is pickled.

    model.onnx        one step of the model, float32
    model.int8.onnx   the same with int8 weights, where it passed the thresholds of ``evaluation/int8.py``
    counts.npz        where network and counts ship mixed: what counts made of public n-grams (``ngrams/counted.py``)
    vocabulary.json   words by id
    truecase.json     how they are usually written; none in a bundle of version 0.1
    bundle.json       locale, feature, launch, digests, what was measured
    LOCALE.combined   words, frequencies and followers as text, and
    LOCALE.dict       the same as keyboards load it (``dictionary/``)
    disclosure.json   what the launch says about its privacy
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import onnxruntime

from pretrain import vocabulary
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram, mixed
from pretrain.text import unfinished
from pretrain.vocabulary import BOS, SPECIALS
from pretrain.writing import truecasing

State = dict[str, np.ndarray]


def open_graph(path: Path, rows: int = 1) -> tuple[onnxruntime.InferenceSession, State]:
    """A graph of ``export.export_onnx`` ready to run, and the state of ``rows`` at a sentence's start."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # one word is too little work to share
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    sizes = {entry.name: entry.shape[-1] for entry in session.get_inputs()}
    return session, {name: np.zeros((rows, sizes[name]), np.float32) for name in ("cell", "out")}


def step(session: onnxruntime.InferenceSession, token_B: np.ndarray, state: State) -> tuple[np.ndarray, State]:
    """Logits ``[B, V]`` for the word after ``token_B``, and the state behind it."""
    fed = {"token": token_B.astype(np.int64), **state}
    logits_BV, cell, out = session.run(["logits", "next_cell", "next_out"], fed)
    return logits_BV, {"cell": cell, "out": out}


@runtime_checkable
class Table(Protocol):
    """A data frame, as MLflow hands it over."""

    @property
    def columns(self) -> object: ...

    def __getitem__(self, column: str) -> Iterable[str]: ...


class KeyboardPredictor:
    """A bundle, loaded: suggestions for the word after a text."""

    def __init__(self, bundle: Path, filename: str = "model.onnx") -> None:
        """Load a bundle.

        Raises:
          ValueError: the folder is not a bundle.
        """
        missing = [name for name in (filename, "vocabulary.json", "bundle.json") if not (bundle / name).is_file()]
        if missing:
            raise ValueError(f"bundle: {bundle} lacks {', '.join(missing)}; give the folder that 'publish' wrote")
        self.about = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
        self._vocabulary = vocabulary.load(bundle / "vocabulary.json")
        self._usual = truecasing.load(bundle / "truecase.json")
        self._session, self._start = open_graph(bundle / filename)
        mixes = (bundle / "counts.npz").is_file()
        self._counts: CountedNGram | None = counted.load(bundle / "counts.npz") if mixes else None

    def probabilities(self, words: list[str]) -> np.ndarray:
        """Probabilities ``[V]`` of every next word after the words of a sentence so far."""
        tokens, state = [BOS, *self._vocabulary.ids(words).tolist()], self._start
        for token in tokens:
            logits_1V, state = step(self._session, np.array([token]), state)
        prob_1V = np.exp(logits_1V.astype(np.float64) - logits_1V.max())
        prob_1V /= prob_1V.sum()
        if self._counts is not None:
            before = self._counts.order - 1
            last_1K = np.array([([-1] * before + tokens)[-before:]], dtype=np.int64)
            prob_1V = mixed(prob_1V, self._counts.dense(last_1K))
        return prob_1V[0]

    def suggest(self, text: str, count: int = 3) -> list[str]:
        """The ``count`` likeliest words after ``text``, best first, as they are usually written.

        Only the last sentence counts; a word that begins one has a capital.
        """
        locale = self.about["locale"]
        words, begins = unfinished(text, locale)
        scores_V = self.probabilities(words)
        scores_V[: len(SPECIALS)] = -np.inf  # a keyboard offers words only
        best = np.argsort(-scores_V, kind="stable")[: min(count, len(scores_V) - len(SPECIALS))]
        offered = (self._vocabulary.words[index] for index in best)
        return [truecasing.shown(word, self._usual, locale, begins=begins) for word in offered]

    def predict(self, model_input: str | Iterable[str] | Table, params: dict | None = None) -> list[list[str]]:
        """MLflow's entry: suggestions for each text, or for each row of a ``text`` column."""
        if isinstance(model_input, str):
            texts: Iterable[str] = [model_input]
        else:
            texts = model_input["text"] if isinstance(model_input, Table) else model_input
        return [self.suggest(text, (params or {}).get("count", 3)) for text in texts]


def _load_pyfunc(data_path: str) -> KeyboardPredictor:
    """What MLflow calls to load a registered model."""
    return KeyboardPredictor(Path(data_path))
