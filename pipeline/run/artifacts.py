"""Shared helpers of stages: earlier artifacts as values, and progress as log lines."""

import json
import logging
from collections.abc import Callable

import numpy as np

from discovery.results import FoundWord
from federated.devices import store as population
from federated.mechanisms import Mechanism
from federated.mechanisms import mechanism_file as mechanism_files
from pipeline.ground.errors import StageInputMissing
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from pipeline.telemetry import signals
from pipeline.telemetry.allowed import two_digits
from pretrain.files import sha256
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM, placed
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.progress import reaching
from pretrain.text import corpus
from pretrain.text import vocabulary as vocabularies
from pretrain.text.vocabulary import TokenStream, Vocabulary
from pretrain.text.words import WordStore, encode_all

MECHANISM, COUNTS, RELEASED, WORDS = "mechanism.json", "counts.npz", "released.npy", "words.json"
START = "start.safetensors"
FREQUENCIES, SHOWN = "frequencies.json", "shown.json"
_log = logging.getLogger(__name__)


def progress(ctx: StageContext, what: str = "") -> Callable[..., None]:
    """Return a progress callback: it logs the numbers of a round or public step, and reports rounds to telemetry.

    Args:
      what: name of a training that is not the stage's only one.
    """
    named = f"{ctx.stage}, {what}" if what else ctx.stage
    reach = reaching(named)
    # A stage gets only the fields of the launch file that it declares.
    steps = getattr(ctx.config, ctx.stage).steps if ctx.stage in ("pretrain", "adapt") else 0

    def tell(point: dict | object) -> None:
        values = point if isinstance(point, dict) else vars(point)
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        numbers |= {"seconds": two_digits(numbers["seconds"])} if "seconds" in numbers else {}
        done, total = numbers.get("round", numbers.get("step", 0)), numbers.get("rounds", steps)
        text = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        if total:
            reach(done / total, text)
        else:
            _log.info("%s: %s", named, text)
        signals.progress(numbers)

    return tell


def vocabulary(ctx: StageContext, stage: str) -> Vocabulary:
    """Load the vocabulary that a stage wrote."""
    return vocabularies.load(ctx.run.input(stage, "vocabulary.json"))


def discovered_words(ctx: StageContext) -> list[FoundWord]:
    """Load all discovered words, before any review or filter: none of them may be shown.

    Raises:
      StageInputMissing: they are no longer in the private folder.
    """
    path = ctx.run.private("discover") / WORDS
    if not (path.is_file() and sha256(path) == ctx.run.result("discover")["words_sha256"]):
        raise StageInputMissing(f"{path}: not the words that discovery wrote; restore the file")
    return [FoundWord.model_validate(entry) for entry in json.loads(path.read_text(encoding="utf-8"))["words"]]


def added_words(ctx: StageContext) -> tuple[str, ...]:
    """Accepted discovered words: those that the grown vocabulary has beyond the public one.

    Guarantee: a word that a blocklist, a filter or a person dropped is never among them.
    """
    base, grown = vocabulary(ctx, "ingest_public"), vocabulary(ctx, "build_vocabulary")
    return grown.words[len(base) :]


def shown_words(ctx: StageContext) -> tuple[str, ...]:
    """Return ``added_words`` in their typical typed form."""
    return tuple(json.loads(ctx.run.input("build_vocabulary", SHOWN).read_text(encoding="utf-8")))


def frequencies(ctx: StageContext) -> np.ndarray:
    """Share of each added word among all typed words, float64."""
    return np.array(json.loads(ctx.run.input("build_vocabulary", FREQUENCIES).read_text(encoding="utf-8")), np.float64)


def model(ctx: StageContext, stage: str) -> KeyboardLM:
    """Load the model that a stage wrote."""
    return export.load_model(ctx.run.input(stage, "model.safetensors"), ctx.config.model)


def training_start(ctx: StageContext) -> KeyboardLM:
    """The network that the first round of a finished training began with: of public text, or that moved by counts."""
    if not ctx.config.counts_move_start:
        return model(ctx, "adapt")
    return export.load_model(ctx.run.input("fine_tune", START), ctx.config.model)


def on_device(ctx: StageContext, model: KeyboardLM) -> KeyboardLM:
    """Move a model to ``runtime.device``, where it trains and scores.

    Raises:
      OSError: the launch file asks for a GPU and this machine has none.
    """
    return placed(model, ctx.config.runtime.device)


def counts(ctx: StageContext) -> CountedNGram | None:
    """Load the model made from counts; None if the launch has no counts."""
    return None if ctx.config.counts is None else counted.load(ctx.run.input("count", COUNTS))


def mechanism(run: RunDir) -> Mechanism:
    """Load the mechanism that the plan stage wrote: the same numbers on every machine and at every retry."""
    return mechanism_files.load(run.input("plan", MECHANISM))


def store(ctx: StageContext) -> population.DeviceStore:
    """Open the private device store.

    Raises:
      StageInputMissing: it is unfinished, damaged or gone.
    """
    ctx.run.result("ingest_private")
    folder = ctx.run.private("ingest_private")
    try:
        return population.open_store(folder / "store")
    except ValueError as error:
        raise StageInputMissing(
            f"{error}: restore {folder}, or delete it and run stage 'ingest_private' again"
        ) from error


def public_streams(ctx: StageContext, words: Vocabulary) -> tuple[TokenStream, TokenStream]:
    """Public train and validation text as ids of a vocabulary."""
    opened = corpus.open_corpus(ctx.run.input("ingest_public", "corpus"))
    return encode(opened.train, words), encode(opened.validation, words)


def validation_text(ctx: StageContext) -> WordStore:
    """Public text on which no model of the launch was trained."""
    return corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).validation[0]


def encode(shards: list[WordStore], words: Vocabulary) -> TokenStream:
    """Encode text shards as one stream of a vocabulary's ids."""
    return encode_all(shards, words)
