"""Counts of suggestions and of users' reactions, and the definition of each metric over them.

Simulated sessions (``evaluation.keyboard``) and logs of keyboards both use it.
"""

from collections.abc import Mapping

import numpy as np

# Candidates of the strip.
SHOWN = 3


def metrics(counts: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Numerator and denominator of each metric, by device or by bucket of devices; a metric is a ratio of their sums.

    ``prate`` and ``words_modified`` are the pick rate and the word modified ratio of Xu et al. 2023, section 3, and
    ``strip_accuracy``, ``click_through_rate`` the prediction accuracy and click-through rate beside them (Ramaswamy et
    al. 2020). A click-through rate is of candidates, and every event of the strip shows three. ``compose_trigger_rate``
    and ``compose_prate`` are the rate of offered Smart Compose phrases, and the share of them that is accepted.

    Args:
      counts: ``shown`` events of the strip; of these, ``picked`` and ``correct`` (it held the committed
        word); ``triggered`` phrases and, of these, ``accepted``; words ``committed`` and, of these, ``modified``;
        ``seconds`` of typing.
    """
    shown, committed = counts["shown"], counts["committed"]
    return {
        "prate": (counts["picked"], shown),
        "strip_accuracy": (counts["correct"], shown),
        "click_through_rate": (counts["picked"], SHOWN * shown),
        "compose_trigger_rate": (counts["triggered"], committed),
        "compose_prate": (counts["accepted"], counts["triggered"]),
        "words_modified": (counts["modified"], committed),
        "words_per_minute": (committed, counts["seconds"] / 60),
    }
