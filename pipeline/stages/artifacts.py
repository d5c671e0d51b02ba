"""Shared helpers of stages: earlier artifacts as values, and progress as log lines."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from discovery.results import FoundWord
from federated.devices import store as population
from federated.mechanisms import Mechanism
from federated.mechanisms import mechanism_file as mechanism_files
from pipeline.config import LaunchConfig
from pipeline.errors import StageInputMissing
from pipeline.preflight.shortfalls import parameters
from pipeline.registry import Had, Published, Registry
from pipeline.run_dir import RunDir
from pipeline.stage import StageContext
from pipeline.telemetry import signals
from pipeline.telemetry.allowed import two_digits
from pretrain import corpus, export, new_words, selection
from pretrain import vocabulary as vocabularies
from pretrain.files import scratch, sha256
from pretrain.model import KeyboardLM, placed
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.progress import reaching
from pretrain.vocabulary import TokenStream, Vocabulary
from pretrain.words import WordStore, encode_all
from reports.disclosure.earlier import Earlier, earlier

MECHANISM, COUNTS, RELEASED, WORDS = "mechanism.json", "counts.npz", "released.npy", "words.json"
SELECTION, SHARES, SHOWN = "selection.npy", "shares.json", "shown.json"
_log = logging.getLogger(__name__)


def progress(ctx: StageContext) -> Callable[..., None]:
    """A callback that tells the numbers of a point, of so many rounds or public steps, and telemetry of a round."""
    reach = reaching(ctx.stage)
    # A stage is given no other fields of the launch file than those that it reads.
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
            _log.info("%s: %s", ctx.stage, text)
        signals.progress(numbers)

    return tell


def vocabulary(ctx: StageContext, stage: str) -> Vocabulary:
    """The vocabulary that a stage wrote."""
    return vocabularies.load(ctx.run.input(stage, "vocabulary.json"))


def discovered_words(ctx: StageContext) -> list[FoundWord]:
    """All words of discovery, at which nobody has looked yet: none of them may be shown.

    Raises:
      StageInputMissing: they are no longer in the private folder.
    """
    path = ctx.run.private("discover") / WORDS
    if not (path.is_file() and sha256(path) == ctx.run.result("discover")["words_sha256"]):
        raise StageInputMissing(f"{path}: not the words that discovery left there; restore the file")
    return [FoundWord.model_validate(entry) for entry in json.loads(path.read_text(encoding="utf-8"))["words"]]


def added_words(ctx: StageContext) -> tuple[str, ...]:
    """The discovered words that were kept: those that the grown vocabulary has beyond the public one.

    Guarantee: what a blocklist, a filter or a person dropped is not among them, whoever asks.
    """
    base, grown = vocabulary(ctx, "ingest_public"), vocabulary(ctx, "build_vocabulary")
    return grown.words[len(base) :]


def shown_words(ctx: StageContext) -> tuple[str, ...]:
    """``added_words`` as devices mostly type them."""
    return tuple(json.loads(ctx.run.input("build_vocabulary", SHOWN).read_text(encoding="utf-8")))


def frequencies(ctx: StageContext, public: TokenStream) -> np.ndarray:
    """Frequency of each discovered word, float64, as far as discovery states it.

    Args:
      public: train text in ids of the grown vocabulary.
    """
    shares = np.array(json.loads(ctx.run.input("build_vocabulary", SHARES).read_text(encoding="utf-8")), np.float64)
    return new_words.frequencies(shares, public, len(vocabulary(ctx, "ingest_public")))


def model(ctx: StageContext, stage: str) -> KeyboardLM:
    """The model that a stage wrote."""
    return export.load_model(ctx.run.input(stage, "model.safetensors"), ctx.config.model)


def on_device(ctx: StageContext, model: KeyboardLM) -> KeyboardLM:
    """A model where everything that trains or scores does so, ``runtime.device``.

    Raises:
      OSError: a GPU is asked for where there is none.
    """
    return placed(model, ctx.config.runtime.device)


def counts(ctx: StageContext) -> CountedNGram | None:
    """The model that counts made; None where the launch asked for none."""
    return None if ctx.config.counts is None else counted.load(ctx.run.input("count", COUNTS))


def mechanism(run: RunDir) -> Mechanism:
    """The mechanism that the plan stage wrote: the same numbers on every machine and at every retry."""
    return mechanism_files.load(run.input("plan", MECHANISM))


def most_parameters(config: LaunchConfig) -> int:
    """Size of the model if every place for a new word is taken."""
    return parameters(config, config.vocabulary.base_size + config.vocabulary.max_new_words)


def most_devices(ctx: StageContext) -> int:
    """Devices that training may draw from, the launch's canaries included; counts are known only rounded down."""
    grid = ctx.config.audit
    planted = sum(grid.users) * len(grid.examples) * grid.repeats * len(grid.launched)
    return ctx.run.result("ingest_private")["devices_by_split"]["train"] + 10 + planted


def heard(ctx: StageContext) -> int | None:
    """Test devices with a word; None under a budget for evaluation, where nobody asks."""
    return store(ctx).speaking("test") if ctx.config.evaluation is None else None


def store(ctx: StageContext) -> population.DeviceStore:
    """The private device store.

    Raises:
      StageInputMissing: unfinished, damaged or gone.
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
    """Public train and validation text in a vocabulary's ids; train text as it was selected."""
    opened = corpus.open_corpus(ctx.run.input("ingest_public", "corpus"))
    train, validation = encode(opened.train, words), encode(opened.validation, words)
    if ctx.config.public_text.select_by == "champion":
        train = selection.resampled(train, np.load(ctx.run.input("ingest_public", SELECTION)))
    return train, validation


def encode(shards: list[WordStore], words: Vocabulary) -> TokenStream:
    """Shards in a vocabulary's ids, as one stream."""
    return encode_all(shards, words)


def published_before(ctx: StageContext) -> Had:
    """Versions that users of this locale, population and each feature of the launch have without this launch."""
    registry = Registry(ctx.settings)
    population = ctx.population or ctx.config.population
    names = {feature: registry.name_for(ctx.config.locale, feature, population) for feature in ctx.config.features}
    had = {feature: registry.champion_before(name, ctx.run.launch_id) for feature, name in names.items()}
    return {feature: published for feature, published in had.items() if published is not None}


@dataclass(frozen=True)
class Champion:
    """Registered version that users of a locale and feature have.

    Attributes:
      published: version and launch.
      words: its own vocabulary.
      network: None where counts ship alone.
      counts: None where the network ships alone.
      earlier: what its disclosure says of its launch; None where it does not say it all.
      devices: whom it trained on, as its disclosure says: population and split; None where it does not say.
    """

    published: Published
    network: KeyboardLM | None
    words: Vocabulary
    counts: CountedNGram | None
    devices: tuple[str, str] | None
    earlier: Earlier | None


def trained_on(population: dict) -> tuple[str, str] | None:
    """Population and rule of its splits, of a disclosure or ``ingest_private``; None where it does not say.

    The rule says also how many devices are held out.
    """
    name, rule = population.get("name") or population.get("population"), population.get("split_rule")
    return (name, rule) if name and rule else None


def champion(ctx: StageContext, published: Published) -> Champion:
    """A registered version, fetched."""
    with scratch(ctx.private, "champion") as folder:
        bundle = Registry(ctx.settings).fetch(published, folder)
        words = vocabularies.load(bundle / "vocabulary.json")
        network = export.load_graph(bundle / "model.onnx") if (bundle / "model.onnx").is_file() else None
        mixed_in = counted.load(bundle / COUNTS) if (bundle / COUNTS).is_file() else None
        disclosed = json.loads((bundle / "disclosure.json").read_text(encoding="utf-8"))
    _log.info("%s: the champion is version %d of launch %s", published.name, published.version, published.launch_id)
    return Champion(published, network, words, mixed_in, trained_on(disclosed["population"]), earlier(disclosed))


def published_then(
    ctx: StageContext, stated: Mapping[str, Any] | None, others: Mapping[str, Mapping[str, Any] | None] | None = None
) -> Callable[[StageContext], Had]:
    """The registered versions that a stage says it used, for the main feature and for others."""

    def then(_: StageContext) -> Had:
        named = {ctx.config.feature: stated, **(others or {})}
        return {
            feature: Registry(ctx.settings).published(each["registered_model"], each["version"])
            for feature, each in named.items()
            if each is not None
        }

    return then
