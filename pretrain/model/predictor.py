"""Next words from a published bundle, through onnxruntime.

This file and ``pretrain/`` travel inside the registered model (MLflow calls ``_load_pyfunc``),
so it needs no torch and nothing else of this project. Nothing in a bundle is pickled.

    model.onnx        one step of the network, float32; none where counts ship alone
    model.int8.onnx   the same with int8 weights, where it passed the thresholds of ``evaluation/int8.py``
    word_scores.npy   for on-the-fly rescoring: each word's log-probability without context, by id
    counts.npz        if counts ship, alone or mixed with the network: public n-grams adapted by them
                      (``ngrams/counted.py``)
    vocabulary.json   words by id
    truecase.json     how they are usually written
    bundle.json       locale, launch, digests, measurements, and each feature's settings
    LOCALE.combined   words, frequencies and followers as text, and
    LOCALE.dict       the same as keyboards load it (``dictionary/``)
    disclosure.json   the privacy disclosure of the launch
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state

from pretrain.files import sha256
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram, mixed
from pretrain.reading.paths import read_json, require_file, require_folder, shown
from pretrain.text import vocabulary
from pretrain.text.tokenise import require_spaced_script, unfinished
from pretrain.text.vocabulary import BOS, SPECIALS, UNK
from pretrain.writing import truecasing

State = dict[str, np.ndarray]
COLUMN = "text"  # of a registered model's input

# Limits, a hundred times the size that fits on a keyboard.
_MOST_MODEL_BYTES, _MOST_STATE = 1 << 31, 1 << 16
_FIX = "give the folder that 'publish' wrote, whole"
# onnxruntime's errors share no base but Exception.
_RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(RuntimeError, KeyError, TypeError, IndexError, MemoryError),
    *(
        kind
        for kind in vars(onnxruntime_pybind11_state).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
)


@contextmanager
def _of_a_graph(name: str) -> Iterator[None]:
    """Turn an onnxruntime error about a damaged or foreign graph into one that names the file and the fix."""
    try:
        yield
    except _RUNTIME_ERRORS as error:
        raise ValueError(
            f"bundle: {name} is damaged or not a keyboard's model ({shown(' '.join(str(error).split()))}); {_FIX}"
        ) from error


def open_graph(path: Path, rows: int = 1) -> tuple[onnxruntime.InferenceSession, State]:
    """A graph of ``export.export_onnx`` ready to run, and the state of ``rows`` at a sentence's start.

    Raises:
      ValueError: no such graph.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # one word is too little work to share
    options.log_severity_level = 4  # faults of a graph are raised
    require_file(path, "bundle", _FIX, _MOST_MODEL_BYTES)
    with _of_a_graph(path.name):
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    sizes = {entry.name: (entry.shape or [0])[-1] for entry in session.get_inputs()}
    outputs = {entry.name for entry in session.get_outputs()}
    widths = {name: sizes.get(name) for name in ("cell", "out")}
    if (
        sizes.keys() != {"token", "cell", "out"}
        or not outputs >= {"logits", "next_cell", "next_out"}
        or not all(isinstance(width, int) and 0 < width <= _MOST_STATE for width in widths.values())
    ):
        raise ValueError(
            f"bundle: {path.name} is not a keyboard's model: a graph from {shown(sizes)} to {shown(sorted(outputs))}; "
            f"{_FIX}"
        )
    return session, {name: np.zeros((rows, sizes[name]), np.float32) for name in ("cell", "out")}


def step(session: onnxruntime.InferenceSession, token_B: np.ndarray, state: State) -> tuple[np.ndarray, State]:
    """Logits ``[B, V]`` for the word after ``token_B``, and the state behind it.

    Raises:
      ValueError: a graph that does not take its own state or its own words.
    """
    fed = {"token": token_B.astype(np.int64), **state}
    with _of_a_graph("model.onnx"):
        logits_BV, cell, out = session.run(["logits", "next_cell", "next_out"], fed)
    return logits_BV, {"cell": cell, "out": out}


def _after(session: onnxruntime.InferenceSession, state: State, tokens: list[int]) -> np.ndarray:
    """Probabilities ``[1, V]`` of the network after a sentence's first tokens, ``<bos>`` among them."""
    for token in tokens:
        logits_1V, state = step(session, np.array([token]), state)
    prob_1V = np.exp(logits_1V.astype(np.float64) - logits_1V.max())
    return prob_1V / prob_1V.sum()


def _read_about(bundle: Path) -> dict[str, Any]:
    """``bundle.json``, with a locale that text can be cut by."""
    about = read_json(bundle / "bundle.json", "bundle", _FIX)
    if not isinstance(about, dict) or not isinstance(about.get("locale"), str):
        raise ValueError(f"bundle: bundle.json states no locale; {_FIX}")
    try:
        require_spaced_script(about["locale"])
    except ValueError as error:
        raise ValueError(f"bundle: {error}; {_FIX}") from error
    if not isinstance(about.get("files"), dict):
        raise ValueError(f"bundle: files of bundle.json is {shown(about.get('files'))}, no digest for each; {_FIX}")
    return about


def _require_published(path: Path, about: dict[str, Any]) -> None:
    """ValueError unless a file has the digest that ``bundle.json`` states, or is neither stated nor there."""
    digest = about["files"].get(path.name)
    if digest is None and not path.exists():
        return
    require_file(path, "bundle", _FIX, _MOST_MODEL_BYTES)
    if sha256(path) != digest:
        raise ValueError(f"bundle: {path.name} is not the file that was published, its digest differs; {_FIX}")


class Table(Protocol):
    """A data frame, as MLflow hands it over."""

    @property
    def columns(self) -> Container[object]: ...

    def __getitem__(self, column: str) -> Iterable[object]: ...


class KeyboardPredictor:
    """A bundle, loaded: suggestions for the word after a text."""

    def __init__(self, bundle: Path, filename: str = "model.onnx") -> None:
        """Load a bundle.

        Raises:
          ValueError: the folder is not a bundle, or a file in it is not the one that was published.
        """
        require_folder(bundle, "bundle", _FIX)
        self.about = _read_about(bundle) if (bundle / "bundle.json").exists() else {}
        alone = self.about.get("ships") == "counts"
        of_the_model = "counts.npz" if alone else filename
        missing = [name for name in (of_the_model, "vocabulary.json", "bundle.json") if not (bundle / name).exists()]
        if missing:
            raise ValueError(f"bundle: {shown(bundle)} lacks {', '.join(missing)}; {_FIX}")
        for name in dict.fromkeys((of_the_model, "vocabulary.json", "truecase.json", "counts.npz", "word_scores.npy")):
            _require_published(bundle / name, self.about)
        self._vocabulary = vocabulary.load(bundle / "vocabulary.json")
        self._usual = truecasing.load(bundle / "truecase.json")
        self._network = None if alone else open_graph(bundle / filename)
        mixes = (bundle / "counts.npz").exists()
        self._counts: CountedNGram | None = counted.load(bundle / "counts.npz") if mixes else None
        self._try()

    def _try(self) -> None:
        """Raise ValueError unless graph, words and counts are consistent, before any prediction."""
        words = len(self._vocabulary)
        if self._network is not None:
            logits_1V, _ = step(self._network[0], np.array([words - 1]), self._network[1])
            finite = np.isfinite(logits_1V).all()
            if logits_1V.shape != (1, words) or not finite:
                what = f"{logits_1V.shape[-1]:,} logits" if finite else "logits that are not finite"
                raise ValueError(f"bundle: the graph gives {what} for {words:,} words of vocabulary.json; {_FIX}")
        if self._counts is not None and self._counts.vocabulary_size != words:
            raise ValueError(
                f"bundle: counts.npz is of {self._counts.vocabulary_size:,} words, vocabulary.json of {words:,}; {_FIX}"
            )

    def probabilities(self, words: list[str]) -> np.ndarray:
        """Probabilities ``[V]`` of every next word after the words of a sentence so far."""
        tokens = [BOS, *self._vocabulary.ids(words).tolist()]
        of_network = None if self._network is None else _after(*self._network, tokens)
        if self._counts is None:
            assert of_network is not None, "a bundle has a network or counts"
            return of_network[0]
        before = self._counts.order - 1
        last_1K = np.array([([-1] * before + tokens)[-before:]], dtype=np.int64)
        of_counts = self._counts.dense(last_1K)
        return (of_counts if of_network is None else mixed(of_network, of_counts))[0]

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

    def phrase(self, text: str) -> list[str]:
        """Smart Compose's offer after ``text``: the two likeliest words, if sure enough; else nothing.

        Raises:
          ValueError: the bundle is not for it.
        """
        threshold = self._settings("SC")["threshold_nats"]
        words, begins = unfinished(text, self.about["locale"])
        first, first_log = self._likeliest(words)
        if threshold is None or first_log < threshold:
            return []
        second, second_log = self._likeliest([*words, first])
        if (first_log + second_log) / 2 < threshold:
            return []
        locale = self.about["locale"]
        return [
            truecasing.shown(word, self._usual, locale, begins=begins and place == 0)
            for place, word in enumerate((first, second))
        ]

    def _likeliest(self, words: list[str]) -> tuple[str, float]:
        prob_V = self.probabilities(words)
        prob_V[: len(SPECIALS)] = 0.0
        best = int(prob_V.argmax())
        return self._vocabulary.words[best], float(np.log(max(prob_V[best], 1e-300)))

    def reading(self, text: str, literal: str, fits: Mapping[str, float]) -> str:
        """Best reading of touches after ``text``: a decoder's candidates rescored on the fly.

        The decoder searches by how well touches fit and, before the context is known, by ``word_scores.npy``, whose
        place the model's word for word takes here. A literal reading that is no word pays for each of its letters.

        Args:
          literal: the likeliest character of each touch.
          fits: log density of the touches under each candidate, ``literal`` among them.

        Raises:
          ValueError: the bundle is not for it, or ``fits`` lacks the literal reading.
        """
        settings = self._settings("OTF")
        if literal not in fits:
            raise ValueError(f"fits: lacks the literal reading {shown(literal)}; add how well it fits")
        with np.errstate(divide="ignore"):
            log_V = np.log(self.probabilities(unfinished(text, self.about["locale"])[0]))
        scores = {
            word: fit + settings["weight"] * log_V[self._vocabulary.index[word]]
            for word, fit in fits.items()
            if self._vocabulary.index.get(word, 0) >= len(SPECIALS)
        }
        if literal not in scores:
            spelled = log_V[UNK] - settings["spelling_nats"] * len(literal)
            scores[literal] = fits[literal] + settings["weight"] * spelled
        return max(scores, key=lambda word: scores[word])

    def _settings(self, feature: str) -> Mapping[str, Any]:
        """Settings of a feature in ``bundle.json``; ValueError if the bundle is not for that feature."""
        features = self.about.get("features")
        if not isinstance(features, dict) or not isinstance(features.get(feature), dict):
            raise ValueError(f"bundle: not published for {feature}; launch with features: [..., {feature}]")
        return features[feature]

    def predict(self, model_input: Table, params: Mapping[str, int]) -> list[list[str]]:
        """MLflow's entry: ``count`` suggestions for each row of the column ``text``.

        Raises:
          ValueError: there is no such column, a row of it is no text, or ``count`` is below 1. No message holds text.
        """
        if COLUMN not in model_input.columns:
            raise ValueError(
                f"model_input: lacks column {COLUMN!r}; give a data frame whose column {COLUMN!r} holds the text typed "
                "so far, one string a row"
            )
        if params["count"] < 1:
            raise ValueError(f"params.count: {params['count']} is no number of suggestions; give 1 or more")
        suggested = []
        for row, text in enumerate(model_input[COLUMN]):
            if not isinstance(text, str):
                raise ValueError(f"model_input: row {row} of column {COLUMN!r} is {type(text).__name__}; give a string")
            suggested.append(self.suggest(text, params["count"]))
        return suggested


def _load_pyfunc(data_path: str) -> KeyboardPredictor:
    """Entry point with which MLflow loads a registered model."""
    return KeyboardPredictor(Path(data_path))
