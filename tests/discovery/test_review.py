"""Review of discovered words by a person, and its consequences."""

import csv

import pytest

from discovery.filters import NAMES
from discovery.results import FoundWord
from discovery.review import PASSED, candidates, read_blocklist, read_review, write_review

WORDS = ("haha", "-ish", "bob@x.org", "slur", "=cmd", "it's", 'quo"te,d')


def found() -> tuple[FoundWord, ...]:
    return tuple(
        FoundWord(word=word, layer=len(word) + 1, share=share / 100, low=share / 200, high=share / 50)
        for share, word in enumerate(WORDS, start=1)
    )


def decide(folder, decisions: dict[str, str]) -> None:
    """As a person would, in a spreadsheet."""
    with (folder / "review.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["decision"] = decisions.get(row["word"], row["decision"])
    with (folder / "review.csv").open("w", encoding="utf-8", newline="") as file:
        sheet = csv.DictWriter(file, rows[0].keys())
        sheet.writeheader()
        sheet.writerows(rows)


def test_every_word_is_listed_with_its_interval_and_verdict(tmp_path):
    listed = candidates(found(), NAMES, blocked=["SLUR"])
    assert [row.word for row in listed] == list(reversed(WORDS))
    assert [row.number for row in listed] == list(range(1, 8))
    assert all(row.low < row.share < row.high for row in listed)
    verdicts = {row.word: row.verdict for row in listed}
    assert verdicts["haha"] == verdicts["it's"] == PASSED
    assert (verdicts["bob@x.org"], verdicts["slur"]) == ("e-mail", "blocklist")
    write_review(tmp_path, listed)
    assert read_review(tmp_path) == listed
    assert [row.word for row in listed if not row.accepted] == ["slur", "bob@x.org"]


def test_a_person_s_decision_counts_most(tmp_path):
    write_review(tmp_path, candidates(found(), NAMES, blocked=["slur"]))
    decide(tmp_path, {"haha": "drop", "bob@x.org": " Keep "})
    accepted = {row.word for row in read_review(tmp_path) if row.accepted}
    assert accepted == set(WORDS) - {"haha", "slur"}


def test_a_spreadsheet_runs_no_word_as_a_formula(tmp_path):
    write_review(tmp_path, candidates(found(), NAMES))
    text = (tmp_path / "review.csv").read_text(encoding="utf-8")
    assert ",'=cmd," in text
    assert ",'-ish," in text
    assert {row.word for row in read_review(tmp_path)} == set(WORDS)


def test_a_review_that_cannot_be_read_is_refused(tmp_path):
    write_review(tmp_path, candidates(found(), NAMES))
    decide(tmp_path, {"haha": "perhaps"})
    with pytest.raises(ValueError, match="'perhaps' is unknown"):
        read_review(tmp_path)
    lines = (tmp_path / "review.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "review.csv").write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(ValueError, match="not those of"):
        read_review(tmp_path)


def test_a_blocklist_that_is_not_there_is_no_empty_one(tmp_path):
    with pytest.raises(ValueError, match=r"discovery.blocklist: .*gone.txt does not exist"):
        read_blocklist(tmp_path / "gone.txt")


def test_a_blocklist_is_compared_without_case_and_comes_first(tmp_path):
    listed = tmp_path / "blocked.txt"
    listed.write_text("# reviewed\n\nslur\n  straße \n@bob\n", encoding="utf-8")
    words = {"haha": PASSED, "slur": "blocklist", "strasse": "blocklist", "@bob": "blocklist", "@bea": "handle"}
    typed = [FoundWord(word=word, form="upper", layer=2, share=0.1, low=0, high=1) for word in words]
    judged = candidates(typed, ["handle"], read_blocklist(listed))
    assert {row.word: row.verdict for row in judged} == words
    assert {row.word: row.matches for row in judged}["@bob"] == ("blocklist", "handle")


def test_the_sheet_shows_what_filters_drop_and_what_others_would_drop(tmp_path):
    words = [FoundWord(word=word, layer=2, share=0.1, low=0, high=1) for word in ("haha", "u", "a1b2c", "call1234")]
    write_review(tmp_path, candidates(words, ["digits"]))
    with (tmp_path / "review.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["word"]: (row["verdict"], row["matches"]) for row in csv.DictReader(file)}
    assert rows == {
        "haha": (PASSED, ""),
        "u": (PASSED, "one-letter"),
        "a1b2c": (PASSED, "password"),
        "call1234": ("digits", "digits"),
    }
    decide(tmp_path, {"u": "drop", "call1234": "keep"})
    assert {row.word for row in read_review(tmp_path) if row.accepted} == {"haha", "a1b2c", "call1234"}
