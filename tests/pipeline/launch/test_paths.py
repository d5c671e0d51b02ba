"""A path in a launch file begins at the file's folder: in every command, from every working directory and clone."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from federated.config.population import FilePopulation
from pipeline.ground.errors import PERMANENT
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id, load_kept_launch, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.rehearsal.stand_ins import rehearsed
from pipeline.run import runner
from pipeline.run.named import to_run
from pipeline.run.stage import StageContext, Stages, access
from pipeline.stages import build_vocabulary
from pipeline.stages.graph import STAGES
from pretrain.config import FileCorpus, PlacedPath
from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.command import answered
from tests.helpers.launches.installed import installed, registered
from tests.helpers.launches.pipeline_launch import Counted, dumped
from tests.helpers.launches.stages import stages_of
from tests.helpers.launches.tiny_launch import write_launch

PEOPLE = {"source": "made_up_files", "name": "typists", "max_words_per_device": 60, "test_fraction": 0.35}
PUBLIC = {"source": "files", "max_tokens": 20_000, "max_validation_tokens": 2_000}
RELATIVE = {
    "public_text": PUBLIC | {"train": ["../texts/train.json.gz"], "validation": ["../texts/valid*.json.gz"]},
    "private_text": PEOPLE | {"paths": ["../texts/clients.parquet"]},
}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a folder from which no path of a launch file here leads to a file."""
    folder = tmp_path / "else" / "where" / "far"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def clone(home: Path, name: str = "clone") -> Path:
    """A launch file in ``launches``, with its texts and a list of words beside that folder."""
    folder = home / name
    (folder / "texts").mkdir(parents=True)
    (folder / "launches").mkdir()
    made = yaml.safe_load(write_launch(folder / "texts").read_text(encoding="utf-8"))
    (folder / "texts" / "tiny.yaml").unlink()
    (folder / "texts" / "words.txt").write_text("slur\n", encoding="utf-8")
    made |= RELATIVE
    made["discovery"] |= {"blocklist": "../texts/words.txt"}
    (folder / "launches" / "tiny.yaml").write_text(dumped(made), encoding="utf-8")
    return folder / "launches" / "tiny.yaml"


def with_path(file: Path, path: str) -> LaunchConfig:
    raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    raw["private_text"] = raw["private_text"] | {"paths": [path]}
    file.write_text(dumped(raw), encoding="utf-8")
    return load_launch(file)


def paths_of(config: LaunchConfig) -> list[str]:
    assert isinstance(config.public_text, FileCorpus)
    files = getattr(config.private_text, "paths", ())
    return [*files, *config.public_text.train, *config.public_text.validation, str(config.discovery.blocklist)]


def texts(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, str]]:
    """Every field of a block, and of the blocks in it, that holds text, with its description."""

    def of(annotation: Any, name: str, about: str) -> Iterator[tuple[str, str]]:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from texts(annotation, f"{name}.")
        elif annotation is str:
            yield name, about
        for part in get_args(annotation):
            yield from of(part, name, about)

    for name, field in model.model_fields.items():
        yield from of(field.annotation, before + name, field.description or "")


def test_every_field_that_names_a_file_is_placed(tmp_path: Path):
    """By its description: a new field that names a file or a path begins at the folder too, or is listed here."""
    named = {name for name, about in texts(LaunchConfig) if "path" in about or about.startswith("file ")}
    assert named == {"private_text.paths", "public_text.train", "public_text.validation", "discovery.blocklist"}
    config = load_launch(clone(tmp_path))
    assert all(isinstance(path, PlacedPath) for path in (*paths_of(config)[:-1], config.discovery.blocklist))


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("typed.parquet", "FOLDER/typed.parquet"),
        ("./typed.parquet", "FOLDER/./typed.parquet"),
        ("../../data/*/part-?.parquet", "FOLDER/../../data/*/part-?.parquet"),
        ("/data/**/*.parquet", "/data/**/*.parquet"),
        ("~/typed.parquet", "HOME/typed.parquet"),
        ("s3://bucket/folder/*.parquet", "s3://bucket/folder/*.parquet"),
        ("gs://bucket/folder/*.parquet", "gs://bucket/folder/*.parquet"),
    ],
)
def test_what_a_path_means_and_what_is_saved_of_it(
    written: str, means: str, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file = clone(tmp_path)
    config = with_path(file, written)
    assert isinstance(config.private_text, FilePopulation) is False
    wanted = means.replace("FOLDER", str(file.parent)).replace("HOME", str(tmp_path / "home"))
    assert paths_of(config)[0] == wanted
    for saved in (config.model_dump(mode="json"), config.model_dump(), json.loads(config.model_dump_json())):
        assert list(saved["private_text"]["paths"]) == [written]


def test_one_file_in_two_folders_is_one_launch_and_each_reads_its_own(tmp_path: Path, elsewhere: Path):
    first, second = load_launch(clone(tmp_path, "one")), load_launch(clone(tmp_path, "two"))
    assert launch_id(first) == launch_id(second)
    assert [Path(path).parts[-5] for path in paths_of(first)] == ["one"] * 4
    assert [Path(path).parts[-5] for path in paths_of(second)] == ["two"] * 4


def test_the_working_directory_has_no_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that only the working directory has is not found, and the message says where it was looked for."""
    file = clone(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "texts").mkdir()
    shutil.move(tmp_path / "clone" / "texts" / "clients.parquet", tmp_path / "texts" / "clients.parquet")
    monkeypatch.chdir(tmp_path / "here")
    assert Path("../texts/clients.parquet").exists()
    answer = answered(tmp_path, "check", str(file), code=PERMANENT)
    said = " ".join(map(str, answer.values()))
    assert f"private_text.paths: no file matches '../texts/clients.parquet' in {file.parent}"[:90] in said


def test_a_check_reads_the_files_from_any_folder_and_by_any_name(tmp_path: Path, elsewhere: Path):
    file = clone(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "clone")  # as git-sync links a folder to the newest
    link = tmp_path / "clone" / "launches" / "link.yaml"
    link.symlink_to(file)  # as Kubernetes mounts a ConfigMap
    installed(tmp_path, "made_up_files:typists")
    names = {file, tmp_path / "linked" / "launches" / "tiny.yaml", link, Path(os.path.relpath(file))}
    checked = [answered(tmp_path, "check", str(name)) for name in names]
    assert {each["launch_id"] for each in checked} == {launch_id(load_launch(file))}


def test_a_linked_folder_keeps_its_name(tmp_path: Path, elsewhere: Path):
    """The folder behind a link is removed by the next synchronisation."""
    clone(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "clone")
    config = load_launch(tmp_path / "linked" / "launches" / "tiny.yaml")
    assert paths_of(config)[0] == f"{tmp_path}/linked/launches/../texts/clients.parquet"
    assert all(Path(path).exists() for path in paths_of(config) if "*" not in path)


def test_a_stage_runs_from_another_folder_by_file_and_by_id(settings: Settings, elsewhere: Path, tmp_path: Path):
    file = clone(tmp_path)
    config = load_launch(file)
    run_id = launch_id(config)
    registered(PrivacyLedger.of(settings), "made_up_files:typists")
    runner.run_stage("ingest_private", config, run_id, settings, STAGES)
    run = runner.open_run(config, run_id, settings)
    public = (run.path / "public" / "launch" / "launch.json").read_text(encoding="utf-8")
    records = [path.read_text(encoding="utf-8") for path in run.path.glob("public/*/result.json")]
    assert not [content for content in (public, *records) if str(tmp_path) in content], "what is shown names a machine"
    kept = load_kept_launch(run.path / "public" / "launch" / "launch.json")
    assert paths_of(kept) == paths_of(config)
    assert launch_id(kept) == run_id
    (run.path / "public" / "ingest_private" / "result.json").unlink()
    again = runner.run_stage("ingest_private", kept, run_id, settings, STAGES)
    assert not again.skipped


def test_a_launch_is_resumed_by_its_id(settings: Settings, elsewhere: Path, tmp_path: Path, monkeypatch):
    file = clone(tmp_path)
    config = load_launch(file)
    runner.open_run(config, launch_id(config), settings)
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    assert paths_of(to_run(launch_id(config)).config) == paths_of(config)


def test_without_a_noted_folder_no_other_folder_is_taken(settings: Settings, elsewhere: Path, tmp_path: Path):
    config = load_launch(clone(tmp_path))
    run = runner.open_run(config, launch_id(config), settings)
    (run.path / "launch_folder").unlink()
    kept = load_kept_launch(run.path / "public" / "launch" / "launch.json")
    assert paths_of(kept)[0] == f"{run.path}/public/launch/../texts/clients.parquet"


def test_a_list_of_words_is_an_input_under_its_written_name(settings: Settings, elsewhere: Path, tmp_path: Path):
    file = clone(tmp_path)
    config = load_launch(file)

    def plan(ctx: StageContext) -> Counted:
        assert build_vocabulary.blocklist(ctx) == ("slur",)
        return Counted(value=1)

    def run(folder: Path) -> runner.StageOutcome:
        os.chdir(folder)
        return runner.run_stage("plan", load_launch(file), launch_id(config), settings, stages_of({"plan": plan}))

    assert list(run(tmp_path).record.inputs) == ["given/../texts/words.txt"]
    assert run(elsewhere).skipped, "the same file from another folder"
    (tmp_path / "clone" / "texts" / "words.txt").write_text("slur\n# more\n", encoding="utf-8")
    assert not run(elsewhere).skipped


@pytest.mark.parametrize("name", ["clone", "a [final] clone"])
def test_peoples_text_is_guarded_wherever_the_file_lies(name: str, settings: Settings, elsewhere: Path, tmp_path: Path):
    config = load_launch(clone(tmp_path, name))
    run = runner.open_run(config, launch_id(config), settings)
    stages: Stages = STAGES
    guarded = access(config, run, settings, "ingest_public", stages)
    assert os.path.realpath(tmp_path / name / "texts" / "clients.parquet") in guarded.guarded


@pytest.mark.parametrize(("at", "data"), [("mine.yaml", "people.csv"), ("sub/mine.yaml", "../people.csv")])
@pytest.mark.parametrize("absolute", [False, True])
def test_init_writes_paths_from_the_folder_of_its_file(
    at: str, data: str, absolute: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "sub").mkdir()
    (tmp_path / "people.csv").write_text("client_id,text\n" + "".join(f"{n},hello you\n" for n in range(300)))
    words = " ".join(f"{first}{last}o" for first in "bdfgklmnprst" for last in "aeiou")
    (tmp_path / "public.jsonl").write_text(f'{{"text": "{words}"}}\n' * 60, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = f"{tmp_path}/" if absolute else ""
    asked = ("--data", f"{before}people.csv", "--public", f"{before}public.jsonl", "--rho", "0.5", "--small")
    answered(tmp_path, "init", at, "--locale", "en-US", *asked)
    monkeypatch.chdir("/")
    config, raw = load_launch(tmp_path / at), yaml.safe_load((tmp_path / at).read_text(encoding="utf-8"))
    assert isinstance(config.private_text, FilePopulation)
    assert raw["private_text"]["paths"] == [f"{before}people.csv" if absolute else data]
    assert raw["public_text"]["train"] == [
        data.replace("people.csv", "public.jsonl") if not absolute else f"{before}public.jsonl"
    ]
    assert [Path(path).resolve() for path in config.private_text.paths] == [tmp_path / "people.csv"]


def test_a_rehearsal_elsewhere_reads_the_same_files(tmp_path: Path, elsewhere: Path):
    raw = yaml.safe_load((ROOT / "dags" / "launches" / "pt-BR.yaml").read_text(encoding="utf-8"))
    raw["discovery"]["blocklist"] = "lists/words.txt"
    raw["public_text"] = PUBLIC | {"train": ["texts/*.jsonl"]}
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "words.txt").write_text("slur\n", encoding="utf-8")
    (tmp_path / "own.yaml").write_text(dumped(raw), encoding="utf-8")

    def made(*public: str) -> dict[str, Any]:
        folder = tmp_path / "rehearsal"
        return rehearsed(tmp_path / "own.yaml", folder, 20_000, 0.01, public, by="somebody", mirror=False).fields

    assert made()["discovery"]["blocklist"] == f"{tmp_path}/lists/words.txt"
    assert made()["public_text"]["train"] == [f"{tmp_path}/texts/*.jsonl"]
    assert made("mine.jsonl")["public_text"]["train"] == [f"{elsewhere}/mine.jsonl"]
