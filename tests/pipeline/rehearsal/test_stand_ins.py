"""The launch file of a rehearsal: smaller by what was asked for, every difference said, and nobody's people in it."""

import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from federated.config.population import MadeUpFilePopulation, is_simulation
from pipeline.launch.config import LaunchConfig, all_fields, load_launch
from pipeline.rehearsal import made_up
from pipeline.rehearsal.stand_ins import Rehearsed, rehearsed
from tests.helpers.launches.checkout import ROOT

LAUNCHES = ROOT / "dags" / "launches"
FILES = [path for path in sorted(LAUNCHES.glob("*.yaml")) if not load_launch(path).private_text.simulated]


def stood_in(path: Path, people: int | None = 20_000, scale: float = 0.01, mirror: bool = False) -> Rehearsed:
    return rehearsed(path, Path("/rehearsal"), people, scale, (), by="somebody", mirror=mirror)


def leaves(value: object, name: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {name: value}
    found: dict[str, object] = {}
    for key, each in value.items():
        found |= leaves(each, f"{name}.{key}" if name else key)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_field_that_differs_is_said_with_a_reason(path: Path):
    made = stood_in(path)
    before, after = leaves(all_fields(path)), leaves(made.fields)
    said = {each.field: each for each in made.stand_ins}
    assert set(said) == {name for name in {**before, **after} if before.get(name) != after.get(name)}
    assert all(each.why for each in made.stand_ins)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_tenth_of_the_people_keeps_the_schedule_of_rounds(path: Path):
    own, tenth = load_launch(path), stood_in(path, people=load_launch(path).planning.population_estimate // 10)
    schedule = {f"mechanism.{name}" for name in ("kind", "rounds", "min_sep", "max_participations", "availability")}
    assert not schedule & {each.field for each in tenth.stand_ins}
    # Of fewer people rounds are fewer before they are of fewer devices than teach anything.
    few = LaunchConfig.model_validate(stood_in(path, people=2_000).fields).mechanism
    assert 12 <= few.rounds < own.mechanism.rounds
    assert few.min_sep <= few.rounds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_a_launch_file_of_nobody(path: Path):
    config = LaunchConfig.model_validate(stood_in(path).fields)
    assert isinstance(config.private_text, MadeUpFilePopulation)
    assert is_simulation(config.population)
    assert config.population != load_launch(path).population
    assert config.name.startswith("rehearsal-")
    assert config.mechanism.randomness == "secure"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_average_has_the_noise_of_the_files_own(path: Path):
    """Noise per device of the report goal stays, down to the loss that a ledger takes."""
    own, tenth = (
        load_launch(path).mechanism,
        stood_in(path, people=load_launch(path).planning.population_estimate // 10),
    )
    small = LaunchConfig.model_validate(tenth.fields).mechanism
    assert small.report_goal == pytest.approx(own.report_goal / 10, abs=1)
    assert small.noise_multiplier / small.report_goal == pytest.approx(own.noise_multiplier / own.report_goal, rel=0.01)
    assert tenth.noise == pytest.approx(0.1, rel=0.01)
    few = stood_in(path, people=2_000)
    assert few.noise > 2_000 / few.own_people
    assert LaunchConfig.model_validate(few.fields).policy.max_rho == pytest.approx(100)


def test_people_are_those_of_the_file_unless_asked():
    path = LAUNCHES / "de-DE.yaml"
    whole = stood_in(path, people=None, scale=1.0)
    assert whole.people == whole.own_people
    assert whole.noise == 1
    assert whole.fields["model"] == all_fields(path)["model"]
    assert whole.fields["mechanism"] == all_fields(path)["mechanism"]
    # C4 comes from a mirror where there is one.
    assert stood_in(path, mirror=True).fields["public_text"]["source"] == "c4"


@pytest.mark.parametrize(
    ("path", "people", "scale", "names"),
    [
        (LAUNCHES / "demo-en-US.yaml", 2_000, 0.1, "private_text.source"),
        (LAUNCHES / "de-DE.yaml", 100, 0.1, "--people: 100 is not from 200 to 1,650,000"),
        (LAUNCHES / "de-DE.yaml", 2_000_000, 0.1, "--people"),
        (LAUNCHES / "de-DE.yaml", 2_000, 0.0, "--scale"),
        (LAUNCHES / "de-DE.yaml", 2_000, 1.5, "--scale"),
    ],
)
def test_it_refuses_what_it_cannot_rehearse(path: Path, people: int, scale: float, names: str):
    with pytest.raises(ValueError, match=names):
        stood_in(path, people, scale)


def test_a_file_without_a_number_of_people_names_the_field(tmp_path: Path):
    fields = all_fields(LAUNCHES / "de-DE.yaml")
    del fields["planning"]
    (path := tmp_path / "de-DE.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    with pytest.raises(ValueError, match=r"planning.population_estimate"):
        stood_in(path)


def test_made_up_people_type_words_that_public_text_lacks(tmp_path: Path):
    made_up.people(tmp_path / "people", "de-DE", 30, seed=1)
    table = pq.read_table(tmp_path / "people" / "part-00000.parquet")
    assert table.column_names == ["client_id", "text", "locale", "ts"]
    assert len(set(table["client_id"].to_pylist())) == 30
    typed = {word for text in table["text"].to_pylist() for word in text.replace(".", "").split()}
    made_up.public(tmp_path / "public", "de-DE", 400_000, 20_000, seed=1)
    with gzip.open(tmp_path / "public" / "c4-train.00000-of-00001.json.gz", "rt", encoding="utf-8") as file:
        known = set(file.read().replace(".", "").split())
    new = made_up.new_words("de-DE")
    assert set(new) <= typed
    assert not set(new) & known
    # Files that stand are not made again, and a repetition makes the same text.
    before = (tmp_path / "people" / "part-00000.parquet").stat().st_mtime_ns
    made_up.people(tmp_path / "people", "de-DE", 30, seed=1)
    assert (tmp_path / "people" / "part-00000.parquet").stat().st_mtime_ns == before
