"""Word discovery and private training, of a launch or as a simulation on a data frame.

With a launch alone, both run its stages through the one asked for: on its registered population, under the ledger,
once. With ``people``, both simulate the launch's own settings on that text: the noise comes from a public seed, so a
simulation protects nobody, spends nothing and must not be published.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tacit.answers import Plot, Table, drawn

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from datasets import Dataset

    from discovery.results import CentralResult, DiscoveryResult, FoundWord
    from federated.devices.store import DeviceStore
    from federated.train import FineTuneResult
    from pipeline.launch.config import LaunchConfig
    from pipeline.run.stage import StageContext
    from pretrain.model.keyboard_lm import KeyboardLM

_MOST_WORDS = 20
_COLUMNS = ("client_id", "text", "locale", "ts")
_SIMULATED = "Simulation: the noise comes from a public seed and protects nobody. Do not publish its results."


@runtime_checkable
class Frame(Protocol):
    """A source that Arrow reads without a copy: a frame of pandas or polars, a table of Arrow, a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@dataclass(frozen=True, repr=False)
class Discovery(Table[dict[str, Any]]):
    """Result of a word discovery.

    Attributes:
      value: result of stage ``discover``, or of a simulation.
      words: of a simulation, found words with low, value and high of their share; a launch's words stay private until
        filters and reviewers keep them, so it has none here.
    """

    words: tuple[tuple[str, float, float, float], ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """``words``."""
        return [dict(zip(("word", "low", "value", "high"), row, strict=True)) for row in self.words]

    def plot(self) -> Plot:
        """Draw the found words with their shares of what devices contribute, the most frequent first.

        Raises:
          ValueError: there is no word to show.
        """
        from reports.figures.discovery import draw_shares

        if not self.words:
            raise ValueError("words: none to draw; a launch shows words in its report, after filters and review")
        shown = self.words[:_MOST_WORDS]
        return drawn(partial(draw_shares, words=shown), 0.9 + 0.22 * len(shown))


@dataclass(frozen=True, repr=False)
class Training(Table[dict[str, Any]]):
    """Result of private training.

    Attributes:
      value: result of stage ``fine_tune``, or of a simulation.
      curve: points of ``round`` and ``validation_recall`` (a share of all words), the start at round 0.
      model: the network of a simulation, a ``KeyboardLM``; None for a launch, whose model is in its folder.
    """

    curve: tuple[tuple[int, float], ...] = ()
    model: "KeyboardLM | None" = field(default=None, compare=False)

    def rows(self) -> list[dict[str, float]]:
        """``curve``."""
        return [{"round": number, "validation_recall": recall} for number, recall in self.curve]

    def plot(self) -> Plot:
        """Draw top-1 recall on held-out devices by round.

        Raises:
          ValueError: nothing was trained.
        """
        from reports.figures.training import draw_recall

        if not self.curve:
            raise ValueError("curve: nothing was trained on devices, so there is nothing to draw")
        rounds, recall = zip(*self.curve, strict=True)
        return drawn(partial(draw_recall, rounds=rounds, recall=[100 * share for share in recall]))


def discover(launch: str | Path, people: "Frame | Dataset | str | Path | None" = None, *, seed: int = 0) -> Discovery:
    """Find words outside the vocabulary that many devices type.

    Sun & Sun 2024, *Private Federated Discovery of Out-of-Vocabulary Words for Gboard*, algorithm 2; with
    ``discovery.kind: central`` the weighted Gaussian of a trusted aggregator.

    Guarantee: without ``people``, that of the launch; its words stay private here. With ``people``, none.

    Args:
      launch: a launch file or a launch id: its locale, vocabulary, discovery and population.
      people: a data frame (pandas, polars, whatever gives Arrow a stream) or a ``datasets.Dataset`` with columns
        ``client_id`` and ``text`` (and ``locale``, ``ts``), or the path or glob of files with them; their rows are read
        as those of Parquet, and the launch's discovery is simulated on its training devices.
      seed: of the simulated noise.

    Raises:
      ValueError: an invalid file, a missing column, too few devices, or a population that is not registered or has no
        budget left, with the fix.
      LaunchError: there is no ledger.
    """
    if people is None:
        result = _of_launch("discover", launch)
        return Discovery(result, _stage_text("discover", result))
    config, ctx = _public(launch, ("ingest_public",))
    with ingested(people, config, seed) as store:
        return _simulated_discovery(config, ctx, store, seed)


def fine_tune(launch: str | Path, people: "Frame | Dataset | str | Path | None" = None, *, seed: int = 0) -> Training:
    """Train the launch's public model by federated learning with differential privacy.

    DP-FTRL: Kairouz et al. 2021, algorithm 1; Xu et al. 2023; independent noise: McMahan et al. 2018, algorithm 1.

    Guarantee: without ``people``, that of the launch's mechanism, by the participation records. With ``people``, none;
    the printed epsilon is what the same participation costs a device if the noise is secret.

    Args:
      launch: a launch file or a launch id: its public text, model, mechanism, training and population. A simulation
        runs ``ingest_public`` and ``pretrain`` first, if they have not run; the launch then finds them done.
      people: as of ``discover``.
      seed: of the simulated noise, of cohorts and of splits.

    Raises:
      ValueError: as of ``discover``, or devices that cannot fill a round.
      ArithmeticError: training diverged.
      LaunchError: as of ``discover``.
    """
    if people is None:
        result = _of_launch("fine_tune", launch)
        curve = tuple((int(point["step"]), point["validation_recall"]) for point in result["curve"])
        return Training(result, _stage_text("fine_tune", result), curve)
    config, ctx = _public(launch, ("ingest_public", "pretrain"))
    with ingested(people, config, seed) as store:
        return _simulated_training(config, ctx, store, seed)


def _of_launch(stage: str, launch: str | Path) -> dict[str, Any]:
    """Run a launch through a stage, under the ledger, and return the stage's result."""
    from pipeline.ground import settings
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES
    from pipeline.stages.launch import launch as core
    from pipeline.verify.expiry import sweep

    named = to_run(str(launch))
    done = core(named.config, named.run_id, settings.load(), STAGES, last=stage, erase_expired=sweep)
    return done[stage].result


def _stage_text(stage: str, result: dict[str, Any]) -> str:
    """Format the top-level values of a stage's result, as ``tacit -v`` does."""
    from pipeline.cli.display import rows

    return "\n".join([stage, *(f"  {name}: {text}" for name, text in rows(result))])


def _public(launch: str | Path, stages: tuple[str, ...]) -> "tuple[LaunchConfig, StageContext]":
    """Run public stages of a launch that have not run, and return what opens their artifacts."""
    from pipeline.ground import settings
    from pipeline.run import runner
    from pipeline.run.named import to_run
    from pipeline.run.stage import StageContext
    from pipeline.stages.graph import STAGES
    from pipeline.stages.launch import run_stage
    from pipeline.tracking.mlflow_tracker import MlflowTracker

    named, here = to_run(str(launch)), settings.load()
    for name in stages:
        run_stage(name, named.config, named.run_id, here, STAGES)
    run = runner.open_run(named.config, named.run_id, here, MlflowTracker(here, named.config, named.run_id))
    return named.config, StageContext(named.config, run, here, "simulation", None)


@contextmanager
def ingested(people: "Frame | Dataset | str | Path", config: "LaunchConfig", seed: int) -> "Iterator[DeviceStore]":
    """Open a device store of a frame or of files in a temporary folder, with the launch's limits and splits.

    Raises:
      ValueError: as ``federated.devices.store.build_store``, or no frame.
    """
    from federated.config.population import FilePopulation
    from federated.devices.store import build_store, open_store

    with tempfile.TemporaryDirectory() as folder:
        pattern = str(people)
        if not isinstance(people, str | Path):
            pattern = f"{folder}/people.parquet"
            _write(people, pattern)
        private = config.private_text
        population = FilePopulation(
            source="files",
            name="simulation",
            paths=(pattern,),
            max_words_per_device=private.max_words_per_device,
            test_fraction=private.test_fraction,
        )
        build_store(population, config.locale, seed, Path(folder) / "store")
        yield open_store(Path(folder) / "store")


def _write(people: "Frame | Dataset", path: str) -> None:
    """Write the columns of a frame that a store reads, as Parquet, batch by batch.

    Raises:
      ValueError: no frame, or a column that Arrow cannot hold; libraries' own errors would quote a value.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        read = _batches(people)
        taken = [place for place, name in enumerate(read.schema.names) if name in _COLUMNS]
        schema = pa.schema([(field.name, _stored(field.type)) for field in map(read.schema.field, taken)])
        with pq.ParquetWriter(path, schema) as file:
            for batch in read:
                file.write_batch(batch.select(taken).cast(schema))
    except (pa.ArrowException, AttributeError, TypeError) as error:
        raise ValueError(
            f"people: no table can be read from a {type(people).__name__} ({type(error).__name__}); give a data frame "
            "(pandas, polars, Arrow), a datasets.Dataset, or a path"
        ) from None


def _stored(kind: "pa.DataType") -> "pa.DataType":
    """Type of a column in Parquet, which holds no categories of polars."""
    import pyarrow as pa

    categories = pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type)
    return pa.dictionary(kind.index_type, pa.large_string()) if categories else kind


def _batches(people: "Frame | Dataset") -> "pa.RecordBatchReader":
    import pandas as pd
    import pyarrow as pa

    from pretrain.reading.rows import BATCH_ROWS

    if isinstance(people, pd.DataFrame):
        # Its other columns may be of no type of Arrow.
        places = [place for place, name in enumerate(people.columns) if name in _COLUMNS]
        columns = [_column(people.iloc[:, place]) for place in places]
        return pa.Table.from_arrays(columns, [people.columns[place] for place in places]).to_reader()
    if isinstance(people, Frame):
        return pa.RecordBatchReader.from_stream(people)
    # Its table may hold more rows, in another order, than the dataset.
    asked = people.select_columns([name for name in _COLUMNS if name in people.column_names]).with_format("arrow")
    schema = asked.features.arrow_schema
    tables = (table.select(schema.names) for table in asked.iter(BATCH_ROWS))
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))


def _column(column: "pd.Series") -> "pa.ChunkedArray":
    import pyarrow as pa

    try:
        return pa.chunked_array(column)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise ValueError(
            f"people: column {column.name!r} holds values of several kinds; give one kind, or text"
        ) from None


def _simulated_discovery(config: "LaunchConfig", ctx: "StageContext", store: "DeviceStore", seed: int) -> Discovery:
    from discovery import discover as trie
    from discovery.central import select
    from discovery.config import CentralConfig
    from discovery.device.typed import TypedWords
    from pipeline.run import artifacts
    from pretrain.randomness.noise import seeded_key
    from pretrain.text import tokenise

    typed = TypedWords.gather(store.typed_words("train"))
    known, block, key = frozenset(artifacts.vocabulary(ctx, "ingest_public").words), config.discovery, seeded_key(seed)
    directory = store.directory.parent / "discovery"
    if isinstance(block, CentralConfig):
        central = select.discover(typed, known_words=known, config=block, key=key, directory=directory)
        stated = f"an aggregator adds noise of {block.noise_multiplier:g}: rho {block.rho:.3g} a device"
        return _found(central, central.words, stated, len(typed), config.locale)
    local = trie.discover(
        typed, known_words=known, alphabet=tokenise.alphabet(config.locale), config=block, key=key, directory=directory
    )
    stated = (
        f"epsilon of one device {local.device_level_epsilon0:g} without trust, "
        f"{local.device_epsilon_central:.2f} at delta {local.delta:g} after shuffling"
    )
    return _found(local, local.words, stated, len(typed), config.locale)


def _found(
    result: "DiscoveryResult | CentralResult", found: Sequence["FoundWord"], stated: str, devices: int, locale: str
) -> Discovery:
    """Return a simulated discovery.

    Args:
      stated: what it would cost a device.
      devices: that were asked.
    """
    from pretrain.writing.case import form_of

    words = tuple((form_of(each.word, each.form, locale), each.low, each.share, each.high) for each in found)
    lines = [
        _SIMULATED,
        f"{len(words)} words found on {devices:,} training devices; with secret noise, {stated}",
        "  share of what devices contribute, with its interval:",
        *(f"  {word:<20} {share:.2%} ({low:.2%} to {high:.2%})" for word, low, share, high in words),
    ]
    shown = lines[: 3 + _MOST_WORDS] + ([f"  and {len(words) - _MOST_WORDS} more"] if len(words) > _MOST_WORDS else [])
    return Discovery(result.model_dump(mode="json"), "\n".join(shown), words)


def _simulated_training(config: "LaunchConfig", ctx: "StageContext", store: "DeviceStore", seed: int) -> Training:
    from federated.accounting.guarantees import from_records
    from federated.planning.feasibility import shortfalls
    from federated.rounds.rule import RoundRule
    from federated.train import TrainingData, Workplace
    from federated.train import fine_tune as train
    from pipeline.run import artifacts
    from pretrain.randomness.noise import seeded_key
    from reports.losses import up

    words = artifacts.vocabulary(ctx, "ingest_public")
    devices, validation = store.encode(words, "train"), store.encode(words, "validation")
    if reasons := shortfalls(config.mechanism, len(devices)):
        raise ValueError("\n".join(reasons))
    model, rule = artifacts.model(ctx, "pretrain"), RoundRule(config.mechanism, seed, seeded_key(seed))
    data = TrainingData(devices, np.zeros(len(devices), dtype=bool), validation)
    place = Workplace(store.directory.parent / "rounds", config.runtime)
    done: FineTuneResult = train(model, data, rule, config.local_training, config.server, place)
    guarantee = from_records(config.mechanism, done.observed, (), rule.mechanism, done.encoding)
    curve = tuple((point.round, point.validation_recall) for point in done.curve)
    delta = config.mechanism.delta
    lines = [
        _SIMULATED,
        f"{done.rounds:,} rounds of {config.mechanism.report_goal:,} devices, {len(devices):,} devices train",
        f"top-1 recall on {len(validation):,} held-out devices: {curve[0][1]:.2%} before, {curve[-1][1]:.2%} after",
        f"with secret noise: rho {guarantee.rho:.4g} a device, epsilon {up(guarantee.epsilon[delta])} at {delta:g}",
    ]
    value = {"rounds": done.rounds, "devices": len(devices), "rho": guarantee.rho, "epsilon": dict(guarantee.epsilon)}
    return Training(value, "\n".join(lines), curve, model)
