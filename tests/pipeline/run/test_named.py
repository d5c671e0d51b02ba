"""A launch is named by its file, its name, its id or how that begins, the same in every command."""

import os
from pathlib import Path

import pytest

from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.run import named
from pipeline.run.runner import open_run
from tests.helpers.launches.command import answered
from tests.helpers.launches.pipeline_launch import RAW, launch_config, write_launch

OWN = launch_id(launch_config())


def began(here: Settings, date: str | None = None, **changes: object) -> str:
    config = launch_config(**changes)
    return open_run(config, launch_id(config, date), here).launch_id


def test_a_file_is_its_newest_launch_and_an_id_need_not_be_whole(tracked: Settings, tmp_path: Path):
    file = str(write_launch(tmp_path))
    first, dated, other = began(tracked), began(tracked, "20260101"), began(tracked, name="another")
    kept = tracked.runs_dir / first / "public" / "launch" / "launch.json"
    os.utime(kept, (9e8, 9e8))
    assert named.begun_id(file, tracked) == dated
    assert named.begun_id(first, tracked) == first, "a whole id is no beginning of another"
    assert named.begun_id("ano", tracked) == named.begun_id(other, tracked) == other
    assert named.begun_id(launch_config().name, tracked) == dated, "a name is its newest launch, as its file is"
    with pytest.raises(ValueError, match=rf"is the beginning of {first}, {dated}"):
        named.begun_id("tri", tracked)
    with pytest.raises(ValueError, match=f"did you mean {dated}"):
        named.begun_id(dated[:-1] + "2", tracked)


def test_a_locale_is_its_newest_launch_unless_a_launch_has_its_name(tracked: Settings):
    """The tutorial ended with ``tacit verify en-US``, which a second launch refused."""
    first, second, _ = began(tracked), began(tracked, name="another"), began(tracked, locale="fr-FR")
    kept = tracked.runs_dir / first / "public" / "launch" / "launch.json"
    os.utime(kept, (9e8, 9e8))
    assert named.begun_id("en-US", tracked) == second
    named_so = began(tracked, name="en-US")
    os.utime(tracked.runs_dir / named_so / "public" / "launch" / "launch.json", (8e8, 8e8))
    assert named.begun_id("en-US", tracked) == named_so
    with pytest.raises(ValueError, match="'de-DE' is no launch file, and no launch in"):
        named.begun_id("de-DE", tracked)


def test_a_file_that_became_another_launch_says_so(tracked: Settings, tmp_path: Path):
    run_id = began(tracked)
    changed = str(write_launch(tmp_path, RAW | {"seed": 8}))
    with pytest.raises(ValueError, match=f"the file changed since {run_id} began; begin it with 'tacit launch"):
        named.begun_id(changed, tracked)


def test_what_begins_takes_the_file_s_own_launch_and_an_id_goes_on(
    tracked: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TACIT_HOME", str(tracked.home))
    file, dated = str(write_launch(tmp_path)), began(tracked, "20260101")
    assert named.to_run(file).run_id == OWN
    assert named.to_run(file, "20260102").run_id == f"{OWN}-20260102"
    found = named.to_run(dated)
    assert (found.config.model_dump(), found.run_id, found.file) == (launch_config().model_dump(), dated, None)
    with pytest.raises(ValueError, match="has begun with its own date or none"):
        named.to_run(dated, "20260102")


@pytest.mark.parametrize("content", [b"{", b"[]", b"", b"\xff\xfe", b'{"name": 3, "secret": "hush"}'])
def test_a_damaged_configuration_is_named_in_a_line(tracked: Settings, content: bytes):
    run_id = began(tracked)
    path = tracked.runs_dir / run_id / "public" / "launch" / "launch.json"
    whole = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{path}: damaged or gone; restore it.*newer tacit") as said:
        named.kept_config(tracked, run_id)
    assert "\n" not in str(said.value)
    assert "hush" not in str(said.value)
    began(tracked)
    assert path.read_bytes() == whole, "as the message says"


@pytest.mark.parametrize("command", ["check", "status", "review"])
def test_commands_take_an_id_as_they_take_a_file(
    command: str, tracked: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file, run_id = str(write_launch(tmp_path)), began(tracked)
    by_file, by_id = (answered(tracked.home, command, name) for name in (file, run_id[:-3]))
    assert by_file == by_id
    assert by_file["launch_id"] == run_id


def test_shells_are_offered_launches_and_files(tracked: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TACIT_HOME", str(tracked.home))
    monkeypatch.chdir(tmp_path)
    run_id = began(tracked)
    write_launch(tmp_path)
    assert named.completions("tri") == [run_id, "trial.yaml"]
