"""What public stages made is taken over where everything that they read is the same, and nowhere else."""

import ast
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

import pretrain
from pipeline import runner, sharing
from pipeline.config import LaunchConfig, launch_id, load_launch
from pipeline.run_dir import RESULT, StageRecord
from pipeline.runner import StageOutcome, Stages
from pipeline.settings import Settings
from pipeline.stage import PublicStage, StageContext
from pipeline.stages.table import STAGES
from pretrain.files import sha256, write_text
from tests.helpers.pipeline_launch import Counted, launch_config, spend

FIRST = launch_config()
SECOND = launch_config(name="second", mechanism={"noise_multiplier": 12.0})
A, B = launch_id(FIRST), launch_id(SECOND)
NAMES = ("ingest_public", "pretrain")


class Public:
    """Two public stages in small: text from a given file, and a model of it."""

    def __init__(self, given: Path) -> None:
        self.given, self.made = given, list[str]()
        self.during: Callable[[StageContext], None] = lambda ctx: None

    def ingest_public(self, ctx: StageContext) -> Counted:
        self.made.append("ingest_public")
        self.during(ctx)
        write_text(ctx.public / "corpus" / "text.txt", f"{ctx.config.locale} {self.given.read_text()}")
        write_text(ctx.public / "vocabulary.json", str(ctx.config.vocabulary.base_size))
        return Counted(value=3)

    def pretrain(self, ctx: StageContext) -> Counted:
        self.made.append("pretrain")
        text = ctx.run.input("ingest_public", "corpus/text.txt").read_text(encoding="utf-8")
        write_text(ctx.public / "model.txt", f"{text} {ctx.config.pretrain.steps} {ctx.config.seed}")
        return Counted(value=ctx.config.pretrain.steps)

    @property
    def stages(self) -> Stages:
        """What the runner takes."""
        return Stages(
            functions={"ingest_public": self.ingest_public, "pretrain": self.pretrain},
            spends={},
            public={
                "ingest_public": PublicStage(
                    reads=lambda config: ("locale", "vocabulary.base_size"),
                    given=lambda ctx: {"text": sha256(self.given)},
                ),
                "pretrain": PublicStage(reads=lambda config: ("seed", "pretrain"), after=("ingest_public",)),
            },
        )


@pytest.fixture
def public(tmp_path: Path) -> Public:
    given = tmp_path / "given.txt"
    given.write_text("public words", encoding="utf-8")
    return Public(given)


def run(public: Public, settings: Settings, config: LaunchConfig) -> list[StageRecord]:
    """Both stages of a launch; their records."""
    return [runner.run_stage(name, config, launch_id(config), settings, public.stages).record for name in NAMES]


def files(settings: Settings, run_id: str) -> dict[str, bytes]:
    """What the two stages of a launch made, but for their records."""
    folder = settings.runs_dir / run_id / "public"
    paths = [path for name in NAMES for path in (folder / name).rglob("[!.]*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.name != RESULT}


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


@pytest.mark.parametrize("what", ["text", "code", "a library"])
def test_other_text_code_or_libraries_are_not_the_same(
    public: Public, settings: Settings, monkeypatch: pytest.MonkeyPatch, what: str
):
    run(public, settings, FIRST)
    if what == "text":
        changed_text(public)
    elif what == "code":
        monkeypatch.setattr(sharing, "code_digest", lambda root: "other")
    else:
        monkeypatch.setattr(metadata, "version", lambda name: "other")
    run(public, settings, SECOND)
    assert public.made == [*NAMES, *NAMES]


@pytest.mark.parametrize("place", ["pretrain/kernel/step.py", "pipeline/stages/ingest.py", "pipeline/stage.py"])
def test_a_change_of_code_is_noticed(tmp_path: Path, place: str):
    digests = []
    for number, ending in enumerate(["", "", "# a change"]):
        for name in ("pretrain/kernel/step.py", "pipeline/stages/ingest.py", "pipeline/stage.py"):
            write_text(tmp_path / str(number) / name, "x = 1\n" + (ending if name == place else ""))
        digests.append(sharing.code_digest(tmp_path / str(number)))
    assert digests[0] == digests[1] != digests[2]


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


def of_version_0_1(folder: Path) -> None:
    content = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    del content["content"]
    (folder / RESULT).write_text(json.dumps(content), encoding="utf-8")


def with_private_files(folder: Path) -> None:
    content = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    (folder / RESULT).write_text(json.dumps(content | {"private_outputs": True}), encoding="utf-8")


@pytest.mark.parametrize(
    "damage",
    [tampered, cut, linked, broken, unfinished, of_version_0_1, with_private_files],
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


@pytest.mark.parametrize("absolute", [False, True])
def test_a_name_that_leads_out_of_the_public_folder_is_not_followed(public: Public, settings: Settings, absolute: bool):
    run(public, settings, FIRST)
    secret = settings.runs_dir / A / "private" / "ingest_private" / "store.txt"
    write_text(secret, "a word nobody may see")
    folder = settings.runs_dir / A / "public" / "ingest_public"
    content = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    name = str(secret) if absolute else "../../private/ingest_private/store.txt"
    content["outputs"] = {name: sha256(secret)}
    (folder / RESULT).write_text(json.dumps(content), encoding="utf-8")
    run(public, settings, SECOND)
    assert public.made == [*NAMES, "ingest_public"]
    assert list((settings.runs_dir / B).rglob("store.txt")) == []


def test_a_stage_sees_no_field_that_it_does_not_say_it_reads(settings: Settings):
    seen: dict[str, object] = {}

    def looks(ctx: StageContext) -> Counted:
        for name in ("seed", "vocabulary.base_size"):
            block, _, field = name.rpartition(".")
            seen[name] = getattr(getattr(ctx.config, block) if block else ctx.config, field)
        hidden = [name for name in LaunchConfig.model_fields if name not in ("seed", "vocabulary")]
        for name in hidden:
            with pytest.raises(AttributeError, match=name):
                getattr(ctx.config, name)
        with pytest.raises(AttributeError, match="max_new_words"):
            _ = ctx.config.vocabulary.max_new_words
        return Counted(value=1)

    declared = PublicStage(reads=lambda config: ("seed", "vocabulary.base_size"))
    stages = Stages({"pretrain": looks}, {}, {"pretrain": declared})
    runner.run_stage("pretrain", FIRST, A, settings, stages)
    assert seen == {"seed": FIRST.seed, "vocabulary.base_size": FIRST.vocabulary.base_size}


def test_what_is_private_cannot_be_declared_public(settings: Settings):
    declared = PublicStage(reads=lambda config: ("seed",))
    with pytest.raises(ValueError, match="fine_tune: a stage that spends is not public"):
        Stages({}, {"fine_tune": spend}, {"fine_tune": declared})
    with pytest.raises(ValueError, match="adapt: it comes after build_vocabulary, which is not public"):
        Stages({}, {}, {"adapt": PublicStage(reads=lambda config: (), after=("build_vocabulary",))})
    reads_text = PublicStage(reads=lambda config: ("private_text.paths",))
    stages = Stages({"plan": lambda ctx: Counted(value=1)}, {}, {"plan": reads_text})
    with pytest.raises(ValueError, match="'private_text' in a public stage"):
        runner.run_stage("plan", FIRST, A, settings, stages)


def test_a_stage_that_uses_what_its_key_leaves_out_fails(public: Public, settings: Settings):
    stages = public.stages
    forgetful = {**stages.public, "pretrain": PublicStage(reads=lambda config: ("seed", "pretrain"))}
    stages = Stages(stages.functions, {}, forgetful)
    runner.run_stage("ingest_public", FIRST, A, settings, stages)
    with pytest.raises(AssertionError, match=r"it used \{'ingest_public'\}"):
        runner.run_stage("pretrain", FIRST, A, settings, stages)


def test_no_stage_but_the_declared_ones_is_taken_over(public: Public, settings: Settings):
    private = Stages(public.stages.functions, {})
    for config in (FIRST, SECOND):
        for name in NAMES:
            record = runner.run_stage(name, config, launch_id(config), settings, private).record
            assert (record.content, record.reused_from) == (None, None)
    assert public.made == [*NAMES, *NAMES]
    assert set(STAGES.public) == {"ingest_public", "pretrain"}


def test_a_stage_that_left_private_files_is_not_shared(public: Public, settings: Settings):
    public.during = lambda ctx: write_text(ctx.private / "left.txt", "left")
    assert run(public, settings, FIRST)[0].content is None
    run(public, settings, SECOND)
    assert public.made == [*NAMES, "ingest_public"]


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


@pytest.mark.parametrize("at", ["copying", "putting in place", "writing the result"])
def test_a_crash_while_taking_over_leaves_nothing_half(
    public: Public, settings: Settings, monkeypatch: pytest.MonkeyPatch, at: str
):
    run(public, settings, FIRST)
    folder = settings.runs_dir / B / "public" / "ingest_public"
    owner, name, fatal = {
        "copying": (shutil, "copyfile", lambda source, *_: "vocabulary" in source.name),
        "putting in place": (Path, "rename", lambda path, *_: path.name.endswith(".taken")),
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


@pytest.mark.parametrize("file", sorted(Path("dags/launches").glob("*.yaml")), ids=lambda path: path.stem)
def test_public_stages_read_fields_that_exist(file: Path):
    config = load_launch(file)
    for stage in STAGES.public.values():
        sharing.restricted(config, stage)
        content: Mapping = config.model_dump(mode="json")
        for name in stage.reads(config):
            value: object = content
            for part in name.split("."):
                value = value[part]


def test_every_library_of_public_stages_is_part_of_the_key():
    roots = set()
    for path in Path(pretrain.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots |= {name.partition(".")[0] for name in names}
    by_root = metadata.packages_distributions()
    used = {name for root in roots & by_root.keys() for name in by_root[root]}
    # Ours, and what shares the name ``google`` with protobuf.
    assert used - {"tacit", "google-auth"} == set(sharing.LIBRARIES)
