"""Inputs of the audit of a live experiment under a budget: rows of the logs, cells, and the release."""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evaluation.audit.released.live import COUNTS, LiveCells, Rows, live_audit
from evaluation.audit.verdict import Verdict
from evaluation.live import logs, noisy
from evaluation.noisy.questions import MOST_WORDS, WORDS
from evaluation.noisy.typing_metrics import SECONDS_A_WORD
from pipeline.experiments.release import RELEASED, bound_digest
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication import experiment
from pipeline.releases.release import asked_for
from pipeline.run.stage import StageContext

_COLUMNS = {
    WORDS: ("", MOST_WORDS),
    "typed_words": ("committed", 1.0),
    "shown": ("shown", 1.0),
    "typing_time": ("seconds", 1 / SECONDS_A_WORD),
    "prate": ("picked", 1.0),
    "words_modified": ("modified", 1.0),
    "compose_trigger_rate": ("triggered", 1.0),
    "compose_prate": ("accepted", 1.0),
}


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on the released sums over the devices of an experiment, in the context of its release."""
    config, ledger = ctx.config, PrivacyLedger.of(ctx.settings)
    tried = experiment.of(config, ctx.run.launch_id, ledger.entries_of_launch(ctx.run.launch_id))
    assert tried is not None, "the experiment has begun"
    kept = json.loads((ctx.private / RELEASED).read_text(encoding="utf-8"))
    paths, reserved = [Path(path) for path in kept["files"]], ledger.reserved(ctx.run.launch_id, ctx.stage)
    days = tried.began.days
    return live_audit(
        np.array(kept["sums"]),
        rows_of(paths, tried.first, days),
        cells_of(config.features, days),
        asked_for(asked_for(config.experiment).noise_multiplier),
        noisy.layout(config.features).clip_norm,
        ctx.noise_key,
        bound_digest(ctx.noise_key, (logs.digest(path) for path in paths)),
        "" if reserved is None else reserved.names("logs"),
    )


def cells_of(features: Sequence[str], days: int) -> LiveCells:
    """Cells of one arm, which follow from the features and the number of days."""
    layout = noisy.layout(features)
    place = {name: number for number, name in enumerate(layout.weights)}
    return LiveCells(
        sums=[(*_COLUMNS[name], place[layout.units[name]], weight) for name, weight in layout.weights.items()],
        products=[(place[one], place[other], weight) for (one, other), weight in layout.products.items()],
        days=days,
        day_weight=noisy.day_weight(days),
        most_words=MOST_WORDS,
    )


def rows_of(paths: Sequence[Path], first: date, days: int) -> Rows:
    """Rows of log files that name a device and a day of an experiment.

    Args:
      first, days: the experiment's window.
    """
    names = ["arm", "device", "day", *COUNTS, "seconds"]
    table = pa.concat_tables([pq.read_table(path, columns=names) for path in paths], promote_options="permissive")
    key = table["device"].cast(pa.string())
    day = pc.subtract(table["day"].cast(pa.int32()), (first - date(1970, 1, 1)).days)
    length = pc.binary_length(key)
    named = pc.and_(pc.greater(length, 0), pc.less_equal(length, logs.MOST_KEY_BYTES))
    within = pc.and_(pc.greater_equal(day, 0), pc.less(day, days))
    kept_R = pc.fill_null(pc.and_(named, within), False)
    table, key, day = table.filter(kept_R), key.filter(kept_R), day.filter(kept_R)
    arm_R = pc.fill_null(pc.index_in(table["arm"].cast(pa.string()), pa.array(logs.ARMS)), -1)
    values = {name: table[name].cast(pa.float64(), safe=False) for name in (*COUNTS, "seconds")}
    return Rows(
        device_R=key.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64),
        day_R=day.to_numpy().astype(np.int64),
        arm_R=arm_R.to_numpy(),
        values={name: pc.fill_null(column, float("nan")).to_numpy() for name, column in values.items()},
    )
