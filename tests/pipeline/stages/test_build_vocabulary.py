"""Only discovered words that filters and people let pass leave the private folder."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from discovery.results import FoundWord
from pipeline.ground.errors import PermanentError, StageInputMissing
from pipeline.ground.settings import Settings
from pipeline.launch import config as configs
from pipeline.run import artifacts
from pipeline.run.known import run_folder, write_down
from pipeline.run.run_dir import RESULT, StageRecord, record_text
from pipeline.run.stage import StageContext
from pipeline.stages import build_vocabulary
from pretrain.files import text_sha256, write_text
from pretrain.text import vocabulary
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from tests.helpers.launches.pipeline_launch import launch_config

FOUND = ("lovely", "slurword", "sunny", "x1x2x3x", "secretname")
BASE = Vocabulary((*SPECIALS, "you", "see"))


@pytest.fixture
def make(settings: Settings, tmp_path: Path) -> Callable[..., StageContext]:
    """A launch that has discovered the given words; its blocklist names *slurword*."""
    (tmp_path / "blocked.txt").write_text("slurword\n", encoding="utf-8")

    def launch(words: Sequence[str], **changes: object) -> StageContext:
        config = launch_config(
            discovery={"blocklist": str(tmp_path / "blocked.txt")},
            vocabulary={"max_new_words": 9, **changes},
            report={"show_new_words": True},
        )
        made = run_folder(settings, configs.launch_id(config))
        ctx = StageContext(config, made, settings, "build_vocabulary", None)
        vocabulary.save(BASE, made.public("ingest_public") / "vocabulary.json")
        finish(ctx, "ingest_public", {})
        found = [FoundWord(word=word, layer=3, share=0.1 / place, low=0, high=1) for place, word in enumerate(words, 1)]
        content = json.dumps({"secret": "5" * 64, "words": [word.model_dump() for word in found]})
        write_text(made.private("discover") / "words.json", content)
        finish(ctx, "discover", {"words_sha256": text_sha256(content)})
        return ctx

    return launch


@pytest.fixture
def ctx(make: Callable[..., StageContext]) -> StageContext:
    """A launch whose words a person reviews."""
    return make(FOUND, review=True)


def finish(ctx: StageContext, stage: str, result: dict) -> None:
    """Write the record of a stage."""
    outputs = ctx.run.manifest(stage)
    record = StageRecord(
        launch_id=ctx.run.launch_id,
        stage=stage,
        config_digest=configs.config_digest(ctx.config),
        inputs={},
        outputs=outputs,
        private_outputs=False,
        started_at="",
        seconds=0,
        processor="any",
        result=result,
    )
    write_down(record, ctx.settings)
    write_text(ctx.run.public(stage) / RESULT, record_text(record))


def decide(ctx: StageContext, *dropped: str) -> None:
    """A person keeps every word but some."""
    with pytest.raises(PermanentError, match="5 of 5 words wait for a decision"):
        build_vocabulary.build_vocabulary(ctx)
    sheet = ctx.private / "review" / "review.csv"
    head, *lines = sheet.read_text(encoding="utf-8").splitlines()
    decided = (line.replace(",,", ",drop," if any(word in line for word in dropped) else ",keep,", 1) for line in lines)
    sheet.write_text("\n".join([head, *decided]) + "\n", encoding="utf-8")


def test_what_was_dropped_stands_nowhere_public(ctx: StageContext) -> None:
    decide(ctx, "secretname", "slurword")
    built = build_vocabulary.build_vocabulary(ctx)
    finish(ctx, "build_vocabulary", built.model_dump(mode="json"))
    assert artifacts.added_words(ctx) == ("lovely", "sunny", "x1x2x3x")
    assert built.added == 3
    public = b"".join(path.read_bytes() for path in (ctx.run.path / "public").rglob("*") if path.is_file())
    assert b"lovely" in public
    assert not [word for word in ("slurword", "secretname") if word.encode() in public]
    assert built.dropped_by_person == 2
    assert {each.name: each.dropped for each in built.filters} == {"blocklist": 0, "digits": 0, "one-letter": 0}
    stated = json.loads((ctx.public / artifacts.FREQUENCIES).read_text(encoding="utf-8"))
    kept = [word.shrunk for word in artifacts.discovered_words(ctx) if word.word not in ("slurword", "secretname")]
    assert stated == [0.006 * share for share in kept]


@pytest.mark.parametrize(
    ("filters", "added", "dropped"),
    [
        (["password", "one-letter"], ("lovely", "sunny"), {"blocklist": 1, "password": 1, "one-letter": 1}),
        (["password"], ("lovely", "u", "sunny"), {"blocklist": 1, "password": 1}),
        ([], ("lovely", "u", "sunny", "x1x2x3x"), {"blocklist": 1}),
    ],
    ids=str,
)
def test_only_the_filters_of_the_launch_file_drop_words(
    make: Callable[..., StageContext], filters: list[str], added: tuple[str, ...], dropped: dict[str, int]
) -> None:
    ctx = make(("lovely", "u", "slurword", "sunny", "x1x2x3x"), filters=filters, review=False)
    built = build_vocabulary.build_vocabulary(ctx)
    finish(ctx, "build_vocabulary", built.model_dump(mode="json"))
    assert artifacts.added_words(ctx) == added
    assert {each.name: each.dropped for each in built.filters} == dropped
    assert built.dropped_by_person is None
    public = b"".join(path.read_bytes() for path in (ctx.run.path / "public").rglob("*") if path.is_file())
    assert [word for word in ("slurword", "x1x2x3x") if word.encode() in public and word not in added] == []


def test_words_that_somebody_changed_are_refused(ctx: StageContext) -> None:
    path = ctx.run.private("discover") / "words.json"
    assert [word.word for word in artifacts.discovered_words(ctx)] == list(FOUND)
    path.write_text(path.read_text(encoding="utf-8").replace("sunny", "other"), encoding="utf-8")
    with pytest.raises(StageInputMissing, match=r"words\.json: not the words that discovery wrote"):
        artifacts.discovered_words(ctx)
    path.unlink()
    with pytest.raises(StageInputMissing, match="restore the file"):
        artifacts.discovered_words(ctx)
