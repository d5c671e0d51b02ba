"""Refusals before data is read, and before anything is spent."""

import os
import re
import shutil
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from evaluation.noisy.questions import fewest_devices
from federated.planning.feasibility import plan as plan_costs
from federated.rounds.rule import RoundRule
from pipeline.ground import clock
from pipeline.ground.errors import RefusedUntouched, StageInputMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.ledger.budget import Ceilings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.devices import count_devices
from pipeline.preflight.plan import plan as plan_file
from pipeline.preflight.readiness import Findings, look, unusable_files, unusable_places
from pipeline.preflight.shortfalls import most_parameters
from pipeline.releases.evaluation import typed
from pipeline.releases.local_words import local_discovery
from pipeline.run import runner
from pipeline.run.cache import CacheHit
from pipeline.run.known import run_folder
from pipeline.run.stage import Stage
from pipeline.stages import plan as plan_stage
from pipeline.stages.fine_tune import fine_tune
from pipeline.stages.graph import STAGES
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import Counted, after_stand_ins, launch_config, run_all, spend, stand_in
from tests.helpers.launches.stages import running, stages_of
from tests.helpers.processes.accounts import somebody_else

ROOT = Path(__file__).resolve().parents[3]
TRAINED_ON = ("ingest_public", "ingest_private", "plan", "build_vocabulary", "adapt")
PEOPLE = {"source": "files", "paths": ["people.parquet"], "name": "real"}
BY_THE_CLOCK = {"report_goal": 300, "min_sep": 4, "availability": {"timer_days": 1}}


def found(config: LaunchConfig, settings: Settings) -> list[str]:
    """Problems that are not about files, which these launches only name."""
    missing = unusable_files(config)
    return [line for line in look(config, settings, launch_id(config)).problems if line not in missing]


def test_a_launch_of_a_simulation_is_ready(settings: Settings):
    assert found(launch_config(), settings) == []
    assert PrivacyLedger.of(settings).entries() == [], "asking registers nothing"


def test_a_sample_whose_package_is_missing_is_known(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    config = launch_config(public_text={"source": "sample"})
    assert unusable_files(config) == []
    monkeypatch.setitem(sys.modules, "gensim", None)
    (line,) = look(config, settings, launch_id(config)).problems
    assert line.startswith("public_text.source: 'sample' reads English Wikipedia articles")
    assert line.endswith("`pip install 'tacit-keyboard[text]'`")


def test_a_plan_above_its_own_ceiling_is_known(settings: Settings):
    (line,) = found(launch_config(policy={"max_rho": 0.01}), settings)
    assert line.startswith("policy.max_rho: 0.01, but training costs rho")
    noise = float(line.rpartition(" to ")[2])
    enough = launch_config(policy={"max_rho": 0.01}, mechanism={"noise_multiplier": noise})
    assert found(enough, settings) == [], "the fix that it names is one"
    with pytest.raises(ValidationError, match=r"policy\.max_discovery_epsilon0: 8 is below discovery\.epsilon0 9"):
        launch_config(discovery={"epsilon0": 9.0})
    launch_config(discovery={"epsilon0": 8.0})


def test_a_sample_is_held_against_how_often_devices_are_drawn(settings: Settings):
    config = load_launch(ROOT / "dags" / "launches" / "demo-en-US-fedavg.yaml")
    assert found(config, settings) == []
    policy = config.policy.model_copy(update={"max_rho": 0.7})
    (line,) = found(config.model_copy(update={"policy": policy}), settings)
    assert line.startswith("policy.max_rho: 0.7")


@pytest.mark.parametrize("name", ["demo-en-US", "demo-en-US-central", "demo-en-US-counts"])
def test_shipped_launches_are_ready(name: str, settings: Settings):
    """One of each kind: ``test_launch_files.py`` holds every file against its ceilings at its own population."""
    assert found(load_launch(ROOT / "dags" / "launches" / f"{name}.yaml"), settings) == []


def test_a_reviewer_that_does_not_exist_is_known(settings: Settings):
    config = launch_config(reviewers=["ana", "no-such-person"])
    assert found(config, settings) == [], "who is a user is Airflow's to know"
    (line,) = found(config, replace(settings, airflow_users=("admin", "ana")))
    assert "'no-such-person' is no user of Airflow" in line
    person = "8b5f2c8e-3d0a-4c55-9b0e-2f4b7a7d9a10"
    (line,) = found(launch_config(reviewers=["ana", person]), replace(settings, users_are_uuids=True))
    assert "'ana' is no ID of a user of Keycloak" in line


def test_hosts_that_nothing_starts_are_known(settings: Settings):
    config = launch_config(runtime={"hosts": 2})
    assert any("TACIT_GANG" in problem for problem in found(config, settings))
    assert found(config, replace(settings, gang="srun {command}")) == []


PLACES = {
    "TACIT_LEDGER_URL": lambda here, path: replace(here, ledger_url=f"sqlite:///{path}"),
    "MLFLOW_TRACKING_URI": lambda here, path: replace(here, tracking_uri=f"sqlite:///{path}"),
    "TACIT_ARTIFACT_ROOT": lambda here, path: replace(here, artifact_root=path.as_uri()),
    "TACIT_RUNS_DIR": lambda here, path: replace(here, runs_dir=path),
    "TACIT_KEYS": lambda here, path: replace(here, keys_dir=path),
    "TACIT_TRANSPARENCY_LOG": lambda here, path: replace(here, log_dir=path),
    "TACIT_WITNESS": lambda here, path: replace(here, witness=path),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_a_launch_could_not_write_is_known(name: str, settings: Settings, tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    wrong = ["/proc/none", "/sys/none", tmp_path / "file" / "in", tmp_path / "loop", tmp_path / "pipe"]
    wrong += [tmp_path] if name in ("TACIT_LEDGER_URL", "MLFLOW_TRACKING_URI") else [tmp_path / "file"]
    for path in map(Path, wrong):
        there = PLACES[name](settings, path)
        assert [line for line in unusable_places(there) if line.startswith(f"{name}: ")], path
    assert unusable_places(PLACES[name](settings, tmp_path / "not" / "yet" / "there")) == []


def test_a_place_that_may_not_be_written_is_known_by_the_check(settings: Settings):
    config = launch_config()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        runs = Path(folder)
        runs.chmod(0o555)
        with somebody_else():
            found = [line for line in unusable_places(replace(settings, log_dir=runs / "log")) if "LOG" in line]
        runs.chmod(0o755)
    assert "TACIT_TRANSPARENCY_LOG" in found[0]
    assert "may not be written by this account" in found[0]
    problems = look(config, replace(settings, log_dir=Path("/proc/log")), launch_id(config)).problems
    assert any(line.startswith("TACIT_TRANSPARENCY_LOG: ") for line in problems)


def test_seeded_noise_is_for_text_that_is_nobody_s(settings: Settings):
    with pytest.raises(ValueError, match=r"mechanism\.randomness: seeded, .* people's text; write secure"):
        launch_config(private_text=PEOPLE, mechanism={"randomness": "seeded"})
    assert found(launch_config(mechanism={"randomness": "seeded"}), settings) == []
    # What is said to be made up is so by a person's word, not by a launch file's.
    made_up = launch_config(private_text=PEOPLE | {"source": "made_up_files"}, mechanism={"randomness": "seeded"})
    assert any("tacit ledger register made_up_files:real" in line for line in found(made_up, settings))
    registered(PrivacyLedger.of(settings), "real")
    assert any("tacit ledger register made_up_files:real" in line for line in found(made_up, settings))
    registered(PrivacyLedger.of(settings), "made_up_files:real")
    assert found(made_up, settings) == []


def test_what_the_ledger_would_refuse_is_known(settings: Settings):
    ledger = PrivacyLedger.of(settings)
    people = launch_config(private_text=PEOPLE)
    assert "tacit ledger register real" in found(people, settings)[0]
    registered(ledger, "real", budget=0.5)
    assert "a launch can only ask for less" in found(people, settings)[0]
    less = launch_config(policy={"population_max_rho": 0.5})
    assert found(less, settings) == []
    ledger.register("chitchat:people", ledger.population("real").budget, "tests")
    ledger.reserve(
        population="chitchat:people",
        launch_id="other",
        stage="fine_tune",
        spend=spend(0.5),
        asked=Ceilings(rho=0.5),
        binding={},
    )
    (line,) = found(launch_config(policy={"population_max_rho": 0.5}), settings)
    assert "0.5 of 0.5 is spent" in line
    assert look(launch_config(policy={"population_max_rho": 0.5}), settings, "other").problems == (), (
        "its own is not held against it"
    )


def test_a_clock_years_ahead_is_known(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    registered(PrivacyLedger.of(settings), "real")
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=401))
    (line,) = found(launch_config(private_text=PEOPLE), settings)
    assert "set the clock" in line


def people_of(folder: Path, devices: int, locales: tuple[str, ...] = ("en-US",)) -> dict[str, object]:
    """A population of a file in which every device wrote a row of each locale."""
    rows = [(f"device {number}", locale) for number in range(devices) for locale in locales]
    table = {"client_id": [row[0] for row in rows], "text": ["hello"] * len(rows), "locale": [row[1] for row in rows]}
    pq.write_table(pa.table(table), folder / "people.parquet")
    return {"source": "files", "paths": [str(folder / "people.parquet")], "name": "people"}


@pytest.mark.slow
def test_the_population_s_files_are_counted_before_anything_else(settings: Settings, tmp_path: Path):
    ledger = registered(PrivacyLedger.of(settings), "people")

    def seen(devices: int, locales: tuple[str, ...] = ("en-US",), **changes: object) -> Findings:
        config = launch_config(private_text=people_of(tmp_path, devices, locales), **changes)
        return look(config, settings, launch_id(config))

    assert seen(900).problems == ()
    assert seen(900, ("en-US", "fr-FR")).notes[1:3] == (
        "private_text.paths: 900+ devices in the files; by column locale 900+ of them have a row of en-US",
        "private_text: 900+ devices of en-US with 900+ rows; 900+ of other locales are left out; train 700+, "
        "validation 90+, test 90+",
    )
    (line,) = seen(900, ("fr-FR", "de-DE")).problems
    assert line == (
        "private_text.paths: no row of 'en-US'; column locale has de-DE, fr-FR; correct locale, or the files"
    )
    (line,) = seen(900, ab_test={"buckets": 400}).problems
    assert line.startswith("ab_test.buckets: 400")
    assert seen(30, discovery={"layers": 40}).problems[0].startswith("discovery.layers: 40")
    carried = "mechanism: this plan cannot be carried out: report_goal 300"
    clocked = seen(900, mechanism=BY_THE_CLOCK).problems
    assert any(line.startswith(f"{carried}: a round selects 390 devices") for line in clocked)
    assert seen(900, mechanism=BY_THE_CLOCK | {"report_goal": 20}).problems == ()
    rested, joined = seen(60, mechanism={"report_goal": 189, "min_sep": 1}, ab_test={"buckets": 5}).problems
    assert rested.startswith("mechanism: this plan cannot be carried out: report_goal 189 x min_sep 1 keeps 189")
    assert rested.endswith("about 40 devices train: lower report_goal to 40")
    assert joined.endswith("may join 2 rounds each: lower report_goal to 10")
    assert ledger.spends() == []


def test_parts_of_a_population_are_those_that_its_launch_will_have(settings: Settings, tmp_path: Path):
    """Once the ledger has the secret that splits them; before, what some draw could still have is not refused."""
    buckets = launch_config(private_text=people_of(tmp_path, 900), ab_test={"buckets": 110})

    def told() -> list[str]:
        return [line for line in look(buckets, settings, launch_id(buckets)).problems if line.startswith("ab_test")]

    assert told() == []
    registered(PrivacyLedger.of(settings), "people")
    assert told() == [
        "ab_test.buckets: 110, but there are 90+ test devices; lower it to 18 or raise private_text.test_fraction"
    ]


@pytest.mark.parametrize(
    ("mechanism", "why"),
    [
        ({"report_goal": 2}, "secagg: 2 devices in a round are too few for masks shared with 2 others each"),
        ({"report_goal": 120, "max_participations": 1}, "secagg.bits: 8 cannot hold a sum over 120 devices"),
    ],
)
def test_rounds_that_secure_aggregation_cannot_have_are_refused_by_the_check_as_by_the_plan(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, mechanism: dict[str, int], why: str
):
    config = launch_config(mechanism={"min_sep": 1, "secagg": {"bits": 8}} | mechanism)
    assert any(
        line.startswith(f"mechanism: this plan cannot be carried out: {why}") for line in found(config, settings)
    )
    with pytest.raises(ValueError, match=why):
        plan_of(settings, monkeypatch, config, train=900, test=60, validation=60)


@pytest.mark.slow
def test_the_plan_takes_the_devices_that_the_check_counted(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """By their locale and split, for any estimate of the file; the estimate counts where the files are not."""
    registered(PrivacyLedger.of(settings), "people")
    private = people_of(tmp_path, 200) | {"test_fraction": 0.2}
    estimate = {"population_estimate": 5_000, "max_report_goal": 4, "target_rho": 0.5}
    config = launch_config(private_text=private, planning=estimate)
    found = count_devices(config, settings.ledger_url, None)
    planned_here = plan_file(config, launch_id(config), settings, STAGES)
    assert (planned_here.devices, planned_here.counted) == (found.splits, (found.filters,))
    assert found.filters in look(config, settings, launch_id(config)).notes
    (tmp_path / "people.parquet").unlink()
    elsewhere = plan_file(config, launch_id(config), settings, STAGES)
    assert (sum(elsewhere.devices.values()), elsewhere.counted) == (5_000, ())
    assert "no file matches" in caplog.text
    assert "planning.population_estimate counts" in caplog.text
    alone = launch_config(private_text=private)
    with pytest.raises(ValueError, match=r"devices: unknown \(private_text.paths: no file matches .*give an estimate"):
        plan_file(alone, launch_id(alone), settings, STAGES)


@pytest.mark.parametrize(
    ("placeholder", "each", "devices", "said"),
    [
        (600, 1, 600, "50%"),
        (600, 6, 100, "50%"),
        (70, 1, 599, "10%"),
        (66, 1, 600, ""),
        (600, 20, 30, ""),
        (1, 1, 99, ""),
    ],
)
def test_the_share_of_an_id_that_stands_for_people_without_one_is_said(
    settings: Settings, tmp_path: Path, placeholder: int, each: int, devices: int, said: str
):
    ids = ["unknown"] * placeholder + [f"device {number}" for number in range(devices)] * each
    pq.write_table(pa.table({"client_id": ids, "text": ["hello"] * len(ids)}), tmp_path / "people.parquet")
    private = {"source": "files", "paths": [str(tmp_path / "people.parquet")], "name": "people"}
    for budget in ({}, {"evaluation": {"noise_multiplier": 2.0}}):
        config = launch_config(private_text=private, **budget)
        told = count_devices(config, settings.ledger_url, None).rows
        notes = [note for note in look(config, settings, launch_id(config)).notes if "one client_id" in note]
        # With a budget for evaluation, one device's rows would change a number that leaves.
        expected = f"{said} of them or more have one client_id" if said and not budget else ""
        assert (expected in told, "one client_id" in told, len(notes)) == (True, bool(expected), bool(expected))


@pytest.mark.parametrize(("bad", "said"), [(99, ""), (130, "100+ that cannot be read are left out, most of them ")])
def test_rows_that_cannot_be_read_are_said_in_hundreds(settings: Settings, tmp_path: Path, bad: int, said: str):
    ids = [None if number < bad else f"device {number % 120}" for number in range(14_000)]
    pq.write_table(pa.table({"client_id": ids, "text": ["hello"] * len(ids)}), tmp_path / "people.parquet")
    private = {"source": "files", "paths": [str(tmp_path / "people.parquet")], "name": "people"}
    for budget in ({}, {"evaluation": {"noise_multiplier": 2.0}}):
        told = count_devices(launch_config(private_text=private, **budget), settings.ledger_url, None).rows
        assert ("cannot be read" in told) == bool(said and not budget)
        assert budget or (said and f"{said}without client_id") in told


def test_a_copy_of_a_file_under_another_name_is_said(settings: Settings, tmp_path: Path):
    private = people_of(tmp_path, 120) | {"paths": [str(tmp_path / "*.parquet")]}
    config = launch_config(private_text=private)
    assert not [note for note in look(config, settings, launch_id(config)).notes if "copies" in note]
    shutil.copy(tmp_path / "people.parquet", tmp_path / "people (1).parquet")
    (note,) = (note for note in look(config, settings, launch_id(config)).notes if "copies" in note)
    both = f"1, as {tmp_path}/people.parquet of {tmp_path}/people (1).parquet"
    assert f"; copies of other files: {both}; name each file once" in note


@pytest.mark.parametrize("noise", [4.0, 6.0, 7.0, 12.0])
def test_noise_that_drowns_the_test_devices_is_refused_by_the_check_as_by_the_plan(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, noise: float
):
    """240 devices, four fifths of them for tests: about 192, and by the population's own split a number beside it."""
    registered(PrivacyLedger.of(settings), "people")
    private = people_of(tmp_path, 240) | {"test_fraction": 0.8, "max_words_per_device": 50}
    config = launch_config(private_text=private, evaluation={"noise_multiplier": noise}, ab_test={"buckets": 5})
    problems = look(config, settings, launch_id(config)).problems
    splits = count_devices(config, settings.ledger_url, None).splits
    assert splits is not None
    drowned = [line for line in problems if line.startswith("evaluation.noise_multiplier")]
    assert bool(drowned) == (fewest_devices(noise, 50, typed=typed(config)) > splits["test"])
    if drowned:
        with pytest.raises(ValueError, match=re.escape(drowned[0])):
            plan_of(settings, monkeypatch, config, **splits)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"ab_test": {"buckets": 400}}, {"mechanism": BY_THE_CLOCK}])
@pytest.mark.parametrize("evaluation", [None, {"noise_multiplier": 2.0}])
def test_one_person_more_or_less_is_not_seen(
    settings: Settings, tmp_path: Path, changes: dict, evaluation: dict | None
):
    """What is said goes to logs and to Airflow, before any budget pays for it."""
    registered(PrivacyLedger.of(settings), "people")

    def seen(rows: list[tuple[str, str]]) -> Findings:
        clients, locales = zip(*rows, strict=True)
        table = pa.table({"client_id": clients, "text": ["hello"] * len(rows), "locale": locales})
        pq.write_table(table, tmp_path / "people.parquet")
        private = {"source": "files", "paths": [str(tmp_path / "people.parquet")], "name": "people"}
        config = launch_config(private_text=private, evaluation=evaluation, **changes)
        return look(config, settings, launch_id(config))

    rows = [(f"device {number}", "en-US") for number in range(933)]
    rows += [(f"device {number}", "fr-FR") for number in range(312)]
    rows += [(f"other {number}", "fr-FR") for number in range(20)]
    before = seen(rows)
    assert seen([*rows, ("somebody", "en-US"), ("somebody", "en-US"), ("somebody", "fr-FR")]) == before
    # Under a budget for evaluation what a device typed is not even told in hundreds.
    much = seen([*rows, *[("device 1", locale) for locale in ("en-US", "fr-FR") for _ in range(150)]])
    assert (much == before) == (evaluation is not None)
    assert (seen([*rows[:-1], ("other 19", "de-DE")]) == before) == (evaluation is not None)


@pytest.mark.parametrize(("devices", "told"), [(3, 0), (12, 10)])
def test_a_population_of_a_few_is_what_is_told(settings: Settings, tmp_path: Path, devices: int, told: int):
    registered(PrivacyLedger.of(settings), "people")
    private = people_of(tmp_path, devices)
    config = launch_config(private_text=private, ab_test={"buckets": 20}, mechanism={"report_goal": 400})
    (line,) = look(config, settings, launch_id(config)).problems
    assert line.startswith(f"private_text: population 'people' has {told}+ devices, too few to split")
    assert "client_id" in line


@pytest.mark.parametrize(("locale", "why"), [("ja-JP", "no spaces between words"), ("qq-ZZ", "no known language")])
def test_a_locale_that_has_no_words_for_the_model_is_known(settings: Settings, locale: str, why: str):
    (line,) = [line for line in found(launch_config(locale=locale), settings) if line.startswith("locale:")]
    assert why in line


def test_a_made_up_population_that_is_too_small_is_known_whatever_its_file_estimates(settings: Settings):
    planning = {"population_estimate": 100_000, "max_report_goal": 4, "target_rho": 0.5}
    config = launch_config(
        private_text={"source": "synthetic", "devices": 20, "name": "small", "max_words_per_device": 50},
        ab_test={"buckets": 50},
        planning=planning,
    )
    assert [line for line in found(config, settings) if line.startswith("ab_test.buckets: 50")]


@pytest.mark.parametrize("devices", [1_200, 0])
def test_a_delta_that_allows_one_of_the_devices_is_refused_where_they_are_counted_and_where_they_are_estimated(
    settings: Settings, tmp_path: Path, devices: int
):
    registered(PrivacyLedger.of(settings), "people")
    private = people_of(tmp_path, devices) if devices else PEOPLE | {"name": "people"}
    planning = {"population_estimate": 1_200, "max_report_goal": 4, "target_rho": 0.5}
    changes = {"mechanism": {"delta": 0.001}, "policy": {"population_delta": 0.05}, "planning": planning}
    lines = found(launch_config(private_text=private, **changes), settings)
    (line,) = [line for line in lines if line.startswith("mechanism.delta")]
    assert re.match(r"mechanism.delta: 0.001 allows all text of one of 1[12]\d0\+ devices to be released; lower", line)


def test_what_is_paid_for_needs_no_room(settings: Settings):
    """Words used up, and rho for training alone left: what another launch released is not asked for again."""
    ledger = registered(PrivacyLedger.of(settings), "real")
    policy = {"max_rho": 0.9, "population_max_rho": 1.0, "population_max_discovery_epsilon": 1.0}
    config = launch_config(private_text=PEOPLE, policy=policy, counts={"noise_multiplier": 1.1, "model": "mixture"})
    for stage, amount in (("discover", local_discovery(1.0, 1, 1.0, 5e-7, "")), ("fine_tune", spend(0.6))):
        asked = {"asked": Ceilings(rho=1.0), "binding": {}}
        ledger.reserve(population="real", launch_id="other", stage=stage, spend=amount, **asked)

    def refused(*taken_over: str) -> list[str]:
        lines = look(
            config, settings, launch_id(config), [CacheHit(stage, "other", "", "") for stage in taken_over]
        ).problems
        return [line.partition("needs ")[2].partition(" ")[0] for line in lines if "is spent" in line]

    assert refused() == ["epsilon", "rho"]
    assert refused("discover") == ["rho"]
    assert refused("discover", "count") == []


def plan_of(settings: Settings, monkeypatch: pytest.MonkeyPatch, config: LaunchConfig, **devices: int) -> None:
    counted = stand_in(type("Ingested", (Counted,), {"__annotations__": {"devices_by_split": dict[str, int]}}))
    stages = stages_of(
        {
            "ingest_private": lambda ctx: counted(value=1, devices_by_split=devices),
            "plan": plan_stage.plan,
        },
    )
    for name in ("ingest_private", "plan"):
        runner.run_stage(name, config, launch_id(config), settings, stages)


@pytest.mark.parametrize(
    ("changes", "devices", "expected"),
    [
        ({}, {"train": 0, "test": 60}, "this plan cannot be carried out"),
        ({"policy": {"max_rho": 0.01}}, {"train": 60, "test": 60}, "policy.max_rho"),
        ({"discovery": {"layers": 70}}, {"train": 60, "test": 60}, "discovery.*layers"),
        ({"ab_test": {"buckets": 70}}, {"train": 60, "test": 60}, "ab_test.buckets"),
    ],
)
def test_the_plan_refuses_before_discovery(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, changes: dict, devices: dict, expected: str
):
    with pytest.raises(ValueError, match=expected):
        plan_of(settings, monkeypatch, launch_config(**changes), **devices)


@pytest.mark.slow
def test_the_plan_pays_for_secure_aggregation(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """Few bits: rounding may lengthen what a device sends."""
    config = launch_config(
        mechanism={"report_goal": 5, "min_sep": 4, "secagg": {"bits": 8}},
        policy={"max_rho": 9.0, "population_max_rho": 9},
    )
    plan_of(settings, monkeypatch, config, train=60, test=60)
    result = run_folder(settings, launch_id(config)).result("plan")
    encoding = RoundRule(config.mechanism, config.seed).encoding(most_parameters(config), 60, 1)
    paid = result["rho"] / plan_costs(config.mechanism, 60).guarantee.rho
    assert paid == pytest.approx(encoding.inflated_norm**2)
    assert paid > 1.005


def test_nothing_is_spent_before_the_plan(settings: Settings):
    config = launch_config()
    with pytest.raises(StageInputMissing, match="'plan' has not finished"):
        runner.run_stage("discover", config, launch_id(config), settings, STAGES)
    assert PrivacyLedger.of(settings).spends() == []


@stand_in
class Planned(Counted):
    rho: float = 0.3
    epsilon: float = 2.0
    delta: float = 1e-6
    feasible: bool = True


@pytest.mark.slow
@pytest.mark.parametrize("missing", TRAINED_ON)
def test_training_reserves_nothing_before_all_that_it_reads_is_there(settings: Settings, missing: str):
    before = {name: lambda ctx: Planned(value=1) for name in TRAINED_ON if name != missing}
    stages = running(after_stand_ins(tuple(before), fine_tune), **before)
    with pytest.raises(StageInputMissing, match=f"'{missing}' has not finished"):
        run_all(launch_config(), settings, stages)
    assert PrivacyLedger.of(settings).spends() == []


def refusing(settings: Settings, *, after_devices: bool) -> PrivacyLedger:
    """A spending stage that refuses, and the ledger then."""

    def refuses(ctx):
        if after_devices:
            (ctx.private / "layer-1").write_text("noisy sums", encoding="utf-8")
        with ctx.before_devices():
            raise ValueError("too few devices")

    stages = stages_of({"discover": refuses}, Stage("discover", "", planned=lambda config, run: spend(0.4)))
    config = launch_config()
    with pytest.raises(RefusedUntouched, match="too few devices"):
        runner.run_stage("discover", config, launch_id(config), settings, stages)
    return PrivacyLedger.of(settings)


def test_a_refusal_before_any_device_gives_the_reservation_back(settings: Settings):
    ledger = refusing(settings, after_devices=False)
    assert ledger.total("chitchat:people") == 0.0
    assert [entry.kind for entry in ledger.spends()] == ["reserve", "release"]
    assert ledger.spends()[-1].note == "too few devices"
    refusing(settings, after_devices=False)
    assert [entry.kind for entry in ledger.spends()] == ["reserve", "release", "reserve 2", "release 2"]
    assert ledger.verify() == []


def test_a_refusal_after_devices_answered_stays_spent(settings: Settings):
    ledger = refusing(settings, after_devices=True)
    assert ledger.total("chitchat:people") == 0.4
    assert [entry.kind for entry in ledger.spends()] == ["reserve"]
