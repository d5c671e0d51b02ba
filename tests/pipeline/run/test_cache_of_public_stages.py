"""Public stages are reused where everything that they read is the same, and nowhere else."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.run import cache, runner
from pipeline.run.run_dir import RESULT
from pipeline.run.runner import StageOutcome
from pipeline.run.stage import StageContext
from pretrain.files import write_text
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.public_stages import NAMES, Public, files, run

FIRST = launch_config()
SECOND = launch_config(name="second", mechanism={"noise_multiplier": 12.0})
A, B = launch_id(FIRST), launch_id(SECOND)


def test_a_launch_that_differs_in_its_mechanism_takes_both_over(public: Public, settings: Settings):
    first = run(public, settings, FIRST)
    second = run(public, settings, SECOND)
    assert public.made == list(NAMES)
    assert files(settings, B) == files(settings, A) != {}
    for record, source in zip(second, first, strict=True):
        assert (record.launch_id, record.reused_from, source.reused_from) == (B, A, None)
        assert record.content == source.content is not None
        assert (record.result, record.inputs, record.outputs) == (source.result, source.inputs, source.outputs)
        assert runner.find_done(record.stage, SECOND, B, settings) == StageOutcome(record, skipped=True)


def test_what_was_taken_over_outlives_the_launch_that_made_it(public: Public, settings: Settings):
    run(public, settings, FIRST)
    run(public, settings, SECOND)
    kept = files(settings, B)
    for path in (settings.runs_dir / A / "public").rglob("*.txt"):
        path.write_text("written over in place", encoding="utf-8")
    assert files(settings, B) == kept
    shutil.rmtree(settings.runs_dir / A)
    third = run(public, settings, launch_config(name="third"))
    assert public.made == list(NAMES)
    assert [record.reused_from for record in third] == [A, A], "who made it, not who handed it on"


def changed_text(public: Public) -> None:
    public.given.write_text("other public words", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "made_again"),
    [
        ({"mechanism": {"rounds": 9}}, []),
        ({"vocabulary": {"max_new_words": 5}}, []),
        ({"seed": 8}, ["pretrain"]),
        ({"pretrain": {"steps": 2}}, ["pretrain"]),
        # The other text is part of what the model's stage read.
        ({"locale": "en-GB"}, list(NAMES)),
        ({"vocabulary": {"base_size": 30}}, list(NAMES)),
    ],
)
def test_only_what_a_stage_reads_makes_it_another(
    public: Public, settings: Settings, changes: dict, made_again: list[str]
):
    run(public, settings, FIRST)
    public.made.clear()
    config = launch_config(name="changed", **changes)
    run(public, settings, config)
    assert public.made == made_again
    elsewhere = replace(settings, runs_dir=settings.runs_dir / "alone")
    run(public, elsewhere, config)
    assert files(settings, launch_id(config)) == files(elsewhere, launch_id(config))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["text", "code", "a library"])
def test_other_text_code_or_libraries_are_not_the_same(
    public: Public, settings: Settings, monkeypatch: pytest.MonkeyPatch, what: str
):
    run(public, settings, FIRST)
    if what == "text":
        changed_text(public)
    elif what == "code":
        monkeypatch.setattr(cache, "code_digest", lambda root, places: "other")
    else:
        monkeypatch.setattr(cache, "version_of", lambda library: "other")
    run(public, settings, SECOND)
    assert public.made == [*NAMES, *NAMES]


def tampered(folder: Path) -> None:
    (folder / "corpus" / "text.txt").write_text("en-US poisoned words", encoding="utf-8")


def cut(folder: Path) -> None:
    (folder / "vocabulary.json").unlink()


def linked(folder: Path) -> None:
    shutil.move(folder / "vocabulary.json", folder.parent / "elsewhere")
    (folder / "vocabulary.json").symlink_to(folder.parent / "elsewhere")


def broken(folder: Path) -> None:
    (folder / RESULT).write_text((folder / RESULT).read_text(encoding="utf-8")[:-40], encoding="utf-8")


def unfinished(folder: Path) -> None:
    (folder / RESULT).unlink()


def without_a_key(folder: Path) -> None:
    content = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    del content["content"]
    (folder / RESULT).write_text(json.dumps(content), encoding="utf-8")


def with_private_files(folder: Path) -> None:
    content = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    (folder / RESULT).write_text(json.dumps(content | {"private_outputs": True}), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [tampered, cut, linked, broken, unfinished, without_a_key, with_private_files],
    ids=lambda each: each.__name__,
)
def test_a_damaged_or_unfinished_source_is_not_used(public: Public, settings: Settings, damage: Callable[[Path], None]):
    run(public, settings, FIRST)
    whole = files(settings, A)
    damage(settings.runs_dir / A / "public" / "ingest_public")
    public.made.clear()
    record, _ = run(public, settings, SECOND)
    assert public.made == ["ingest_public"], "the model is of the same text"
    assert record.reused_from is None
    assert files(settings, B) == whole
    assert not [path for path in (settings.runs_dir / B / "public").iterdir() if path.name.startswith(".")]


def test_a_whole_source_is_used_after_a_damaged_one(public: Public, settings: Settings):
    run(public, settings, FIRST)
    run(public, settings, SECOND)
    tampered(settings.runs_dir / min(A, B) / "public" / "ingest_public")
    run(public, settings, launch_config(name="third"))
    assert public.made == list(NAMES)


def test_text_that_changes_while_it_is_read_is_not_shared(public: Public, settings: Settings):
    public.during = lambda ctx: changed_text(public)
    record = run(public, settings, FIRST)[0]
    assert record.content is None
    assert run(public, settings, SECOND)[0].content is not None
    assert public.made.count("ingest_public") == 2


class PowerCut(Exception):
    pass


@pytest.mark.parametrize("changes_meanwhile", [False, True])
def test_a_stage_that_goes_on_after_a_crash_is_shared_if_it_still_reads_the_same(
    public: Public, settings: Settings, changes_meanwhile: bool
):
    def dies(ctx: StageContext) -> None:
        write_text(ctx.public / "corpus" / "half.txt", "half")
        raise PowerCut

    public.during = dies
    with pytest.raises(PowerCut):
        run(public, settings, FIRST)
    public.during = lambda ctx: None
    if changes_meanwhile:
        changed_text(public)
    record = run(public, settings, FIRST)[0]
    assert "corpus/half.txt" in record.outputs
    assert (record.content is None) == changes_meanwhile


def test_work_begun_by_a_version_without_keys_is_not_shared(public: Public, settings: Settings):
    write_text(settings.runs_dir / A / "public" / "ingest_public" / "corpus" / "begun.json", "{}")
    assert run(public, settings, FIRST)[0].content is None


def test_taking_over_replaces_what_was_begun(public: Public, settings: Settings):
    run(public, settings, FIRST)
    write_text(settings.runs_dir / B / "public" / "ingest_public" / "corpus" / "begun.json", "{}")
    run(public, settings, SECOND)
    assert public.made == list(NAMES)
    assert files(settings, B) == files(settings, A)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["copying", "putting in place", "writing the result"])
def test_a_crash_while_taking_over_leaves_nothing_half(
    public: Public, settings: Settings, monkeypatch: pytest.MonkeyPatch, at: str
):
    run(public, settings, FIRST)
    folder = settings.runs_dir / B / "public" / "ingest_public"
    owner, name, fatal = {
        "copying": (shutil, "copyfile", lambda source, *_: "vocabulary" in source.name),
        "putting in place": (Path, "rename", lambda path, *_: path.parent.name.endswith(".tmp")),
        "writing the result": (runner, "write_text", lambda path, *_: path.name == RESULT),
    }[at]
    real = getattr(owner, name)

    def until(*arguments: object) -> object:
        if fatal(*arguments):
            raise PowerCut
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, until)
        with pytest.raises(PowerCut):
            run(public, settings, SECOND)
    assert not (folder / RESULT).exists()
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("[!.]*") if path.is_file()}
    whole = {"corpus/text.txt", "vocabulary.json"}
    assert left == (whole if at == "writing the result" else set())
    record = run(public, settings, SECOND)[0]
    assert record.reused_from == A
    assert public.made == list(NAMES)
    assert files(settings, B) == files(settings, A)


def test_two_launches_at_once_each_make_their_own(public: Public, settings: Settings):
    def meanwhile(ctx: StageContext) -> None:
        write_text(ctx.public / "corpus" / "first.txt", "of the first launch")
        public.during = lambda ctx: None
        run(public, settings, SECOND)

    public.during = meanwhile
    run(public, settings, FIRST)
    assert public.made == ["ingest_public", "ingest_public", "pretrain", "pretrain"]
    assert "ingest_public/corpus/first.txt" not in files(settings, B)
