"""The champion: the published version of a locale and feature."""

import json
import logging
from dataclasses import dataclass

from pipeline.publication.registry import PublishedModel, Registry
from pipeline.run.artifacts import COUNTS
from pipeline.run.stage import StageContext
from pretrain.files import scratch
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.text import vocabulary as vocabularies
from pretrain.text.vocabulary import Vocabulary
from reports.disclosure.utility import EarlierLaunch, earlier

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Champion:
    """Published version of a locale and feature, with its models.

    Attributes:
      published: its version and launch.
      words: its own vocabulary.
      network: None if counts ship alone.
      counts: None if the network ships alone.
      earlier: its launch's disclosure; None if incomplete.
      devices: population and split of its training devices, from its disclosure; None if not stated.
    """

    published: PublishedModel
    network: KeyboardLM | None
    words: Vocabulary
    counts: CountedNGram | None
    devices: tuple[str, str] | None
    earlier: EarlierLaunch | None


def trained_on(population: dict) -> tuple[str, str] | None:
    """Population and split rule in a disclosure or a result of ``ingest_private``; None if not stated.

    The rule also covers the held-out fractions.
    """
    name, rule = population.get("name") or population.get("population"), population.get("split_rule")
    return (name, rule) if name and rule else None


def fetched(ctx: StageContext, published: PublishedModel) -> Champion:
    """Fetch a registered version, and load its models."""
    with scratch(ctx.private, "champion") as folder:
        bundle = Registry(ctx.settings).fetch(published, folder)
        words = vocabularies.load(bundle / "vocabulary.json")
        network = export.load_graph(bundle / "model.onnx") if (bundle / "model.onnx").is_file() else None
        mixed_in = counted.load(bundle / COUNTS) if (bundle / COUNTS).is_file() else None
        disclosed = json.loads((bundle / "disclosure.json").read_text(encoding="utf-8"))
    _log.info("%s: the champion is version %d of launch %s", published.name, published.version, published.launch_id)
    return Champion(published, network, words, mixed_in, trained_on(disclosed["population"]), earlier(disclosed))
