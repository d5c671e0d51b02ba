"""Only what is public is shared, and its key holds all that it reads."""

import ast
import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

import pretrain
from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.run import cache, runner
from pipeline.run.run_dir import RESULT
from pipeline.run.stage import Stage, StageContext, is_public
from pipeline.stages.graph import STAGES
from pretrain.files import sha256, write_text
from tests.helpers.launches.pipeline_launch import Counted, launch_config, spend
from tests.helpers.launches.public_stages import NAMES, Public, run
from tests.helpers.launches.stages import stages_of

FIRST = launch_config()
SECOND = launch_config(name="second", mechanism={"noise_multiplier": 12.0})
A, B = launch_id(FIRST), launch_id(SECOND)
# A file in each of the places where public stages have code.
CODE = (
    "pretrain/kernel/step.py",
    "pipeline/run/stage.py",
    "pipeline/stages/ingest.py",
    "reports/disclosure/document.py",
    "evaluation/comparison/scoring.py",
)


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

    stages = stages_of(
        {"pretrain": looks}, Stage("pretrain", "", reads=lambda config: ("seed", "vocabulary.base_size"))
    )
    runner.run_stage("pretrain", FIRST, A, settings, stages)
    assert seen == {"seed": FIRST.seed, "vocabulary.base_size": FIRST.vocabulary.base_size}


PRIVATE = {
    "spends": {"planned": lambda config, run: spend(0.1)},
    "may spend": {"planned": lambda config, run: None},
    "keeps text": {"private": ("store",)},
    "is made in every launch anew": {"code": ()},
    "needs text": {"needs": ("ingest_private",)},
    "may need text": {"may_need": ("ingest_private",)},
    "has it as evidence": {"evidence": ("ingest_private",)},
    "needs what was made of it": {"needs": ("build_vocabulary",)},
    "needs what is unknown": {"needs": ("nowhere",)},
}


@pytest.mark.parametrize("private", PRIVATE.values(), ids=PRIVATE)
def test_what_spends_keeps_or_opens_something_private_is_not_public(private: dict):
    declared = Stage("pretrain", "", needs=("ingest_public",), code=("pretrain",))
    assert is_public("pretrain", {**STAGES, "pretrain": declared})
    assert not is_public("pretrain", {**STAGES, "pretrain": replace(declared, **private)})


def test_a_public_stage_cannot_read_where_private_text_is(settings: Settings):
    reads_text = Stage("plan", "", reads=lambda config: ("private_text.paths",), code=("pretrain",))
    stages = stages_of({"plan": lambda ctx: Counted(value=1)}, reads_text)
    with pytest.raises(ValueError, match="'private_text' in the public stage 'plan'"):
        runner.run_stage("plan", FIRST, A, settings, stages)


def test_a_stage_that_uses_what_its_key_leaves_out_fails(public: Public, settings: Settings):
    stages = public.stages
    stages |= {"pretrain": replace(stages["pretrain"], needs=())}
    runner.run_stage("ingest_public", FIRST, A, settings, stages)
    with pytest.raises(PermanentError, match=r"public/ingest_public/result\.json, which it does not declare"):
        runner.run_stage("pretrain", FIRST, A, settings, stages)


def test_no_stage_that_names_no_code_is_taken_over(public: Public, settings: Settings):
    private = {name: replace(stage, code=()) for name, stage in public.stages.items()}
    for config in (FIRST, SECOND):
        for name in NAMES:
            record = runner.run_stage(name, config, launch_id(config), settings, private).record
            assert (record.content, record.reused_from) == (None, None)
    assert public.made == [*NAMES, *NAMES]


@pytest.mark.slow
def test_a_stage_that_left_private_files_is_not_shared(public: Public, settings: Settings):
    public.during = lambda ctx: write_text(ctx.private / "left.txt", "left")
    assert run(public, settings, FIRST)[0].content is None
    run(public, settings, SECOND)
    assert public.made == [*NAMES, "ingest_public"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_library_of_public_stages_is_part_of_the_key():
    roots = set()
    for path in Path(pretrain.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots |= {name.partition(".")[0] for name in names}
    by_root = metadata.packages_distributions()
    used = {name for root in roots & by_root.keys() for name in by_root[root]}
    # Ours, and those that share the name ``google`` with protobuf.
    assert used - {"tacit-keyboard", "google-auth", "googleapis-common-protos"} == set(STAGES["pretrain"].libraries)


@pytest.mark.parametrize("place", CODE)
def test_a_change_of_code_is_noticed(tmp_path: Path, place: str):
    digests = []
    for number, ending in enumerate(["", "", "# a change"]):
        for name in CODE:
            write_text(tmp_path / str(number) / name, "x = 1\n" + (ending if name == place else ""))
        digests.append(cache.code_digest(tmp_path / str(number), STAGES["pretrain"].code))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("place", ["pretrain/moved.py", "pretrain/empty", "nowhere"])
def test_code_that_is_not_there_is_refused(tmp_path: Path, place: str):
    write_text(tmp_path / "pretrain" / "step.py", "x = 1\n")
    write_text(tmp_path / "pretrain" / "empty" / "words.txt", "no source")
    with pytest.raises(ValueError, match=f"code: '{place}' has no source file"):
        cache.code_digest(tmp_path, ("pretrain", place))
