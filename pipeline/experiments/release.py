"""The release of a live experiment under a budget: noisy sums over devices, made once and kept for every retry.

The loss is reserved before the logs are read, and the reservation is bound to their digests: the same noise on the sums
of another export would reveal the difference of the two.
"""

import hmac
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.live import devices, logs, noisy
from federated.counts.bounded_sum import released_sum
from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.ledger.entries import AS_OF
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.spend import Spend
from pipeline.publication.experiment import Experiment
from pipeline.releases.experiment import EXPERIMENT, STAGE
from pipeline.releases.release import asked_for
from pipeline.run.population import asked
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext, commitment, release_key
from pipeline.stages.audit_releases import audited
from pretrain.files import PRIVATE, write_text
from pretrain.randomness import noise
from pretrain.reading import rows
from pretrain.reading.paths import shown
from reports.disclosure.findings import ReleaseAudit, ReleaseVerdict

STREAM = "experiment"
RELEASED = "released.json"


@dataclass(frozen=True)
class LogFiles:
    """Log files of one export, in the order of their digests, so that a release does not depend on their names."""

    paths: tuple[Path, ...]
    digests: tuple[str, ...]
    simulated: bool


@dataclass(frozen=True)
class LiveRelease:
    """A release with its spend, the hashes of its ledger entries and the verdicts of its audit.

    Attributes:
      logs: digest of its files, as the reservation binds it.
    """

    sums_U: np.ndarray
    logs: str
    spend: Spend
    ledger: dict[str, str]
    audit: ReleaseAudit


def bound_digest(key: bytes, digests: Iterable[str]) -> str:
    """Digest of the digests of log files, in any order, to which a reservation is bound.

    Guarantee: without the secret key nobody can test a guess of one device's rows against it.
    """
    return hmac.digest(noise.subkey(key, "log files"), "\n".join(sorted(digests)).encode(), "sha256").hex()


def log_files(patterns: Iterable[str]) -> LogFiles:
    """Return the log files of paths or globs; opens no row.

    Raises:
      ValueError: no such file, other columns or types, or one file twice.
    """
    paths = rows.matching(list(patterns), logs.FIELD)
    simulated = [logs.require_schema(path, logs.DEVICE_SCHEMA) for path in paths]
    by_digest: dict[str, Path] = {}
    for path in paths:
        other = by_digest.setdefault(logs.digest(path), path)
        if other != path:
            raise ValueError(f"{logs.FIELD}: {shown(path)} is a copy of {shown(other)}; give each file once")
    digests = tuple(sorted(by_digest))
    return LogFiles(tuple(by_digest[digest] for digest in digests), digests, any(simulated))


def release(config: LaunchConfig, run: RunDir, settings: Settings, tried: Experiment, files: LogFiles) -> LiveRelease:
    """Reserve the loss, release the sums, commit, and audit the release.

    Guarantee: that of ``released_sum`` for one device of any split, at the launch file's noise multiplier, under a key
    whose noise is drawn for the files of one reservation only. A retry is the same release. No value that can be
    decoded is an error.

    Raises:
      BudgetExceeded: the population's budget has no room left.
      ReleaseRefused: the reservation is bound to other files.
      ValueError: a file is damaged; the reservation is given back, as nothing was released.
    """
    ledger, key = PrivacyLedger.of(settings), release_key(config, run, STAGE)
    before, bound = ledger.reserved(run.launch_id, STAGE), bound_digest(key, files.digests)
    if before is not None and before.names("logs") != bound:
        raise ReleaseRefused(
            f"{logs.FIELD}: the reservation of {run.launch_id} is bound to other files, and the same noise on the sums "
            "of two exports reveals their difference; give the files of the first decision, or stop the experiment: "
            f"tacit experiment stop {run.launch_id} --reason ..."
        )
    spend = EXPERIMENT.paid(config, {})
    reserved = ledger.reserve(
        population=config.population,
        launch_id=run.launch_id,
        stage=STAGE,
        spend=spend,
        asked=asked(config),
        binding={
            "config": config_digest(config),
            **commitment(config, key),
            "logs": bound,
            # The window of the spend holds every day of the logs.
            AS_OF: tried.first.isoformat(),
        },
    )
    ledger.witnessed()  # before noise is drawn: a ledger that was set back is found here
    try:
        sums_U = _sums(config, run, tried, files, key)
    except ValueError:
        if not (run.private(STAGE) / RELEASED).exists():
            ledger.release(run.launch_id, STAGE, "its logs are damaged")
        raise
    commit = ledger.commit(run.launch_id, STAGE, spend)
    ctx = StageContext(config, run, settings, STAGE, None, config.population)
    verdicts = tuple(ReleaseVerdict.model_validate(vars(verdict)) for verdict in audited(ctx, EXPERIMENT))
    audit = ReleaseAudit(stage=STAGE, made_by=run.launch_id, cited=None, verdicts=verdicts)
    return LiveRelease(sums_U, bound, spend, {"reserve": reserved.hash, "commit": commit.hash}, audit)


def _sums(config: LaunchConfig, run: RunDir, tried: Experiment, files: LogFiles, key: bytes) -> np.ndarray:
    """The released sums: as kept, or made and kept before anything is shown."""
    path = run.private(STAGE) / RELEASED
    if not path.is_file():
        days, noise_multiplier = tried.began.days, asked_for(asked_for(config.experiment).noise_multiplier)

        def made() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            # Read once the noise is drawn.
            yield from noisy.contributions(devices.read(files.paths, tried.first, days), config.features)

        clip_norm = noisy.layout(config.features).clip_norm
        size = noisy.size(config.features, days)
        sums_U = released_sum(made(), size, noise_multiplier, key, STREAM, clip_norm)
        content = {"sums": sums_U.tolist(), "files": [str(each) for each in files.paths]}
        write_text(path, json.dumps(content), PRIVATE)
    return np.array(json.loads(path.read_text(encoding="utf-8"))["sums"])
