"""What stages share: earlier artifacts as values, and progress as log lines."""

import logging
from collections.abc import Callable

import torch

from federated.devices import store as population
from federated.mechanisms import Mechanism
from federated.mechanisms import mechanism_file as mechanism_files
from pipeline.config import LaunchConfig
from pipeline.run_dir import RunDir
from pipeline.stage import StageContext
from pretrain import corpus, export
from pretrain import vocabulary as vocabularies
from pretrain.model import KeyboardLM, build_model, parameter_count
from pretrain.vocabulary import TokenStream, Vocabulary, join_streams
from pretrain.words import WordStore

MECHANISM = "mechanism.json"
_log = logging.getLogger(__name__)


def progress(ctx: StageContext) -> Callable[..., None]:
    """A callback that logs the numbers of a point."""

    def log(point: dict | object) -> None:
        values = point if isinstance(point, dict) else vars(point)
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        _log.info("%s: %s", ctx.stage, ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()))

    return log


def vocabulary(ctx: StageContext, stage: str) -> Vocabulary:
    """The vocabulary that a stage wrote."""
    return vocabularies.load(ctx.run.input(stage, "vocabulary.json"))


def model(ctx: StageContext, stage: str) -> KeyboardLM:
    """The model that a stage wrote."""
    return export.load_model(ctx.run.input(stage, "model.safetensors"), ctx.config.model)


def mechanism(run: RunDir) -> Mechanism:
    """The mechanism that the plan stage wrote: the same numbers on every machine and at every retry."""
    return mechanism_files.load(run.input("plan", MECHANISM))


def most_parameters(config: LaunchConfig) -> int:
    """Size of the model if every place for a new word is taken."""
    words = config.vocabulary.base_size + config.vocabulary.max_new_words
    with torch.device("meta"):
        return parameter_count(build_model(config.model, words, config.seed))


def most_devices(ctx: StageContext) -> int:
    """Devices that training may draw from, the audit's included; its counts are known only rounded down."""
    grid = ctx.config.audit
    planted = sum(grid.users) * len(grid.examples) * grid.repeats * len(grid.populations)
    return ctx.run.result("ingest_private")["devices_by_split"]["train"] + 10 + planted


def store(ctx: StageContext) -> population.DeviceStore:
    """The private device store."""
    ctx.run.result("ingest_private")
    return population.open_store(ctx.run.private("ingest_private") / "store")


def public_streams(ctx: StageContext, words: Vocabulary) -> tuple[TokenStream, TokenStream]:
    """Public train and validation text in a vocabulary's ids."""
    opened = corpus.open_corpus(ctx.run.input("ingest_public", "corpus"))
    return _encode(opened.train, words), _encode(opened.validation, words)


def _encode(shards: list[WordStore], words: Vocabulary) -> TokenStream:
    return join_streams([shard.encode(words) for shard in shards])
