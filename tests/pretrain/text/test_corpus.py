"""Public text from every source: real local shards through ``datasets``, resumed after a kill."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pretrain.config import C4_REVISION, C4Corpus, FileCorpus, SampleCorpus
from pretrain.text import sources
from pretrain.text.corpus import CorpusSummary, build_corpus, open_corpus, usual_forms
from pretrain.text.sources import open_stream
from pretrain.text.tokenise import sentences
from pretrain.writing.truecasing import TypicalForm
from tests.helpers.processes.hub import serving
from tests.helpers.text.c4_clone import texts, write_c4, write_clone


@pytest.fixture
def c4_clone(tmp_path: Path) -> Path:
    return write_clone(tmp_path / "c4")


@pytest.fixture
def hub(c4_clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clone in the hub's place: ``datasets`` reads it by the same call."""
    monkeypatch.setattr(sources, "C4_DATASET", str(c4_clone))
    monkeypatch.setattr(sources, "require_hub", lambda config: None)


def c4(subset: str = "en", max_tokens: int = 10_000) -> C4Corpus:
    return C4Corpus(source="c4", subset=subset, revision=C4_REVISION, max_tokens=max_tokens)


class Killed(Exception):
    pass


def killer(kill_at: int) -> Callable[[dict], None]:
    def progress(point: dict) -> None:
        if point["shard"] == kill_at:
            raise Killed

    return progress


def files(c4_clone: Path, **settings: object) -> FileCorpus:
    defaults = {"train": (str(c4_clone / "en/c4-train.*.json.gz"),), "max_tokens": 600}
    return FileCorpus.model_validate({"source": "files", **defaults, **settings})


def read(config: FileCorpus, split: sources.Split = "train") -> list[str]:
    return [document.text for document in open_stream(config, "en-US", split)]


@pytest.mark.parametrize(("subset", "locale", "word"), [("en", "en-US", "traina"), ("es", "es-ES", "añoa")])
def test_c4_through_the_hub_call(hub: None, tmp_path: Path, subset: str, locale: str, word: str) -> None:
    summary = build_corpus(c4(subset), locale, tmp_path / "out")
    opened = open_corpus(tmp_path / "out")
    assert (summary.train_documents, summary.validation_documents, summary.shards) == (120, 20, 2)
    assert summary.train_tokens == 120 * 8 == sum(opened.counts().values())
    assert opened.counts()[word] == 40
    assert not {"validation", "validación"} & set(opened.counts())
    assert "ODC-BY" in summary.licence
    assert (summary.revision, summary.left_out_documents) == (C4_REVISION, 0)


def test_the_loader_is_given_the_commit(hub: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given, load = [], datasets.load_dataset

    def spy(*args: object, **named: object) -> object:
        given.append(named["revision"])
        return load(*args, **named)

    monkeypatch.setattr(datasets, "load_dataset", spy)
    for revision in ("a" * 40, "b" * 40):
        open_stream(c4().model_copy(update={"revision": revision}), "en-US", "train")
    assert given == ["a" * 40, "b" * 40]


def test_a_cap_keeps_documents_of_many_files_in_a_seeded_order(hub: None, tmp_path: Path) -> None:
    summary = build_corpus(c4(max_tokens=30 * 8), "en-US", tmp_path / "out")
    assert (summary.train_documents, summary.left_out_documents) == (30, None), "the rest is no download"
    counts = open_corpus(tmp_path / "out").counts()
    assert all(counts.get(name, 0) >= 3 for name in ("traina", "trainb", "trainc"))
    whole = [document.text for document in open_stream(c4(), "en-US", "train")]
    every = [text for name in "abc" for text in texts(f"train{name}", 40)]
    assert sorted(whole) == sorted(every)
    assert [document.text for document in open_stream(c4(), "en-US", "train")] == whole != every


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [0, 2])
def test_a_killed_build_of_c4_loses_and_repeats_no_document(hub: None, tmp_path: Path, kill_at: int) -> None:
    whole = build_corpus(c4(max_tokens=900), "en-US", tmp_path / "whole", shard_words=200)
    with pytest.raises(Killed):
        build_corpus(c4(max_tokens=900), "en-US", tmp_path / "killed", killer(kill_at), 200)
    assert build_corpus(c4(max_tokens=900), "en-US", tmp_path / "killed", shard_words=200) == whole


def test_a_subset_that_does_not_exist_is_named(hub: None) -> None:
    with pytest.raises(ValueError, match=r"public_text.subset: 'tlh'"):
        open_stream(c4("tlh"), "en-US", "train")


SCRIPT = """
import sys
from pathlib import Path
from pretrain.config import C4Corpus
from pretrain.text.corpus import build_corpus
config = C4Corpus(source="c4", subset="es", revision=sys.argv[2], max_tokens=1000)
try:
    sys.stdout.write(build_corpus(config, "es-ES", Path(sys.argv[1])).model_dump_json())
except (OSError, ValueError) as error:
    sys.stdout.write(f"{type(error).__name__}: {error}")
"""


def build_elsewhere(folder: Path, revision: str, **network: str) -> str:
    """Build the Spanish corpus in another process, which reads the hub's address as it starts."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "out"), revision],
        env={**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "cache"), **network},
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}]
)
def test_an_unreachable_hub_fails_fast_and_shows_the_way_out(tmp_path: Path, network: dict[str, str]) -> None:
    began = time.monotonic()
    said = build_elsewhere(tmp_path, C4_REVISION, **network)
    assert time.monotonic() - began < 90
    for part in ("OSError", "'allenai/c4'", "'es'", "could not be reached", "source 'files'"):
        assert part in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_everything_that_is_asked_of_a_hub_names_the_commit(c4_clone: Path, tmp_path: Path) -> None:
    with serving(c4_clone, "allenai/c4", C4_REVISION) as hub:
        # Whatever else is asked for goes to a proxy that does not exist.
        nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
        network = {"HF_ENDPOINT": hub.address, "no_proxy": "127.0.0.1", **nowhere}
        summary = CorpusSummary.model_validate_json(build_elsewhere(tmp_path, C4_REVISION, **network))
        assert (summary.revision, summary.train_documents, summary.validation_documents) == (C4_REVISION, 120, 20)
        assert sum(path.endswith(".json.gz") for path in hub.asked) == 4
        assert [path for path in hub.asked if "allenai/c4" in path and C4_REVISION not in path] == []
        said = build_elsewhere(tmp_path / "other", "a" * 40, **network)
    assert said.startswith(
        f"ValueError: public_text.revision: '{'a' * 40}' is no commit of 'allenai/c4' on {hub.address}"
    )
    assert "copy one" in said


def test_caps_end_before_a_sentence_and_shards_hold_whole_documents(c4_clone: Path, tmp_path: Path) -> None:
    summary = build_corpus(
        files(c4_clone, max_tokens=602, max_validation_tokens=13), "en-US", tmp_path / "out", shard_words=200
    )
    opened = open_corpus(tmp_path / "out")
    # Sentences have 4 words each, documents 8; numbers are chosen so that neither divides the cap.
    assert (summary.train_tokens, summary.validation_tokens) == (600, 12)
    assert [shard.num_words for shard in opened.train] == [200, 200, 200]
    assert summary.train_documents == sum(map(len, opened.train)) == 75
    # Three files have 120 documents, of which about one in twenty is held out; the 76th is the first that is left out.
    assert summary.left_out_documents == len(read(files(c4_clone))) - 75
    first = opened.train[0]
    expected = sentences(next(iter(open_stream(files(c4_clone), "en-US", "train"))).text, "en-US")
    assert (
        " ".join(first.lexicon[i - 1] if i else "/" for i in first.owner(0))
        == " / ".join(map(" ".join, expected)) + " /"
    )


def test_json_and_parquet_give_the_same_corpus(c4_clone: Path, tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        table = pa.table({"text": [*texts(f"train{name}", 40), None], "likes": list(range(41))})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    from_json = build_corpus(files(c4_clone), "en-US", tmp_path / "json")
    from_parquet = build_corpus(files(c4_clone, train=(str(tmp_path / "*.parquet"),)), "en-US", tmp_path / "parquet")
    assert from_json.digest == from_parquet.digest


def test_kinds_of_files_may_be_mixed_and_resume_anywhere(c4_clone: Path, tmp_path: Path) -> None:
    shards = str(c4_clone / "en/c4-train.0000[01]*")
    pq.write_table(pa.table({"text": pa.array(texts("large", 5), pa.large_string())}), tmp_path / "a.parquet")
    lines = [json.dumps({"text": text, "lang": "en"}) for text in texts("plain", 5)]
    (tmp_path / "own.jsonl").write_text("\n".join(lines), encoding="utf-8")
    validation = (str(c4_clone / "en/c4-valid*"),)
    config = files(
        c4_clone, train=(str(tmp_path / "a.parquet"), shards, str(tmp_path / "own.jsonl")), validation=validation
    )
    whole = read(config)
    assert whole == texts("large", 5) + texts("traina", 40) + texts("trainb", 40) + texts("plain", 5)
    for number in (1, 5, 6, 60, 85, 89):
        stream = open_stream(config, "en-US", "train")
        list(islice(stream, number))
        state = json.loads(json.dumps(stream.state()))
        assert [document.text for document in open_stream(config, "en-US", "train", state)] == whole[number:]


def test_sentences_that_a_model_wrote_are_told_apart(c4_clone: Path, tmp_path: Path) -> None:
    rows = [
        {"text": text, "prompt": "Write a message.", "model_digest": "sha256:" + "ab"[number % 2], "seed": number}
        for number, text in enumerate(texts("invented", 9))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "written.parquet")
    (tmp_path / "written.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    validation = (str(c4_clone / "en/c4-valid*"),)
    for name in ("written.parquet", "written.jsonl"):
        train = (str(c4_clone / "en/c4-train.00000*"), str(tmp_path / name))
        summary = build_corpus(files(c4_clone, train=train, validation=validation), "en-US", tmp_path / f"out-{name}")
        assert [(part.name, part.words, part.synthetic) for part in summary.parts] == [
            ("written by people", 40 * 8, False),
            ("written by a language model, sha256:a", 5 * 8, True),
            ("written by a language model, sha256:b", 4 * 8, True),
        ]
        assert open_corpus(tmp_path / f"out-{name}").summary == summary


def test_held_out_documents_are_whole_disjoint_and_complete(c4_clone: Path, tmp_path: Path) -> None:
    write_c4(tmp_path / "many.json.gz", [f"text {word} {word}" for word in map(str, range(400))] * 2)
    config = files(c4_clone, train=(str(tmp_path / "many.json.gz"),))
    train, validation = (list(open_stream(config, "en-US", split)) for split in ("train", "validation"))
    assert len(train) + len(validation) == 800
    assert not set(train) & set(validation)
    assert 10 <= len(validation) <= 80


def test_own_validation_files_hold_out_nothing(c4_clone: Path) -> None:
    config = files(c4_clone, validation=(str(c4_clone / "en/c4-validation.*"),))
    assert len(list(open_stream(config, "en-US", "train"))) == 120
    assert read(config, "validation") == texts("validation", 20)
    overlap = files(c4_clone, validation=(str(c4_clone / "en/c4-train.00000*"),))
    with pytest.raises(ValueError, match=r"public_text.validation: .* is also a train file"):
        open_stream(overlap, "en-US", "train")


@pytest.mark.parametrize("kill_at", [1, 2])
def test_a_killed_build_keeps_its_shards_and_ends_the_same(c4_clone: Path, tmp_path: Path, kill_at: int) -> None:
    config = files(c4_clone, max_tokens=900)
    whole = build_corpus(config, "en-US", tmp_path / "whole", shard_words=200)

    with pytest.raises(Killed):
        build_corpus(config, "en-US", tmp_path / "killed", killer(kill_at), 200)
    with pytest.raises(ValueError, match="unfinished"):
        open_corpus(tmp_path / "killed")
    finished = sorted((tmp_path / "killed/train").glob("shard-*"))
    before = [path.stat().st_mtime_ns for path in finished]
    assert len(finished) == kill_at + 1
    # A half-written shard, and a file that is read no more: its text must not be asked for again.
    (tmp_path / "killed/train/building").mkdir()
    write_c4(c4_clone / "en/c4-train.00000-of-00003.json.gz", texts("changed", 40))
    again = build_corpus(config.model_copy(), "en-US", tmp_path / "killed", shard_words=200)
    assert [path.stat().st_mtime_ns for path in finished] == before
    opened = open_corpus(tmp_path / "killed")
    assert [shard.digest for shard in opened.train] == [shard.digest for shard in open_corpus(tmp_path / "whole").train]
    assert again.train_tokens == whole.train_tokens
    assert not (tmp_path / "killed/train/building").exists()


def test_how_words_are_written_is_counted_in_the_first_shard_of_train_text(c4_clone: Path, tmp_path: Path) -> None:
    write_c4(tmp_path / "train.json.gz", ["We met Paul. Paul left us", "We met paul and Anna"])
    write_c4(tmp_path / "held.json.gz", ["They MET Zoe"])
    own = {"train": (str(tmp_path / "train.json.gz"),), "validation": (str(tmp_path / "held.json.gz"),)}
    build_corpus(files(c4_clone, **own), "en-US", tmp_path / "one")
    paul, anna = TypicalForm("Paul", 1, 1.0), TypicalForm("Anna", 1, 1.0)
    # Where two forms are as frequent, the word stays as it is.
    assert usual_forms(tmp_path / "one") == {"anna": anna}
    build_corpus(files(c4_clone, **own), "en-US", tmp_path / "two", shard_words=4)
    assert usual_forms(tmp_path / "two") == {"paul": paul}
    # What the cap cuts off is not counted.
    build_corpus(files(c4_clone, max_tokens=4, **own), "en-US", tmp_path / "cut")
    assert usual_forms(tmp_path / "cut") == {"paul": paul}


def test_a_corpus_of_other_rules_is_kept_if_finished_and_else_refused(c4_clone: Path, tmp_path: Path) -> None:
    first = build_corpus(files(c4_clone), "en-US", tmp_path / "out")
    begun = tmp_path / "out" / "begun.json"
    before = json.loads(begun.read_text(encoding="utf-8"))
    before["rules"] -= 1
    begun.write_text(json.dumps(before), encoding="utf-8")
    assert build_corpus(files(c4_clone), "en-US", tmp_path / "out") == first
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(ValueError, match="other rules of what is a word; choose an empty directory"):
        build_corpus(files(c4_clone), "en-US", tmp_path / "out")


def test_a_finished_corpus_is_found_again(c4_clone: Path, tmp_path: Path) -> None:
    first = build_corpus(files(c4_clone), "en-US", tmp_path / "out")
    for path in (c4_clone / "en").iterdir():
        path.unlink()
    assert build_corpus(files(c4_clone), "en-US", tmp_path / "out") == first
    with pytest.raises(ValueError, match="corpus of other settings"):
        build_corpus(files(c4_clone, max_tokens=601), "en-US", tmp_path / "out")


def test_a_swapped_shard_is_found(c4_clone: Path, tmp_path: Path) -> None:
    build_corpus(files(c4_clone), "en-US", tmp_path / "out", shard_words=200)
    one, two = tmp_path / "out/train/shard-00000", tmp_path / "out/train/shard-00001"
    one.rename(tmp_path / "aside")
    two.rename(one)
    (tmp_path / "aside").rename(two)
    with pytest.raises(ValueError, match=r"not the shard manifest.json names"):
        open_corpus(tmp_path / "out")


def test_a_text_of_a_model_that_does_not_say_how_it_was_made_is_refused(c4_clone: Path, tmp_path: Path) -> None:
    (tmp_path / "half.jsonl").write_text('{"text": "x", "model_digest": "y"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"public_text: .*column 'prompt' is missing"):
        open_stream(files(c4_clone, train=(str(tmp_path / "half.jsonl"),)), "en-US", "train")


def test_a_split_without_words_is_refused(c4_clone: Path, tmp_path: Path) -> None:
    write_c4(tmp_path / "one.json.gz", ["a single document"])
    with pytest.raises(
        ValueError,
        match=r"public_text: the validation split has no words.*documents with words \d are different.*name validation",
    ):
        build_corpus(files(c4_clone, train=(str(tmp_path / "one.json.gz"),)), "en-US", tmp_path / "out")


def test_an_unspaced_locale_is_refused_by_every_source(c4_clone: Path, tmp_path: Path) -> None:
    for config in (c4("zh"), files(c4_clone), SampleCorpus(source="sample", max_tokens=10)):
        with pytest.raises(ValueError, match="no spaces between words"):
            build_corpus(config, "zh-CN", tmp_path / "out")
