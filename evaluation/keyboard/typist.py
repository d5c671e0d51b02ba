"""Simulated typists: three calibrations of a population, and the traits of each device, drawn once.

Shape legend: D devices.

``tests/helpers/typing/published_ranges.py`` and benchmarks/results/typist.md list the source of each parameter and the
ranges that the simulation must meet. Simulated rates are proxies that compare arms; none of the three calibrations may
contradict a conclusion.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from evaluation.keyboard.randomness import normal
from pretrain.config import Config


class Calibration(Config):
    """Medians over devices; probabilities are per opportunity.

    Attributes:
      touch_std: spread of touches around a key's centre, in key widths; half a key is about 2 of it.
      offset_std: spread of a device's mean offset, in key widths.
      key_seconds: between touches.
      look, pick: looks at the strip before a word; picks the word when it is there and was seen.
      key_look, key_pick: the same after each key of a word.
      inspect_seconds: duration of a look.
      notice_key: notices and deletes a touch on a wrong key.
      notice: notices and repairs a word that the keyboard made wrong.
      notice_typed: the same for a wrong word that was left as typed.
      compose_pick: accepts a correct phrase.
      slip: a letter left out, doubled, or swapped with the next; each, per letter.
      hold: holds the key to type an accent.
    """

    name: str
    touch_std: float
    offset_std: float
    key_seconds: float
    look: float
    pick: float
    key_look: float
    key_pick: float
    inspect_seconds: float
    notice_key: float
    notice: float
    notice_typed: float
    compose_pick: float
    slip: float
    hold: float


MEDIAN = Calibration(
    name="median",
    touch_std=0.247,
    offset_std=0.04,
    key_seconds=0.235,
    look=0.58,
    pick=0.52,
    key_look=0.1,
    key_pick=0.52,
    inspect_seconds=0.3,
    notice_key=0.68,
    notice=0.88,
    notice_typed=0.5,
    compose_pick=0.5,
    slip=0.003,
    hold=0.5,
)
FAST = MEDIAN.model_copy(
    update={
        "name": "fast",
        "touch_std": 0.225,
        "key_seconds": 0.18,
        "look": 0.35,
        "key_look": 0.04,
        "notice": 0.95,
        "notice_typed": 0.6,
    }
)
SLOPPY = MEDIAN.model_copy(
    update={
        "name": "sloppy",
        "touch_std": 0.28,
        "offset_std": 0.08,
        "key_seconds": 0.27,
        "look": 0.7,
        "key_look": 0.12,
        "notice_key": 0.45,
        "notice": 0.7,
        "notice_typed": 0.3,
        "slip": 0.006,
        "hold": 0.2,
    }
)
CALIBRATIONS = (MEDIAN, FAST, SLOPPY)

_SPREAD = {"touch_std": 0.2, "key_seconds": 0.25}  # of the logarithm
_CHANCES = ("look", "pick", "key_look", "key_pick", "notice_key", "notice", "notice_typed", "compose_pick", "hold")
_CHANCE_SPREAD = 0.6  # of the log-odds


@dataclass(frozen=True)
class Traits:
    """Habits of each device, ``[D]``; the names are those of the calibration, plus ``offset_x`` and ``offset_y``."""

    touch_std: np.ndarray
    offset_x: np.ndarray
    offset_y: np.ndarray
    key_seconds: np.ndarray
    look: np.ndarray
    pick: np.ndarray
    key_look: np.ndarray
    key_pick: np.ndarray
    notice_key: np.ndarray
    notice: np.ndarray
    notice_typed: np.ndarray
    compose_pick: np.ndarray
    hold: np.ndarray


def draw(calibration: Calibration, devices: int, seed: int) -> Traits:
    """Traits of each device: the same for every arm, and independent of the number of devices."""
    number_D = np.arange(devices)
    traits = {
        name: getattr(calibration, name) * np.exp(spread * normal(seed, f"trait {name}", number_D))
        for name, spread in _SPREAD.items()
    }
    for name in _CHANCES:
        odds_D = logit(getattr(calibration, name)) + _CHANCE_SPREAD * normal(seed, f"trait {name}", number_D)
        traits[name] = expit(odds_D)
    for axis in ("x", "y"):
        traits[f"offset_{axis}"] = calibration.offset_std * normal(seed, f"trait offset {axis}", number_D)
    return Traits(**traits)
