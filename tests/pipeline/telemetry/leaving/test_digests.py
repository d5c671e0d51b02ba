"""No public digest can be tried: neither guessed text nor guessed words that nobody has reviewed."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

from discovery.results import FoundWord
from pipeline.run.run_dir import RunDir
from pipeline.stages.discover import write_words

WORDS = [FoundWord(word="haha", layer=4, share=0.1, low=0.05, high=0.15)]


def digest_of(folder: Path, key: bytes) -> str:
    folder.mkdir()
    return write_words(SimpleNamespace(private=folder, noise_key=key), WORDS)


def test_the_digest_of_unreviewed_words_is_another_for_every_key(tmp_path: Path) -> None:
    first, again, other = (
        digest_of(tmp_path / name, key) for name, key in (("a", b"1" * 32), ("b", b"1" * 32), ("c", b"2" * 32))
    )
    assert first == again, "a retry is the same"
    assert first != other
    content = json.loads((tmp_path / "a" / "words.json").read_text(encoding="utf-8"))
    tried = [content["words"], {"words": content["words"]}]
    assert first not in {hashlib.sha256((json.dumps(each, indent=1) + "\n").encode()).hexdigest() for each in tried}


def test_the_digest_of_a_sheet_of_words_is_keyed_and_that_of_a_blocklist_is_not(tmp_path: Path) -> None:
    runs = [RunDir(tmp_path, name) for name in ("one", "two")]
    seen = []
    for run in runs:
        sheet = run.private("build_vocabulary") / "review.csv"
        sheet.write_text("word,decision\nlol,drop\n", encoding="utf-8")
        run.use_file(sheet)
        (name,) = run.used
        seen.append(run.used[name])
        assert run.given_digest("private/build_vocabulary/review.csv") == run.used[name]
        sheet.write_text("word,decision\nlol,keep\n", encoding="utf-8")
        assert run.given_digest("private/build_vocabulary/review.csv") != run.used[name], "a change is noticed"
    assert len(set(seen)) == 2
    assert hashlib.sha256(b"word,decision\nlol,drop\n").hexdigest() not in seen
    blocklist = tmp_path / "blocked.txt"
    blocklist.write_text("slur\n", encoding="utf-8")
    assert runs[0].given_digest(str(blocklist)) == hashlib.sha256(b"slur\n").hexdigest()
