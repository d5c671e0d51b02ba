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

from federated.devices.store import SPLITS, StoreSummary, build_store, open_store, split_key
from pretrain.files import remove_leavings
from pretrain.text.vocabulary import EOS, UNK, TokenStream, Vocabulary, join_streams
from pretrain.writing import case
from tests.federated.devices.built import Row, build, config
from tests.federated.devices.damaged import write_damaged


def texts(store) -> list[list[str]]:
    """Words of every device in store order."""
    return [
        [store.words.lexicon[number - 1] if number else "." for number in store.words.owner(device)]
        for device in range(len(store.words))
    ]


def test_planted_disorder_is_put_in_order(tmp_path):
    rows = [
        {"client_id": "b", "text": "third word", "ts": "2026-01-03T00:00:00Z"},
        {"client_id": "a", "text": "", "ts": "2026-01-01T00:00:00Z"},
        {"client_id": "b", "text": "First one!", "ts": "2026-01-01T00:00:00Z"},
        {"client_id": "a", "text": "hello again", "ts": "2026-01-02T00:00:00Z"},
        {"client_id": "b", "text": "second", "ts": "2026-01-02T00:00:00+00:00"},
        {"client_id": "b", "text": "second", "ts": "2026-01-02T00:00:00Z"},  # sent twice
        {"client_id": "b", "text": "second", "ts": "2026-01-02T00:00:01Z"},  # typed twice
        {"client_id": "a", "text": None, "ts": "2026-01-05T00:00:00Z"},
        {"client_id": "empty", "text": "   ", "ts": "2026-01-05T00:00:00Z"},
        {"client_id": "b", "text": "no time", "ts": None},
    ]
    summary, store = build(tmp_path, rows)
    assert texts(store) == [
        ["hello", "again", "."],
        ["first", "one", ".", "second", ".", "second", ".", "third", "word", ".", "no", "time", "."],
        [],
    ]
    assert summary.schema == {"client_id": "string", "text": "string", "ts": "time"}


def test_without_times_repeats_stay_in_file_order(tmp_path):
    rows = [{"client_id": "a", "text": text} for text in ("ok", "zebra", "ok")]
    assert texts(build(tmp_path, rows)[1]) == [["ok", ".", "zebra", ".", "ok", "."]]


def test_one_device_in_two_files_is_one_device(tmp_path):
    for number, text in ((1, "later words"), (2, "earlier words")):
        table = pa.table({"client_id": ["x"], "text": [text], "ts": pa.array([10 - number], pa.int32())})
        pq.write_table(table, tmp_path / f"part-{number}.parquet")
    _, store = build(tmp_path, tmp_path / "part-*.parquet")
    assert texts(store) == [["earlier", "words", ".", "later", "words", "."]]


def test_cap_keeps_whole_sentences_from_the_start(tmp_path):
    rows = [
        {"client_id": "a", "text": "one two. three four five. six"},
        {"client_id": "long", "text": "one two three four five six seven"},
    ]
    _, store = build(tmp_path, rows, max_words_per_device=4)
    assert texts(store) == [["one", "two", "."], ["one", "two", "three", "four", "."]]


def test_other_locales_are_skipped(tmp_path):
    rows = [
        {"client_id": "a", "text": "yes", "locale": "en_us"},
        {"client_id": "a", "text": "oui", "locale": "fr-FR"},
        {"client_id": "b", "text": "nul", "locale": None},
    ]
    assert texts(build(tmp_path, rows)[1]) == [["yes", "."]]
    # Optional columns may start in a later line.
    rows = [{"client_id": "b", "text": "nul"}, {"client_id": "a", "text": "late", "locale": "en-US", "ts": 2}]
    rows += [{"client_id": "a", "text": "early", "locale": "en-US", "ts": 1.5}, rows[0] | {"locale": "fr-FR"}]
    assert texts(build(tmp_path, rows)[1]) == [["early", ".", "late", "."]]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"client": ["a"], "text": ["x"]}, ["typed.parquet", "'client_id'", "missing"]),
        ({"client_id": ["a"], "message": ["x"]}, ["typed.parquet", "'text'", "missing"]),
        ({"client_id": ["a", None], "text": ["x", "y"]}, ["typed.parquet", "row 2", "'client_id' is null"]),
        ({"client_id": ["a", ""], "text": ["x", "y"]}, ["typed.parquet", "row 2", "'client_id' is null"]),
        ({"client_id": [1.5], "text": ["x"]}, ["typed.parquet", "'client_id'", "strings"]),
        ({"client_id": ["a"], "text": [3]}, ["typed.parquet", "'text'", "strings"]),
        ({"client_id": ["a"], "text": ["x"], "ts": [True]}, ["typed.parquet", "'ts'", "timestamp"]),
        ({"client_id": ["a"], "text": ["x"], "ts": ["noon"]}, ["typed.parquet", "'ts'", "ISO 8601"]),
    ],
)
def test_bad_columns_name_file_column_and_fix(tmp_path, columns, words):
    path = tmp_path / "typed.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(ValueError, match="typed") as caught:
        build(tmp_path, path)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "line", ['{"client_id": 7, "text": "x"}', '{"text": "x"}', '{"client_id": "a", "text": ', '["a", "x"]']
)
def test_bad_json_lines_name_the_file(tmp_path, line):
    path = tmp_path / "typed.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"typed\.jsonl"):
        build(tmp_path, path)


def test_ids_that_look_like_dates_or_numbers_stay_text(tmp_path):
    build(tmp_path, [{"client_id": "2026-01-01", "text": "word", "extra": {"a": 1}}])
    ids = pq.read_table(tmp_path / "store" / "clients.parquet")["client_id"].to_pylist()
    assert ids == ["2026-01-01"]
    pq.write_table(pa.table({"client_id": [12], "text": ["word"]}), tmp_path / "numbers.parquet")
    build(tmp_path, tmp_path / "numbers.parquet")
    assert pq.read_table(tmp_path / "store" / "clients.parquet")["client_id"].to_pylist() == ["12"]


def test_a_retry_mends_no_file(tmp_path):
    with pytest.raises(ValueError, match="no file matches"):
        build(tmp_path, tmp_path / "absent-*.parquet")
    damaged = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"client_id": ["a"] * 100, "text": ["x"] * 100}), damaged)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cut\.parquet is not readable, so damaged or cut short"):
        build(tmp_path, damaged)


def test_no_device_or_no_spaces_is_refused(tmp_path):
    with pytest.raises(ValueError, match="population 'typists' has no device with text of en-US"):
        build(tmp_path, [{"client_id": "a", "text": "word", "locale": "de-DE"}])
    silent, _ = build(tmp_path, [{"client_id": "a", "text": "123"}])
    assert sum(silent.devices_by_split.values()) == 0, "ten and more are told"
    with pytest.raises(ValueError, match="no spaces"):
        build(tmp_path, [{"client_id": "a", "text": "word"}], locale="ja-JP")
    with pytest.raises(ValueError, match="test_fraction"):
        build(tmp_path, [{"client_id": "a", "text": "x"}], test_fraction=0.95)


def people(number: int) -> list[Row]:
    return [{"client_id": f"person-{i}", "text": f"hello number {chr(97 + i % 26)}"} for i in range(number)]


def test_splits_follow_the_fractions_and_never_move(tmp_path):
    def assigned(rows: list[Row], seed: int) -> dict[str, int]:
        _, store = build(tmp_path, rows, seed=seed, test_fraction=0.2)
        ids = pq.read_table(tmp_path / "store" / "clients.parquet")["client_id"].to_pylist()
        assert ids == sorted(ids)
        return dict(zip(ids, store.split_D.tolist(), strict=True))

    first, more, other = assigned(people(1500), 1), assigned(people(2000), 1), assigned(people(1500), 2)
    assert all(more[client] == split for client, split in first.items())
    assert first != other
    shares = np.bincount(list(more.values()), minlength=3) / 2000
    # Four standard deviations of a share of 2,000 devices are at most 0.041.
    assert np.abs(shares - [0.7, 0.1, 0.2]).max() < 0.041


def test_a_silent_device_stays(tmp_path):
    """A device without words changes neither the count of devices nor the others' numbers and splits."""
    rows = [{"client_id": f"c{number:03d}", "text": "hello there"} for number in range(40)]
    summary, store = build(tmp_path, rows)
    (tmp_path / "silent").mkdir()
    silent = [row | {"text": " ?! "} if number == 7 else row for number, row in enumerate(rows)]
    without, store_without = build(tmp_path / "silent", silent)
    assert (without.devices, without.devices_by_split) == (summary.devices, summary.devices_by_split)
    np.testing.assert_array_equal(store_without.split_D, store.split_D)
    assert [len(words) for words in texts(store_without)] == [3] * 7 + [0] + [3] * 32


def test_splits_follow_the_population_s_secret(tmp_path):
    rows = [{"client_id": f"c{number:03d}", "text": "hello"} for number in range(400)]
    path = tmp_path / "typed.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def splits(name: str, secret: bytes, seed: int) -> np.ndarray:
        folder = tmp_path / f"{name}-{secret[0]}-{seed}"
        build_store(config(paths=[str(path)], name=name), "en-US", seed, folder, split_key(name, secret))
        return open_store(folder).split_D

    first = splits("typists", bytes(32), 1)
    np.testing.assert_array_equal(first, splits("typists", bytes(32), 2))
    for other in (splits("typists", bytes([1] * 32), 1), splits("others", bytes(32), 1)):
        held_out = np.flatnonzero(other == SPLITS.index("test"))
        assert 0.5 < np.mean(first[held_out] == SPLITS.index("train")) < 0.95


def test_summary_is_bucketed_and_holds_no_id(tmp_path):
    summary, store = build(tmp_path, people(57))
    assert summary.devices == 50
    assert all(count % 10 == 0 for count in summary.devices_by_split.values())
    exact = [int(np.sum(store.split_D == number)) for number in range(3)]
    assert [summary.devices_by_split[name] for name in SPLITS] == [count // 10 * 10 for count in exact]
    assert "person" not in repr(summary)
    assert not summary.synthetic


def test_store_is_private_and_says_when_it_is_unfinished(tmp_path):
    build(tmp_path, people(30))
    directory = tmp_path / "store"
    for path in (directory, *directory.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    (directory / "store.json").unlink()
    with pytest.raises(ValueError, match="unfinished"):
        open_store(directory)


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "other bytes"])
def test_whatever_is_damaged_is_named_with_what_to_do(tmp_path, how):
    build(tmp_path, people(30))
    directory = tmp_path / "store"
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        damaged = {"empty": b"", "cut": whole[: len(whole) // 2], "other bytes": bytes(255 - byte for byte in whole)}
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(damaged[how])
        with pytest.raises(ValueError, match=r"(damaged|unfinished).*(build|write) it again$"):
            open_store(directory)
        path.write_bytes(whole)
    open_store(directory)


def test_a_rebuild_that_fails_leaves_nothing_to_open(tmp_path):
    build(tmp_path, people(30))
    with pytest.raises(ValueError, match="no device"):
        build(tmp_path, [{"client_id": "a", "text": "...", "locale": "de-DE"}])
    with pytest.raises(ValueError, match="unfinished"):
        open_store(tmp_path / "store")


def test_digest_is_of_content_and_ids(tmp_path):
    def digest(rows: list[Row]) -> StoreSummary:
        return build(tmp_path, rows)[0].digest

    rows = people(30)
    assert digest(rows) == digest(rows[::-1])
    renamed = [row | {"client_id": f"x{row['client_id']}"} for row in rows]
    assert digest(rows) != digest(renamed)


def test_encode_and_words_agree(tmp_path):
    _, store = build(tmp_path, people(60))
    vocabulary = Vocabulary(("<pad>", "<bos>", "<eos>", "<unk>", "hello", "number"))
    for split in SPLITS:
        stream = store.encode(vocabulary, split)
        words = list(store.device_words(split))
        assert len(stream) == len(words) == len(store.devices(split))
        for device, known in enumerate(words):
            expected = [vocabulary.index.get(word, UNK) for word in known]
            assert [token for token in stream.owner(device) if token != EOS] == expected
    with pytest.raises(ValueError, match="split"):
        store.devices("holdout")


def test_forms_of_words_are_kept_for_discovery_alone(tmp_path):
    texts = ["I go to BYU. Georgetown is far", "", "so Gr8"]
    rows = [{"client_id": f"c{number}", "text": text} for number, text in enumerate(texts * 9)]
    summary, store = build(tmp_path, rows)
    heard = [word for split in SPLITS for words in store.typed_words(split) for word in words]
    said = [word for split in SPLITS for words in store.device_words(split) for word in words]
    assert case.plain(heard) == said
    assert {word for word in heard if case.parted(word)[1]} == {"byu" + case.SIGNS[2], "gr8" + case.SIGNS[1]}
    assert build(tmp_path, [row | {"text": row["text"].lower()} for row in rows])[0].digest != summary.digest


@pytest.mark.slow
def test_chitchat_is_read_whole_and_only_in_english(tmp_path):
    chat = config(source="chitchat", max_words_per_device=20)
    summary = build_store(chat, "en-US", 1, tmp_path / "store")
    store = open_store(tmp_path / "store")
    assert len(store.words) == chat.devices == 1315
    assert summary.devices == 1310
    assert max(np.count_nonzero(store.words.owner(device)) for device in range(1315)) == 20
    assert not summary.synthetic
    with pytest.raises(ValueError, match="English"):
        build_store(chat, "es-ES", 1, tmp_path / "store")


def test_workers_map_the_tokens_of_devices(tmp_path):
    """One file for all of them; what is damaged of it is written again, and nothing else changes."""
    _, store = build(tmp_path, people(60))
    before = {path.name for path in (tmp_path / "store").iterdir()}
    vocabulary = Vocabulary(("<pad>", "<bos>", "<eos>", "<unk>", "hello", "number"))
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
    path = tmp_path / "typed.parquet"
    write_damaged(path, [(1, 1)])
    with pytest.raises(ValueError, match=r"typed\.parquet, row group 1, column 'text', is not readable.*copy it again"):
        build(tmp_path, path)
    pq.write_table(pa.table({"client_id": ["a"] * 5 + [None], "text": ["x"] * 6}), path, row_group_size=3)
    with pytest.raises(ValueError, match=r"typed\.parquet, row group 1, row 3: column 'client_id' is null.*than 1% of"):
        build(tmp_path, path)


@pytest.mark.slow
def test_a_killed_ingest_leaves_no_text_and_the_next_one_makes_the_same(tmp_path):
    texts = [f"hello number {number}" for number in range(400)]
    whole, _ = build(tmp_path, [{"client_id": f"c{len(text) % 7}{text[-1]}", "text": text} for text in texts])
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
    assert build(tmp_path / "killed", tmp_path / "typed.jsonl")[0].digest == whole.digest
