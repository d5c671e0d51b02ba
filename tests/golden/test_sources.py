"""Public files alone give every public figure that says so; any other is named, and holds a launch."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import create_model

from pipeline.ground import settings as settings_module
from pipeline.ground.errors import HELD
from pipeline.launch.config import LaunchConfig, load_kept_launch
from pipeline.run import public_fields
from pipeline.run.known import as_it_lies
from pipeline.run.public_fields import Source
from pipeline.run.run_dir import RESULT, RunDir, record_digest
from pipeline.run.stage import Stage
from pipeline.stages import remade
from pipeline.stages.graph import STAGES
from tests.golden.conftest import RunSeeded
from tests.golden.facts import Launched
from tests.golden.seeded_launch import FROZEN, run_of

pytestmark = pytest.mark.slow


class PublicHalf:
    """A launch's ``public/`` in a folder without private half, ledger and MLflow."""

    def __init__(self, run: Path, home: Path) -> None:
        shutil.copytree(run / "public", home / run.name / "public")
        self.run = RunDir(home, run.name, as_it_lies)
        self.config: LaunchConfig = load_kept_launch(self.run.path / "public" / "launch" / "launch.json")
        self.settings = settings_module.load({"TACIT_HOME": str(home)})

    def leaks(self, name: str, stage: Stage | None = None) -> list[str]:
        record = self.run.record(name)
        assert record is not None, name
        return list(remade.of_stage(self.config, self.run, self.settings, stage or STAGES[name], record))

    def edit(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a stage's result."""
        path = self.run.path / "public" / name / RESULT
        record = json.loads(path.read_text(encoding="utf-8"))
        change(record["result"])
        path.write_text(json.dumps(record), encoding="utf-8")


@pytest.fixture
def public(seeded: Launched, tmp_path: Path, forked_python: None) -> PublicHalf:
    return PublicHalf(seeded.run, tmp_path)


@pytest.mark.parametrize("name", FROZEN)
def test_public_files_alone_give_every_figure(
    name: str, runs: dict[str, Launched], tmp_path: Path, forked_python: None
):
    public = PublicHalf(runs[name].run, tmp_path)
    assert not (public.run.path / "private").exists()
    assert not list(tmp_path.glob("**/*.db"))
    assert remade.of_launch(public.config, public.run, public.settings) == []
    decided = public.run.record("decide")
    assert decided is not None
    assert decided.result["not_repeated"] == ["ingest_public"]


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, Source], None]:
    """Declare a source of a further figure, as whoever adds one does."""
    monkeypatch.setattr(public_fields, "FIELDS", {name: dict(fields) for name, fields in public_fields.FIELDS.items()})

    def declare(place: str, name: str, of: Source) -> None:
        fields = public_fields.FIELDS.setdefault(place, {})
        fields[of] = f"{fields.get(of, '')} {name}"

    return declare


# A field of a stage's result, as it could be added: what it would reveal, and the source that it states.
PLANTED = {
    "a value of the noise": ("count", "noise", -3.25, Source.RELEASED),
    "an exact count beside noisy ones": ("count", "pairs_typed", 4711, Source.RELEASED),
    "a digest of private text": ("build_vocabulary", "text_sha256", "a" * 64, Source.PUBLIC),
    "a sum before its noise": ("fine_tune", "mean_norm", 0.2718281828, Source.RELEASED),
    "a figure of the launch file that it does not hold": ("discover", "devices", 61, Source.FILE),
    "a duration in all digits": ("ingest_public", "took", 3.1415926, Source.CLOCK),
    "an exact number of devices": ("ingest_private", "devices", 61, Source.STORE),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_figure_is_named(what: str, public: PublicHalf, declared: Callable[[str, str, Source], None]):
    name, field, value, of = PLANTED[what]
    result = get_type_hints(STAGES[name].function)["return"]
    result = result if isinstance(result, type) else result.__args__[0]
    wider = create_model(result.__name__, __base__=result, **{field: (type(value), ...)})
    declared(result.__name__, field, of)

    def made(ctx: object) -> wider: ...

    public.edit(name, lambda stated: stated.update({field: value}))
    found = public.leaks(name, replace(STAGES[name], run=made))
    assert [leak for leak in found if leak.startswith(f"{field}: ")], found


def test_a_planted_figure_of_a_curve_is_named(public: PublicHalf, declared: Callable[[str, str, Source], None]):
    declared("FineTune.curve", "length", Source.RELEASED)
    public.edit("fine_tune", lambda stated: stated["curve"][1].update(length=0.31))
    assert any(leak.startswith("curve[1].length: nothing public") for leak in public.leaks("fine_tune"))


def more(*path: str | int) -> Callable[[dict[str, Any]], None]:
    """Raise a figure of a result by a thousandth, or replace a text."""

    def change(stated: Any) -> None:
        *steps, last = path
        for step in steps:
            stated = stated[step]
        value = stated[last]
        stated[last] = f"{value}." if isinstance(value, str) else value * 1.001 + (isinstance(value, int) or 1e-3)

    return change


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("ingest_public", ("train_tokens",)),
        ("ingest_public", ("vocabulary_digest",)),
        ("ingest_private", ("source",)),
        ("pretrain", ("validation_loss",)),
        ("plan", ("rho",)),
        ("plan", ("epsilon",)),
        ("discover", ("layers", 0, "noise")),
        ("discover", ("epsilon_central",)),
        ("discover", ("spend", "epsilon")),
        ("build_vocabulary", ("vocabulary_digest",)),
        ("adapt", ("new_words",)),
        ("count", ("counts", "cells")),
        ("count", ("spend", "rho")),
        ("fine_tune", ("epsilon",)),
        ("audit", ("pooled_p_value",)),
        ("ab_test", ("top1_gain_low",)),
        ("ab_test", ("arms", 1, "value")),
        ("decide", ("gates", 0, "value")),
        ("decide", ("headline", "epsilon")),
        ("report", ("disclosure_sha256",)),
        ("publish", ("dictionary_words",)),
    ],
)
def test_a_changed_figure_is_named(name: str, path: tuple[str | int, ...], public: PublicHalf):
    public.edit(name, more(*path))
    wanted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    assert any(leak.startswith(f"{wanted}: ") for leak in public.leaks(name)), public.leaks(name)


def test_a_file_without_a_source_and_a_changed_one_are_named(public: PublicHalf):
    folder = public.run.path / "public"
    (folder / "count" / "sums.npy").write_bytes(b"exact")
    assert "sums.npy: no source" in public.leaks("count")
    page = folder / "report" / "report.md"
    page.write_text(page.read_text(encoding="utf-8") + "61 devices\n", encoding="utf-8")
    assert "report.md: public files give another" in public.leaks("report")


def test_an_input_that_the_stage_does_not_declare_is_named(public: PublicHalf):
    path = public.run.path / "public" / "adapt" / RESULT
    record = json.loads(path.read_text(encoding="utf-8"))
    record["inputs"]["ingest_private/result.json"] = record_digest(public.run.record("ingest_private"))
    path.write_text(json.dumps(record), encoding="utf-8")
    (leak,) = public.leaks("adapt")
    assert leak == "inputs.ingest_private/result.json: the stage does not declare that it opens ingest_private"


def test_a_stage_that_needs_a_private_file_is_a_leak(public: PublicHalf):
    opens_words = replace(STAGES["count"], remade="tests.golden.test_sources:opens_private_words")
    (leak,) = public.leaks("count", opens_words)
    assert leak.startswith("cannot be made from public files")


def opens_private_words(ctx: Any, record: object, released: Path) -> dict[str, Any]:
    from pipeline.run import artifacts

    return {"words": len(artifacts.discovered_words(ctx))}


def test_a_launch_that_publishes_its_noise_is_held_before_it_is_published(run_seeded: RunSeeded):
    done, home = run_seeded("counts", "published_noise")
    assert done.returncode == HELD, done.stderr
    result = json.loads((run_of(home, "counts") / "public" / "decide" / RESULT).read_text())["result"]
    (failed,) = [gate for gate in result["gates"] if not gate["passed"]]
    assert (failed["id"], result["decision"]) == ("sources", "hold")
    assert "count: headline.noise" in failed["evidence"]
