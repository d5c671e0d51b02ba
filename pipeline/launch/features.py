"""Settings that a bundle holds for each feature of its launch: thresholds, weights, word scores.

All settings are post-processing of the released model, public text and released comparison results, so another feature
costs no device any privacy.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evaluation.comparison.results import ComposeSetting
from evaluation.config import HISTORY_WEIGHT
from evaluation.keyboard.sessions import PHRASE_WORDS, WEIGHT
from evaluation.keyboard.strip import SHOWN, SPELLING_NATS
from pretrain.dictionary.from_model import Arm, word_scores
from pretrain.files import write_array
from pretrain.ngrams.counted import NETWORK_SHARE

WORD_SCORES = "word_scores.npy"
OURS = "private"
_NETWORK_WEIGHTS = {"network": 1.0, "mixture": NETWORK_SHARE, "counts": 0.0}


def write(
    features: tuple[str, ...],
    arm: Arm,
    compose: Sequence[ComposeSetting],
    folder: Path,
    ships: str,
) -> dict[str, Any]:
    """Return each feature's settings for ``bundle.json``, and write its files into the bundle's folder.

    Args:
      compose: thresholds that the comparison set for Smart Compose; empty without this feature.
      ships: the model in the bundle: network, counts, or their mixture.

    Raises:
      ValueError: the comparison set no threshold for Smart Compose.
    """
    settings: dict[str, Any] = {}
    if "NWP" in features:
        settings["NWP"] = {"suggestions": SHOWN, "history_weight": HISTORY_WEIGHT}
        settings["NWP"] |= {"network_weight": _NETWORK_WEIGHTS[ships]}
    if "SC" in features:
        settings["SC"] = _compose(compose)
    if "OTF" in features:
        write_array(folder / WORD_SCORES, word_scores(arm))
        settings["OTF"] = {"weight": WEIGHT, "spelling_nats": SPELLING_NATS, "word_scores": WORD_SCORES}
    return settings


def compose_settings(comparison: Path) -> tuple[ComposeSetting, ...]:
    """Load the thresholds for Smart Compose from ``comparison.json``."""
    rows = json.loads(comparison.read_text(encoding="utf-8"))["compose"]
    return TypeAdapter(tuple[ComposeSetting, ...]).validate_python(rows)


def _compose(rows: Sequence[ComposeSetting]) -> Mapping[str, Any]:
    """Return the threshold at which the comparison judged the launch's own arm."""
    row = next((row for row in rows if row.arm == OURS), None)
    if row is None:
        raise ValueError("features: SC, but the comparison set no threshold for phrases; run stage ab_test again")
    return {
        "threshold_nats": row.threshold_nats,
        "phrase_words": PHRASE_WORDS,
        "equal": row.equal,
        "trigger_rate": row.trigger_rate,
    }
