"""Simulate the logs of a live experiment, for a rehearsal or as test data.

Simulated typists type public text, so the logs hold nothing private; each file states that it is simulated
(``pipeline.experiments.logs``).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from evaluation.arms.arm import NextWord, neural, translated
from evaluation.arms.held_out import HeldOut, held_out
from evaluation.comparison.intervals import bucket_of
from evaluation.keyboard import script, sessions, strip, typist
from pipeline.experiments import logs
from pipeline.experiments.decide import FINISHED, begun, logs_folder
from pipeline.experiments.entries import Experiment
from pipeline.experiments.gate import LEAST_BUCKETS
from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.champion import fetched
from pipeline.publication.registry import Registry
from pipeline.run import artifacts
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from pipeline.stages.ab_arms import as_arm
from pretrain.kernel.threads import one_torch_thread
from pretrain.text import corpus
from pretrain.text import vocabulary as vocabularies
from pretrain.text.vocabulary import Vocabulary

_DEVICES, _SENTENCES = 2, 2  # devices of a bucket, and sentences of a device on a day
_ROOM = 2.0  # factor on the buckets that both arms need, as their assignment is random
_PARTS = 10_000


@dataclass(frozen=True)
class SimulatedLogs:
    """Logs of simulated typists, one file a day."""

    launch_id: str
    folder: Path
    files: tuple[Path, ...]


def simulate_logs(config: LaunchConfig, run: RunDir, settings: Settings, out: Path | None = None) -> SimulatedLogs:
    """Write the logs of a whole experiment and mark them as complete; see ``simulate``.

    Args:
      out: a folder; None for the one that ``decide`` reads.
    """
    folder = out or logs_folder(settings, run.launch_id)
    files = simulate(config, run, settings, folder)
    (folder / FINISHED).touch()
    return SimulatedLogs(run.launch_id, folder, tuple(files))


def simulate(config: LaunchConfig, run: RunDir, settings: Settings, folder: Path) -> list[Path]:
    """Write the logs of every day of an experiment, one file a day.

    The control arm has the champion from the start of the experiment or, without one, the launch's own model before
    private training.

    Raises:
      ReleaseRefused: there is no experiment.
      PermanentError: the public corpus has no validation text to type.
      ValueError: no keyboard for the locale's script.
    """
    tried = begun(config, run, PrivacyLedger.of(settings))
    # In the folders of a stage that the launch has: another would be taken for one that somebody added.
    ctx = StageContext(config, run, settings, "publish", None)
    share = tried.began.share
    keys = [f"{number:06d}" for number in range(int(np.ceil(_ROOM * LEAST_BUCKETS / share)))]
    treated_B = bucket_of(keys, run.launch_id, _PARTS) < share * _PARTS
    words, arms = _arms(ctx, tried)
    text = _dealt(_public_text(ctx), len(keys) * _DEVICES)
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with one_torch_thread():
        for day, rows in enumerate(_typed(ctx, text, words, arms, treated_B, tried)):
            made.append(folder / f"{tried.first + timedelta(days=day)}.parquet")
            table = _table(rows, keys, treated_B, tried.first + timedelta(days=day))
            logs.write(table, made[-1], simulated=True)
    return made


def _typed(
    ctx: StageContext,
    text: HeldOut,
    words: Vocabulary,
    arms: dict[str, NextWord],
    treated_B: np.ndarray,
    tried: Experiment,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield counts by bucket for each day: a device types its text once a day, with its arm's model."""
    treated_P = np.repeat(treated_B, _DEVICES)[text.device_P]
    threshold = _threshold(ctx)
    for day in range(tried.began.days):
        sums: dict[str, np.ndarray] = {}
        for arm, chosen_P in ((logs.TREATMENT, treated_P), (logs.CONTROL, ~treated_P)):
            typed = text.only(chosen_P)
            prepared = script.prepare(typed, words, ctx.config.locale, typist.MEDIAN, ctx.config.seed + day)
            session = sessions.simulate(prepared, typed, arms[arm], compose_threshold=threshold)
            counts = session.counts()
            # The actual choice, where the comparison uses its probability.
            counts["picked"] = np.bincount(session.device_P, session.how_P == strip.PICKED, session.devices)
            for name, values_D in counts.items():
                values_B = values_D.reshape(-1, _DEVICES).sum(axis=1)
                sums[name] = sums.get(name, 0.0) + values_B
        yield sums


def _table(rows: dict[str, np.ndarray], keys: list[str], treated_B: np.ndarray, day: date) -> pa.Table:
    columns = {
        "arm": [logs.TREATMENT if treated else logs.CONTROL for treated in treated_B],
        "bucket": keys,
        "day": [day] * len(keys),
        **{name: rows[name].astype(np.int64) for name in logs.COUNTS},
        "seconds": rows["seconds"],
    }
    return pa.table(columns)


def _arms(ctx: StageContext, tried: Experiment) -> tuple[Vocabulary, dict[str, NextWord]]:
    """Models of both arms for the launch's main feature, in one vocabulary."""
    registry, device = Registry(ctx.settings), ctx.config.runtime.device
    name = registry.names_of(ctx.config)[ctx.config.feature]
    candidate = fetched(ctx, registry.published(name, tried.began.versions[name]))
    control = tried.began.controls[name]
    if control is None:
        ours = as_arm(candidate, device)
        start = neural(artifacts.model(ctx, "adapt"), device=device)
        return candidate.words, {logs.TREATMENT: ours, logs.CONTROL: start}
    champion = fetched(ctx, registry.published(name, control))
    both = vocabularies.extend(candidate.words, champion.words.words, len(champion.words))
    each = {logs.TREATMENT: candidate, logs.CONTROL: champion}
    return both, {arm: translated(as_arm(model, device), model.words, both) for arm, model in each.items()}


def _public_text(ctx: StageContext) -> HeldOut:
    shards = corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).validation
    if not shards:
        raise PermanentError("experiment: the public corpus has no validation text for simulated users to type")
    return held_out(shards[0], np.arange(len(shards[0])))


def _dealt(text: HeldOut, devices: int) -> HeldOut:
    """Deal the sentences to ``devices`` in turn, starting over if there are too few."""
    chosen_S = np.resize(np.arange(len(text.starts_S)), devices * _SENTENCES)
    lengths_S = text.lengths_S[chosen_S]
    word_P = np.concatenate([text.word_P[text.starts_S[s] : text.starts_S[s] + text.lengths_S[s]] for s in chosen_S])
    starts_S = np.cumsum(lengths_S) - lengths_S
    device_S = np.repeat(np.arange(devices), _SENTENCES)
    return replace(text, word_P=word_P, starts_S=starts_S, lengths_S=lengths_S, device_S=device_S, devices=devices)


def _threshold(ctx: StageContext) -> float | None:
    """Threshold for showing phrases, the same in both arms; None if the launch is not for Smart Compose."""
    if "SC" not in ctx.config.features:
        return None
    bundle = json.loads(ctx.run.input("publish", "bundle/bundle.json").read_text(encoding="utf-8"))
    return bundle["features"]["SC"]["threshold_nats"]
