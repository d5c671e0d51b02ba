"""A launch file from a few answers: valid, carried by its population, and nothing is written of a bad answer."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.audit.directions import most_directions
from pipeline.launch.config import load_launch
from pipeline.preflight.draft import SYNTHETIC, Answers, counted_devices, draft, require_enough
from tests.helpers.launches.file_names import EDITORS, NO_NAMES
from tests.helpers.launches.tiny_launch import write_launch

ANSWERS = Answers("mine", "en-US", SYNTHETIC, "sample", 1300, epsilon=5.0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"population": 3}, "--population: got 3; give 60 to"),
        ({"rho": 0.0}, "--rho: got 0; give a number from 0.0001"),
        ({"rho": float("nan")}, "--rho: got nan"),
        ({"epsilon": 0.0}, "--epsilon: got 0; give a number from 0.0001"),
        ({"rho": 0.6}, "--rho: 0.6 is epsilon 5.43 at delta 1e-06, more than the total of --epsilon 5; lower it"),
        ({"budget": 0.1}, "--budget: 0.1 is less than one launch may lose"),
        ({"days": 0}, "--days: got 0"),
        ({"locale": "de-DE"}, "--public: packages hold text for a 'sample' in en, es, fr, and the locale is"),
        ({"data": "no/such-*.parquet"}, "--data: no file matches"),
        ({"public": "no/such-*.parquet"}, "--public: no file matches"),
        ({"locale": "zh-CN", "public": "c4"}, "--locale: 'zh-CN' is written in script Hans"),
    ],
)
def test_what_no_launch_could_be_is_refused_before_anything_is_written(
    changed: dict[str, Any], says: str, tmp_path: Path
):
    with pytest.raises(ValueError, match=re.escape(says)):
        draft(tmp_path / "mine.yaml", replace(ANSWERS, **changed))
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no/mine.yaml", "make that folder first"),
        *((name, "no name of a launch file") for name in (*NO_NAMES, *EDITORS)),
    ],
)
def test_a_bad_name_is_refused(name: str, says: str, tmp_path: Path):
    with pytest.raises(ValueError, match=says):
        draft(tmp_path / name, ANSWERS)


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="is not overwritten"):
        draft(path, ANSWERS)
    assert path.read_text(encoding="utf-8") == "mine"


@pytest.mark.slow
@pytest.mark.parametrize(
    "answers",
    [
        replace(ANSWERS, name="en-US"),
        replace(ANSWERS, name="few", population=60),
        replace(ANSWERS, name="careful", epsilon=9.0, rho=0.0001, budget=0.0005),
        Answers("es-ES", "es-ES", SYNTHETIC, "c4", 60_000, epsilon=16.0, rho=1.0, budget=3.0, days=60),
        Answers("fr-FR", "fr-FR", "DATA", "c4", 3_000_000, epsilon=5.0, budget=2.0),
    ],
    ids=lambda answers: answers.name,
)
def test_what_it_makes_is_valid_and_its_population_carries_it(answers: Answers, tmp_path: Path):
    write_launch(tmp_path)
    data = str(tmp_path / "clients.parquet") if answers.data == "DATA" else answers.data
    path = tmp_path / f"{answers.name}.yaml"
    made = draft(path, replace(answers, data=data))
    assert (made.feasible, made.reasons) == (True, ())
    config = load_launch(path)
    assert (config.name, config.mechanism) == (answers.name, made.mechanism)
    noised = made.total.noised
    assert noised is not None
    assert 0.99 * config.policy.max_rho < (noised.rho or 0.0) <= config.policy.max_rho, "all buys accuracy"
    kind = None if config.counts is None else config.counts.model
    assert kind == {"few": "start-mixture", "careful": "start-mixture", "fr-FR": None}.get(answers.name, "network")
    assert made.total.epsilon <= config.policy.max_total_epsilon == answers.epsilon
    assert config.planning is not None
    assert config.planning.population_estimate == answers.population
    assert f"tacit check {path}" in made.next


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({}, "central"),
        ({"epsilon": 13.0, "rho": 0.5}, "ldp-triehh"),
        ({"epsilon": 0.9}, "central"),
        ({"epsilon": 5.0, "population": 20_000_000}, "ldp-triehh"),
    ],
)
def test_words_are_found_locally_where_the_total_leaves_room_for_them(
    changed: dict[str, Any], kind: str, tmp_path: Path
):
    answers = replace(ANSWERS, **changed)
    made = draft(tmp_path / "mine.yaml", answers)
    config = load_launch(tmp_path / "mine.yaml")
    assert config.discovery.kind == kind
    assert 0.9 * answers.epsilon < made.total.epsilon <= answers.epsilon, "nothing of the total is left unused"
    (why,) = [note for note in made.notes if note.startswith("Words:")]
    assert f"# {why}\ndiscovery:\n" in (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert ("trusted aggregator" in why) == (kind == "central")


@pytest.mark.slow
def test_a_smaller_model_by_the_command_line_has_as_many_directions_as_it_can_tell_apart(tmp_path: Path):
    smaller = {"model.hidden_dim": 8, "model.embedding_dim": 8, "vocabulary.base_size": 200}
    draft(tmp_path / "mine.yaml", replace(ANSWERS, changes=smaller))
    config = load_launch(tmp_path / "mine.yaml")
    most = most_directions(config.model.weights(config.vocabulary.base_size))
    assert config.audit.directions == most < 500
    draft(tmp_path / "own.yaml", replace(ANSWERS, changes=smaller | {"audit.directions": 64}))
    assert load_launch(tmp_path / "own.yaml").audit.directions == 64


@pytest.mark.slow
def test_a_total_that_is_too_small_for_so_few_devices_says_why(tmp_path: Path):
    made = draft(tmp_path / "mine.yaml", replace(ANSWERS, population=60, epsilon=1.0))
    assert not made.feasible
    (reason,) = made.reasons
    assert re.match(r"discovery\.noise_multiplier: .* requires a weight .* than all 36\+ training devices", reason)


@pytest.mark.slow
def test_public_text_is_read_in_full_or_says_how_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pipeline.preflight.vocabulary.READ_WORDS", 1_000)
    texts = [f"{number} {'word ' * 60_000}" for number in range(50)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "public.parquet")
    answers = replace(ANSWERS, public=str(tmp_path / "public.parquet"))

    def made(name: str) -> tuple[int, str]:
        notes = draft(tmp_path / name, answers).notes
        config = load_launch(tmp_path / name)
        return config.public_text.max_tokens, next(note for note in notes if note.startswith("Public text:"))

    most, amount = made("whole.yaml")
    found = int(re.sub(r"\D", "", amount))
    assert amount == f"Public text: all of about {found:,} words."
    assert 2_500_000 < found < most, "one document in twenty is held out"
    monkeypatch.setattr("pipeline.preflight.draft.MOST_PUBLIC_WORDS", 1_000_000)
    assert made("cut.yaml") == (
        1_000_000,
        "Public text: max_tokens keeps 1,000,000 words, and the files have more.",
    )


def test_devices_are_those_of_the_locale_in_the_files(tmp_path: Path):
    table = {"client_id": [f"{number}" for number in range(342)], "text": ["x"] * 342}
    table["locale"] = ["fr-FR"] * 188 + ["fr-BE"] * 145 + ["de"] * 9
    pq.write_table(pa.table(table), tmp_path / "people.parquet")
    data = str(tmp_path / "people.parquet")
    assert counted_devices(data, "fr-FR") == (
        180,
        "private_text.paths: 340+ devices in the files; by column locale 180+ of them have a row of fr-FR, and the "
        "others only rows of fr-BE (140+)",
    )
    assert counted_devices(SYNTHETIC, "fr-FR") is None
    with pytest.raises(ValueError, match=r"--locale: no row of 'fr'; column locale has fr-FR, fr-BE; give the locale"):
        counted_devices(data, "fr")
    with pytest.raises(ValueError, match=r"--data: 10\+ devices, and a launch needs 60: .*give more data"):
        require_enough(10, "")
