"""A store of many: mapped by who reads it, damage by its place, and nothing left of a build that was killed."""

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.config.population import FilePopulation
from federated.devices.store import build_store, open_store
from pretrain.files import remove_leavings
from pretrain.vocabulary import EOS, TokenStream, Vocabulary, join_streams


def build(directory: Path, rows: list[dict] | Path) -> str:
    """The digest of a store of some rows, or of a file's."""
    if isinstance(rows, list):
        path = directory / "typed.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        rows = path
    config = FilePopulation(source="files", name="typists", max_words_per_device=50, paths=(str(rows),))
    return build_store(config, "en-US", 1, directory / "store").digest


def people(number: int) -> list[dict]:
    return [{"client_id": f"person-{i}", "text": f"hello number {chr(97 + i % 26)}"} for i in range(number)]


def test_workers_map_the_tokens_of_devices(tmp_path):
    """One file for all of them; what is damaged of it is written again, and nothing else changes."""
    build(tmp_path, people(60))
    before = {path.name for path in (tmp_path / "store").iterdir()}
    vocabulary = Vocabulary(("<pad>", "<bos>", "<eos>", "<unk>", "hello", "number"))
    store = open_store(tmp_path / "store")
    planted = TokenStream(np.array([4, 5, EOS, 4, EOS], np.int32), np.array([0, 3, 5]))
    mapped = store.encode(vocabulary, "train", planted)
    assert isinstance(mapped.tokens_N, np.memmap)
    in_memory = join_streams([store.words.encode(vocabulary, store.devices("train")), planted])
    np.testing.assert_array_equal(mapped.tokens_N, in_memory.tokens_N)
    np.testing.assert_array_equal(mapped.offsets_D1, in_memory.offsets_D1)
    (made,) = (path for path in (tmp_path / "store").iterdir() if path.name not in before)
    assert made.name.startswith("."), "hidden: no part of what the store holds"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    inode = made.stat().st_ino
    store.encode(vocabulary, "train", planted)
    assert made.stat().st_ino == inode
    whole = made.read_bytes()
    for damaged in (whole[:-40], whole + b"x", b"", whole[:4] + bytes([whole[4] ^ 1]) + whole[5:]):
        made.write_bytes(damaged)
        np.testing.assert_array_equal(store.encode(vocabulary, "train", planted).tokens_N, in_memory.tokens_N)
        assert made.read_bytes() == whole
    assert isinstance(open_store(tmp_path / "store").forms_N, np.memmap)


def test_damage_names_file_row_group_and_column(tmp_path):
    rows = {"client_id": ["a", "b"] * 300, "text": [f"hello number {number}" for number in range(600)]}
    path = tmp_path / "typed.parquet"
    pq.write_table(pa.table(rows), path, row_group_size=200, compression="none", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    content = bytearray(path.read_bytes())
    begins = column.data_page_offset
    content[begins : begins + 40] = bytes(40)
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"typed\.parquet, row group 1, column 'text', is not readable.*copy it again"):
        build(tmp_path, path)
    pq.write_table(pa.table({"client_id": ["a"] * 5 + [None], "text": ["x"] * 6}), path, row_group_size=3)
    with pytest.raises(
        ValueError, match=r"typed\.parquet, row group 1, rows 1 to 3: column 'client_id' is null.* in some row"
    ):
        build(tmp_path, path)


@pytest.mark.slow
def test_a_killed_ingest_leaves_no_text_and_the_next_one_makes_the_same(tmp_path):
    texts = [f"hello number {number}" for number in range(400)]
    whole = build(tmp_path, [{"client_id": f"c{len(text) % 7}{text[-1]}", "text": text} for text in texts])
    target = tmp_path / "killed" / "store"
    script = """
import os, signal, sys
from pathlib import Path
from federated.config.population import FilePopulation
from federated.devices import order, store
order.RUN_BYTES = 2_000
left = list(range(10))
plain = store.case.plain
def killer(words):
    left.pop() if left else os.kill(os.getpid(), signal.SIGKILL)
    return plain(words)
store.case.plain = killer
people = FilePopulation(source="files", name="typists", max_words_per_device=50, paths=[sys.argv[1]])
store.build_store(people, "en-US", 1, Path(sys.argv[2]))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "typed.jsonl"), str(target)]
    root = Path(__file__).parents[3]
    assert subprocess.run(command, cwd=root, check=False, timeout=300).returncode == -signal.SIGKILL
    with pytest.raises(ValueError, match="unfinished"):
        open_store(target)
    remove_leavings(target)
    assert not [path for path in target.rglob("*") if path.is_file()], "runs have no names"
    assert build(tmp_path / "killed", tmp_path / "typed.jsonl") == whole
