"""What all arms of ``learning_curves.py`` share: vocabulary and first model from public text, devices, held-out text.

The model has the paper's size (Xu et al. 2023, section 2: embedding 96, hidden 670, 2.4M parameters with
10,000 words). Everything is cached in a work folder, so a killed benchmark goes on where it was.
"""

import copy
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from federated.config.population import FilePopulation
from federated.devices import store as population
from pretrain.config import ModelConfig, PretrainConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.text import sentences
from pretrain.train import evaluate, pretrain
from pretrain.vocabulary import UNK, TokenStream, Vocabulary, from_counts
from pretrain.words import open_words, write_words

SEED, LOCALE = 1, "en-US"
VOCABULARY, MODEL = 10_000, ModelConfig(embedding_dim=96, hidden_dim=670, tied=False)
WORDS_A_DEVICE, TEST = 1_000, 0.05
CURVE_DEVICES, PUBLIC_HELD_OUT = 40, 50
PRETRAIN = PretrainConfig(
    steps=5_000,
    batch_sentences=32,
    sequence_words=20,
    learning_rate=3e-3,
    evaluate_every_steps=500,
    checkpoint_every_steps=500,
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """Where every arm begins.

    Attributes:
      vocabulary: the most frequent words of the public text.
      scratch, pretrained: the same model before and after training on public text.
      devices: devices to train on.
      curve: held-out devices that every point of a curve is measured on.
      final: other held-out devices, for the last models alone.
      public_words, coverage: words of public text; share of held-out words that the vocabulary holds.
      final_loss, final_top1: of pretraining, on held-out public text.
    """

    vocabulary: Vocabulary
    scratch: KeyboardLM
    pretrained: KeyboardLM
    devices: TokenStream
    curve: TokenStream
    final: TokenStream
    public_words: int
    coverage: float
    final_loss: float
    final_top1: float


def make(users: Path, public: Path, work: Path) -> Setting:
    """Read, count and pretrain, or find it done in ``work``."""
    if not (work / "public" / "meta.json").exists():
        write_words(work / "public", _documents(public))
    text = open_words(work / "public")
    vocabulary = from_counts(text.word_counts(), VOCABULARY)
    config = FilePopulation(
        source="files",
        paths=(str(users),),
        name="users",
        max_words_per_device=WORDS_A_DEVICE,
        test_fraction=TEST,
    )
    if not (work / "store" / "store.json").exists():
        population.build_store(config, LOCALE, SEED, work / "store")
    store = population.open_store(work / "store")
    scratch = build_model(MODEL, len(vocabulary), SEED)
    pretrained, stream = copy.deepcopy(scratch), text.encode(vocabulary)
    training = pretrain(
        PRETRAIN,
        pretrained,
        stream.select(np.arange(PUBLIC_HELD_OUT, len(stream))),
        stream.select(np.arange(PUBLIC_HELD_OUT)),
        work / "pretrain",
        SEED,
        on_progress=lambda point: _log.info("pretraining %s", point),
    )
    curve, final = store.encode(vocabulary, "validation"), store.encode(vocabulary, "test")
    last = training.points[-1]
    return Setting(
        vocabulary=vocabulary,
        scratch=scratch,
        pretrained=pretrained,
        devices=store.encode(vocabulary, "train"),
        curve=curve.select(np.arange(min(CURVE_DEVICES, len(curve)))),
        final=final,
        public_words=text.num_words,
        coverage=known_words(final) / int(np.sum(final.tokens_N >= UNK)),
        final_loss=last.validation_loss,
        final_top1=last.validation_top1,
    )


def known_words(stream: TokenStream) -> int:
    """Words of the vocabulary in a text, sentence ends not counted."""
    return int(np.sum(stream.tokens_N > UNK))


def start_point(model: KeyboardLM, curve: TokenStream, sequence_words: int) -> dict[str, float]:
    """The first point of a curve, of which ``fine_tune`` tells only at its end."""
    loss, top1 = evaluate(model, curve, sequence_words)
    recall = top1 * known_words(curve) / int(np.sum(curve.tokens_N >= UNK))
    return {"round": 0, "validation_top1": top1, "validation_recall": recall, "validation_loss": loss}


def hits_by_device(model: KeyboardLM, devices: TokenStream, sequence_words: int) -> list[int]:
    """Next words of the vocabulary that the model has right, of each device."""
    each = [devices.select(np.array([device])) for device in range(len(devices))]
    return [round(evaluate(model, own, sequence_words)[1] * known_words(own)) for own in each]


def _documents(path: Path) -> Iterator[list[list[str]]]:
    for text in pq.read_table(path, columns=["text"])["text"].to_pylist():
        yield sentences(text, LOCALE)
