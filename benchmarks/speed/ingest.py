"""Cost of reading a large population: memory, CPU time and words a second, of ingest and of the store's readers.

    .venv/stages/bin/python -m benchmarks.speed.ingest --work FOLDER [--devices 1000000] [--words 200] [--result FILE]
    .venv/stages/bin/python -m benchmarks.speed.ingest --work FOLDER --devices 100000 --workers 1,2

Devices are made up, in pieces: words are drawn from a Zipf law with a long tail, so that the lexicon grows as that of
a real population; the rows of each device are spread over all files, in no order, with times, locales and texts that
were sent twice. Files that are there already are not made again, so a run that was ended goes on. Every part is
measured in a process of its own: ``peak`` is its largest resident memory, mapped files included, ``own`` what of it
is no file's.

With ``--workers`` ingest alone is measured, by so many processes, and compared with one: ``critical`` is the CPU time
of what waits for one another, which is the look at ids, the slowest worker and the join, so what as many free cores
would take.
"""

import argparse
import json
import resource
import shutil
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed.memory_use import own_bytes, peak_bytes
from discovery.device.typed import TypedWords
from evaluation.arms.held_out import held_out
from federated.config.population import FilePopulation
from federated.devices import parts, readers, store
from pretrain import processes
from pretrain.text.vocabulary import from_counts

FILES, ROW_GROUP, SENTENCE = 8, 1 << 17, 8
_WORDS, _EXPONENT = 1_500_000, 1.05
_VOCABULARY = 20_000


def _spelt() -> np.ndarray:
    """Words of letters, the frequent ones short."""
    letters = np.array(list(string.ascii_lowercase))
    numbers = np.arange(26, 26 + _WORDS)
    digits = [letters[numbers // 26**place % 26] for place in range(5)]
    lengths = np.ceil(np.log(numbers + 1) / np.log(26)).astype(int)
    whole = digits[4]
    for digit in digits[3::-1]:
        whole = np.char.add(whole, digit)
    return np.array([word[-length:] for word, length in zip(whole.tolist(), lengths.tolist(), strict=True)], object)


def write_files(folder: Path, devices: int, words: int) -> None:
    """Parquet files of all devices' texts."""
    folder.mkdir(parents=True, exist_ok=True)
    spelt = None
    rows = devices * words // SENTENCE // FILES
    for number in range(FILES):
        path = folder / f"part-{number}.parquet"
        if path.exists():
            continue
        spelt = _spelt() if spelt is None else spelt
        rng = np.random.default_rng((devices, words, number))
        writer = None
        partial = path.with_suffix(".partial")
        for first in range(0, rows, ROW_GROUP):
            table = _rows(rng, spelt, devices, min(ROW_GROUP, rows - first))
            writer = writer or pq.ParquetWriter(partial, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
        partial.replace(path)


def _rows(rng: np.random.Generator, spelt: np.ndarray, devices: int, count: int) -> pa.Table:
    chance = np.cumsum((np.arange(_WORDS) + 2.7) ** -_EXPONENT)
    number = np.minimum(np.searchsorted(chance, rng.random(count * SENTENCE) * chance[-1]), _WORDS - 1)
    word = spelt[number].reshape(count, SENTENCE).tolist()
    capital = rng.random(count) < 0.3
    texts = [" ".join(some) for some in word]
    texts = [text.capitalize() + "." if big else text for text, big in zip(texts, capital, strict=True)]
    times = rng.integers(1_760_000_000, 1_762_600_000, count)
    client = rng.integers(devices, size=count)
    again = rng.random(count) < 0.01
    again[0] = False
    place = np.maximum.accumulate(np.where(again, 0, np.arange(count)))
    return pa.table(
        {
            "client_id": pa.array([f"device-{name:09d}" for name in client[place].tolist()]),
            "text": pa.array([texts[row] for row in place.tolist()]),
            "ts": pa.array(times[place] * 1_000_000, pa.timestamp("us")),
            "locale": pa.array(np.where(rng.random(count) < 0.02, "es-ES", "en-US")),
        }
    )


def order(work: Path) -> dict[str, float]:
    """Put all rows in order, as ingest does before it cuts them into words."""
    typed = readers.from_files([str(work / "typed" / "*.parquet")], "en-US", folder=work)
    return {"rows": sum(1 for _, texts in typed.devices for _ in texts)}


def population(work: Path) -> FilePopulation:
    """All files."""
    paths = (str(work / "typed" / "*.parquet"),)
    return FilePopulation(source="files", name="many", max_words_per_device=10_000, paths=paths)


def ingest(work: Path) -> dict[str, float]:
    """Read all files into the store."""
    return {"devices": store.build_store(population(work), "en-US", 1, work / "store").devices}


def look(work: Path) -> dict[str, float]:
    """Look at ids, and say who reads what."""
    shutil.rmtree(work / "parts", ignore_errors=True)
    parts.write_task(work / "parts", population(work), "en-US", None)
    return {}


def join(work: Path) -> dict[str, float]:
    """Join what workers left."""
    return {"devices": store.build_store(population(work), "en-US", 1, work / "joined", read=work / "parts").devices}


def read_part(work: Path, number: int, of: int) -> dict[str, float]:
    """One worker's part."""
    parts.write_part(work / "parts", population(work), "en-US", number, of)
    return {}


def train(work: Path) -> dict[str, float]:
    """Map the devices as a training worker does, and read a round of them."""
    opened = store.open_store(work / "store")
    counts = opened.words.word_counts()
    devices = opened.encode(from_counts(counts, _VOCABULARY), "train")
    cohort = np.random.default_rng(0).choice(len(devices), min(6_500, len(devices)), replace=False)
    return {"words": int(sum(len(devices.owner(device)) for device in cohort.tolist()))}


def discover(work: Path) -> dict[str, float]:
    """Gather what devices typed, as discovery does."""
    typed = TypedWords.gather(store.open_store(work / "store").typed_words("train"), work)
    return {"words": len(typed.numbers)}


def evaluate(work: Path) -> dict[str, float]:
    """Read what test devices typed."""
    opened = store.open_store(work / "store")
    return {"words": len(held_out(opened.words, opened.devices("test")).word_P)}


PARTS: dict[str, Callable[[Path], dict[str, float]]] = {
    "order": order,
    "ingest": ingest,
    "train": train,
    "discover": discover,
    "evaluate": evaluate,
}
OF_MANY = {"look": look, "join": join}


def measured(part: Callable[..., dict[str, float]], *arguments: object) -> dict[str, float]:
    """One part, in this process."""
    began = time.monotonic()
    made = part(*arguments)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return made | {
        "peak_bytes": peak_bytes(),
        "own_bytes": own_bytes(),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "seconds": time.monotonic() - began,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--workers", help="processes, as in 1,2: measure ingest by so many")
    parser.add_argument("--part", choices=PARTS | OF_MANY, help="of one process: print its numbers as JSON")
    asked = parser.parse_args()
    work = asked.work / f"{asked.devices}x{asked.words}"
    if asked.part:
        print(json.dumps(measured((PARTS | OF_MANY)[asked.part], work)))
        return
    write_files(work / "typed", asked.devices, asked.words)
    if asked.workers:
        lines = _by_workers(work, asked.devices, asked.words, [int(count) for count in asked.workers.split(",")])
    else:
        lines = _report(work, asked.devices, asked.words, asked.parts)
    table = "".join(f"{line}\n" for line in lines)
    print(table)
    if asked.result:
        with asked.result.open("a", encoding="utf-8") as file:
            file.write(table + "\n")


def _of_one_process(part: str, work: Path) -> dict[str, float]:
    devices, _, words = work.name.partition("x")
    told = ["--work", str(work.parent), "--part", part, "--devices", devices, "--words", words]
    command = [sys.executable, "-m", "benchmarks.speed.ingest", *told]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _of_workers(work: Path, workers: int) -> tuple[float, list[dict[str, float]]]:
    """Seconds until all have read their parts, and the numbers of each."""
    began = time.monotonic()
    with processes.pool(workers) as pool:
        read = [pool.submit(measured, read_part, work, number, workers) for number in range(workers)]
        each = [part.result() for part in read]
    return time.monotonic() - began, each


def _digest(directory: Path) -> str:
    return json.loads((directory / "store.json").read_text(encoding="utf-8"))["summary"]["digest"]


def _by_workers(work: Path, devices: int, words: int, counts: Sequence[int]) -> Iterator[str]:
    yield _title(work, devices, words)
    yield ""
    yield "| workers | wall s | of one | CPU s | critical | of one | peak of each, MiB | of the join | same |"
    yield "|---|---|---|---|---|---|---|---|---|"
    one = _of_one_process("ingest", work)
    expected = _digest(work / "store")
    yield (
        f"| 1 | {one['seconds']:,.0f} | 1 | {one['cpu_seconds']:,.1f} | {one['cpu_seconds']:,.1f} | "
        f"1 | {one['peak_bytes'] / 2**20:,.0f} | | |"
    )
    for workers in counts:
        if workers == 1:
            continue
        looked = _of_one_process("look", work)
        took, each = _of_workers(work, workers)
        joined_up = _of_one_process("join", work)
        wall = looked["seconds"] + took + joined_up["seconds"]
        used = [numbers["cpu_seconds"] for numbers in each]
        alone = looked["cpu_seconds"] + joined_up["cpu_seconds"]
        peak = max(numbers["peak_bytes"] for numbers in each)
        yield (
            f"| {workers} | {wall:,.0f} | {wall / one['seconds']:.2f} | {alone + sum(used):,.1f} | "
            f"{alone + max(used):,.1f} | {(alone + max(used)) / one['cpu_seconds']:.2f} | {peak / 2**20:,.0f} | "
            f"{joined_up['peak_bytes'] / 2**20:,.0f} | {_digest(work / 'joined') == expected} |"
        )


def _title(work: Path, devices: int, words: int) -> str:
    size = sum(path.stat().st_size for path in (work / "typed").glob("*.parquet"))
    return f"{devices:,} devices, {devices * words:,} words in {FILES} Parquet files of {size / 1e9:.2f} GB"


def _report(work: Path, devices: int, words: int, names: Sequence[str]) -> Iterator[str]:
    yield _title(work, devices, words)
    yield ""
    yield "| part | peak, MiB | own, MiB | CPU s | words a CPU second |"
    yield "|---|---|---|---|---|"
    for part in names:
        numbers = _of_one_process(part, work)
        share = {"order": 1.0, "ingest": 1.0, "train": 0.8, "discover": 0.8, "evaluate": 0.1}[part]
        yield (
            f"| {part} | {numbers['peak_bytes'] / 2**20:,.0f} | {numbers['own_bytes'] / 2**20:,.0f} | "
            f"{numbers['cpu_seconds']:,.1f} | {share * devices * words / numbers['cpu_seconds']:,.0f} |"
        )


if __name__ == "__main__":
    main()
