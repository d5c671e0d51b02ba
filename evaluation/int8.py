"""Comparison of the int8 and float forms of a model on held-out public text, and the decision to ship int8."""

import time
from pathlib import Path

import numpy as np
import onnxruntime

from pretrain.config import Config
from pretrain.model.export import parity
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.model.predictor import State, open_graph, step
from pretrain.text.vocabulary import PAD

# The demo's public model agrees on 0.992 of first words and 0.989 of the three best (LOG, "Evaluation and typing").
MIN_TOP1_AGREEMENT, MIN_TOP3_AGREEMENT = 0.98, 0.97
MAX_SIZE_RATIO, MAX_LATENCY_RATIO = 0.5, 1.0
_REPEATS, _WORDS = 9, 60


class Int8(Config):
    """Measurements of the int8 form, and whether it ships.

    Attributes:
      reasons: thresholds it misses, in words; empty if it ships.
      words: positions of held-out public sentences that were compared.
      top1_agreement, top3_agreement: with the float model (``export.Parity``).
      float_seconds, int8_seconds: for one word on one thread of this machine, the fastest of several runs.
    """

    shipped: bool
    reasons: tuple[str, ...]
    words: int
    top1_agreement: float
    top3_agreement: float
    max_logit_difference: float
    float_bytes: int
    int8_bytes: int
    float_seconds: float
    int8_seconds: float


def measure(model: KeyboardLM, path: Path, int8_path: Path, tokens_RT: np.ndarray) -> Int8:
    """Compare the two forms over held-out rows and judge the int8 form.

    Args:
      tokens_RT: input rows as of ``model.sentence_rows``, of public text that the model did not learn.

    Raises:
      ValueError: no token to compare.
    """
    agreed = parity(model, int8_path, tokens_RT, tolerance=None, rows_at_once=1)
    # Alternate, so that load on the machine slows both.
    opened = [open_graph(form) for form in (path, int8_path)]
    turns = [[_seconds(*form, tokens_RT) for form in opened] for _ in range(_REPEATS)]
    float_seconds, int8_seconds = (min(seconds) for seconds in zip(*turns, strict=True))
    float_bytes, int8_bytes = (form.stat().st_size for form in (path, int8_path))
    # NaN passes no threshold.
    misses = {
        f"top-1 agreement {agreed.top1_agreement:.4f}, at least {MIN_TOP1_AGREEMENT}": not (
            agreed.top1_agreement >= MIN_TOP1_AGREEMENT
        ),
        f"top-3 agreement {agreed.top3_agreement:.4f}, at least {MIN_TOP3_AGREEMENT}": not (
            agreed.top3_agreement >= MIN_TOP3_AGREEMENT
        ),
        f"size {int8_bytes / float_bytes:.2f} of the float model's, at most {MAX_SIZE_RATIO}": not (
            int8_bytes <= MAX_SIZE_RATIO * float_bytes
        ),
        f"time {int8_seconds / float_seconds:.2f} of the float model's, at most {MAX_LATENCY_RATIO}": not (
            int8_seconds <= MAX_LATENCY_RATIO * float_seconds
        ),
    }
    reasons = tuple(reason for reason, missed in misses.items() if missed)
    return Int8(
        shipped=not reasons,
        reasons=reasons,
        words=agreed.steps,
        top1_agreement=agreed.top1_agreement,
        top3_agreement=agreed.top3_agreement,
        max_logit_difference=agreed.max_abs_logit_diff,
        float_bytes=float_bytes,
        int8_bytes=int8_bytes,
        float_seconds=float_seconds,
        int8_seconds=int8_seconds,
    )


def _seconds(session: onnxruntime.InferenceSession, state: State, tokens_RT: np.ndarray) -> float:
    """Seconds for one word, on average over the first ones, one at a time as a keyboard does it."""
    tokens_N = tokens_RT[tokens_RT != PAD][:_WORDS]
    start = time.perf_counter()
    for token in tokens_N:
        _, state = step(session, np.array([token]), state)
    return (time.perf_counter() - start) / len(tokens_N)
