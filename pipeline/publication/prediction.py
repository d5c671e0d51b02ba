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
from pipeline.run.named import begun, begun_id
from pretrain.config import LOCALE
from pretrain.reading.paths import require_folder

_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 10_000
_BUNDLE = "give a published launch, a folder that 'publish' wrote, or a locale as in en-US"


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
      bundle: a locale, for its champion in the ledger; a bundle's folder; or a launch, by its file, its id or the
        beginning of its id.
      feature, population: of that champion; None for the population of people that published first.

    Raises:
      ValueError: there is no such bundle, the launch published none, or the text is too long.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"text: {len(text):,} characters; give at most {_MOST_CHARACTERS:,}, the end of it")
    if not re.fullmatch(LOCALE, bundle):
        bundle = _of_launch(bundle, here) or bundle
        require_folder(Path(bundle or "nothing"), "bundle", _BUNDLE)
    from pretrain.model.predictor import KeyboardPredictor  # onnxruntime is slow to import

    if Path(bundle).is_dir():
        words, known = KeyboardPredictor(Path(bundle)).suggest(text, 3), is_known_bundle(Path(bundle), here)
        if not known:
            _log.warning("%s: no launch in the ledger here registered this bundle", bundle)
        return Prediction(text, tuple(words), known)
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(here)
        got = registry.download(registry.name_for(bundle, feature, population), "champion", Path(folder))
        return Prediction(text, tuple(KeyboardPredictor(got).suggest(text, 3)), known=True)


def _of_launch(name: str, here: Settings) -> str:
    """Folder of the bundle that a launch of this machine published; empty if the name is none of a launch."""
    is_launch = name.endswith(".yaml") or any(each.startswith(name) for each in begun(here))
    if not name or not is_launch or Path(name).is_dir():
        return ""
    run_id = begun_id(name, here)
    bundle = here.runs_dir / run_id / "public" / "publish" / "bundle"
    if not bundle.is_dir():
        raise ValueError(f"launch: {run_id} has published no model; 'tacit status {run_id}' names the next step")
    return str(bundle)
