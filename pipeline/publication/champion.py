"""The registered version that users of a locale and feature have."""

import json
import logging
from dataclasses import dataclass

from pipeline.publication.registry import PublishedModel, Registry
from pipeline.run.artifacts import COUNTS
from pipeline.run.stage import StageContext
from pretrain import export
from pretrain import vocabulary as vocabularies
from pretrain.files import scratch
from pretrain.model import KeyboardLM
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.vocabulary import Vocabulary
from reports.disclosure.utility import EarlierLaunch, earlier

_log = logging.getLogger(__name__)


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

    published: PublishedModel
    network: KeyboardLM | None
    words: Vocabulary
    counts: CountedNGram | None
    devices: tuple[str, str] | None
    earlier: EarlierLaunch | None


def trained_on(population: dict) -> tuple[str, str] | None:
    """Population and rule of its splits, of a disclosure or ``ingest_private``; None where it does not say.

    The rule says also how many devices are held out.
    """
    name, rule = population.get("name") or population.get("population"), population.get("split_rule")
    return (name, rule) if name and rule else None


def fetched(ctx: StageContext, published: PublishedModel) -> Champion:
    """A registered version, fetched."""
    with scratch(ctx.private, "champion") as folder:
        bundle = Registry(ctx.settings).fetch(published, folder)
        words = vocabularies.load(bundle / "vocabulary.json")
        network = export.load_graph(bundle / "model.onnx") if (bundle / "model.onnx").is_file() else None
        mixed_in = counted.load(bundle / COUNTS) if (bundle / COUNTS).is_file() else None
        disclosed = json.loads((bundle / "disclosure.json").read_text(encoding="utf-8"))
    _log.info("%s: the champion is version %d of launch %s", published.name, published.version, published.launch_id)
    return Champion(published, network, words, mixed_in, trained_on(disclosed["population"]), earlier(disclosed))
