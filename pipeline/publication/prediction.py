"""Predict next words with a bundle, or with the champion of a locale."""

import logging
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from federated.config.population import PopulationKey
from pipeline.ground.settings import Settings
from pipeline.publication.registry import Registry
from pipeline.run.known import is_known_bundle
from pretrain.config import LOCALE
from pretrain.reading.paths import require_folder

_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 10_000
_BUNDLE = "give a folder that 'publish' wrote, or a locale as in en-US"


@dataclass(frozen=True)
class Prediction:
    """The likeliest next words in their typical form, likeliest first.

    Attributes:
      known: True if the ledger holds the bundle as one that a launch registered.
    """

    text: str
    words: tuple[str, ...]
    known: bool


def predict(
    bundle: str, text: str, here: Settings, feature: str = "NWP", population: PopulationKey | None = None
) -> Prediction:
    """Predict the three likeliest next words.

    Args:
      bundle: a bundle's folder, or a locale, for the champion in the ledger.
      feature, population: of that champion; None for the population of people that published first.

    Raises:
      ValueError: there is no such bundle, or the text is too long.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"text: {len(text):,} characters; give at most {_MOST_CHARACTERS:,}, the end of it")
    if not re.fullmatch(LOCALE, bundle):
        require_folder(Path(bundle or "nothing"), "bundle", _BUNDLE)
    from pretrain.predictor import KeyboardPredictor  # onnxruntime is slow to import

    if Path(bundle).is_dir():
        words, known = KeyboardPredictor(Path(bundle)).suggest(text, 3), is_known_bundle(Path(bundle), here)
        if not known:
            _log.warning("%s: no launch in the ledger here registered this bundle", bundle)
        return Prediction(text, tuple(words), known)
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(here)
        got = registry.download(registry.name_for(bundle, feature, population), "champion", Path(folder))
        return Prediction(text, tuple(KeyboardPredictor(got).suggest(text, 3)), known=True)
