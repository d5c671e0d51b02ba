"""Logs of made-up devices of a live experiment with noise."""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from evaluation.live import logs

FIRST = date(2026, 11, 2)
ROW = {"shown": 10, "picked": 2, "correct": 5, "triggered": 3, "accepted": 1, "committed": 12, "modified": 1}
# Changes of a row that make it impossible.
WRONG = [
    {"picked": 6},
    {"correct": 11},
    {"accepted": 4},
    {"modified": 13},
    {"shown": -1},
    {"committed": 10**13},
    {"seconds": float("nan")},
    {"seconds": float("inf")},
    {"seconds": 0.0},
    {"seconds": 0.001},  # 0 in parts of a second
    {"shown": None},
    {"arm": "both"},
    {"arm": None},
]
_ALIKE = 20.0  # of the Beta distribution of a device's own rates


def device_logs(
    devices: int,
    days: int,
    seed: int,
    *,
    share: float = 0.5,
    words: float = 60.0,
    picks: float = 0.12,
    more_picks: float = 1.0,
    first: date = FIRST,
) -> pa.Table:
    """A row for each device and day.

    Args:
      words: typed by a device on a day, on average; geometric.
      more_picks: factor on the picks of devices with the model.
    """
    rng = np.random.default_rng(seed)
    treated_D = rng.random(devices) < share
    words_DT = rng.geometric(1 / words, (devices, days))
    rate_D = rng.beta(_ALIKE * picks, _ALIKE * (1 - picks), devices) * np.where(treated_D, more_picks, 1.0)
    modified_D = rng.beta(_ALIKE * 0.08, _ALIKE * 0.92, devices)
    picked_DT = rng.binomial(words_DT, np.minimum(rate_D, 1.0)[:, None])
    counts = {
        "shown": words_DT,
        "picked": picked_DT,
        "correct": np.maximum(picked_DT, words_DT // 2),
        "triggered": np.zeros_like(words_DT),
        "accepted": np.zeros_like(words_DT),
        "committed": words_DT,
        "modified": rng.binomial(words_DT, modified_D[:, None]),
        "seconds": words_DT * rng.gamma(10, 0.22, (devices, days)),
    }
    columns = {
        "arm": np.repeat(np.where(treated_D, logs.TREATMENT, logs.CONTROL), days),
        "device": np.repeat([f"d{number}" for number in range(devices)], days),
        "day": [first + timedelta(days=day) for day in range(days)] * devices,
        **{name: values_DT.ravel() for name, values_DT in counts.items()},
    }
    return pa.table(columns).cast(logs.DEVICE_SCHEMA)


def written(table: pa.Table, path: Path) -> Path:
    """The table as a file of logs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    logs.write(table, path, simulated=True, schema=logs.DEVICE_SCHEMA)
    return path


def table(*rows: dict) -> pa.Table:
    """Rows of device a, with changes."""
    usual = {"arm": "control", "device": "a", "day": FIRST, **ROW, "seconds": 20.0}
    return pa.Table.from_pylist([usual | row for row in rows], logs.DEVICE_SCHEMA)
