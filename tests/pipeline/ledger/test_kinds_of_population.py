"""People and simulations are two kinds of population: name, budget, secret and split of one are never the other's."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.config.population import is_simulation, population_key
from federated.devices import store
from pipeline.ground.errors import BudgetExceeded, PopulationUnknown
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.readiness import look
from pipeline.run import runner
from pipeline.run.cache import content_key
from pipeline.run.known import run_folder
from pipeline.run.population import require_population
from pipeline.run.stage import Stage, StageContext
from pipeline.stages import graph
from tests.helpers.launches.installed import at, registered
from tests.helpers.launches.pipeline_launch import Counted, launch_config, spend
from tests.helpers.launches.spends import budget, device, reserve
from tests.helpers.launches.stages import stages_of

PEOPLE = {"source": "files", "paths": ["people.parquet"], "name": "customers"}
SIMULATION = {"source": "chitchat", "name": "customers"}
STAGES = stages_of(
    {"fine_tune": lambda ctx: Counted(value=1, spend=spend(0.1))},
    Stage("fine_tune", "", planned=lambda config, run: spend(0.1)),
)


def people_in(folder: Path) -> dict[str, object]:
    rows = [(f"device {number}", "hello") for number in range(900)]
    clients, texts = zip(*rows, strict=True)
    pq.write_table(pa.table({"client_id": clients, "text": texts}), folder / "people.parquet")
    return PEOPLE | {"paths": [str(folder / "people.parquet")]}


@pytest.mark.slow
def test_people_do_not_join_a_simulation_of_their_name(settings: Settings, tmp_path: Path):
    """The attack: a launch file registers a simulation with a budget of its own, and people's text spends from it."""
    require_population(launch_config(private_text=SIMULATION), PrivacyLedger.of(settings))
    people = launch_config(private_text=people_in(tmp_path))
    assert any("tacit ledger register customers" in line for line in look(people, settings, launch_id(people)).problems)
    with pytest.raises(PopulationUnknown, match="tacit ledger register customers"):
        require_population(people, PrivacyLedger.of(settings))
    with pytest.raises(PopulationUnknown, match="tacit ledger register customers"):
        runner.run_stage("fine_tune", people, launch_id(people), settings, STAGES)
    assert PrivacyLedger.of(settings).spends() == []


def test_noise_before_people_s_text_is_never_seeded_by_the_name_of_a_simulation(settings: Settings, tmp_path: Path):
    require_population(launch_config(private_text=SIMULATION), PrivacyLedger.of(settings))
    people = people_in(tmp_path)
    with pytest.raises(ValueError, match=r"mechanism.randomness: seeded"):
        runner.run_stage(
            "fine_tune",
            seeded := launch_config(private_text=people, mechanism={"randomness": "seeded"}),
            launch_id(seeded),
            settings,
            STAGES,
        )


def test_a_simulation_spends_nothing_of_people_of_its_name(settings: Settings):
    """The mirror: made-up text would use up people's budget, hold back their windows and share their secret."""
    ledger = registered(PrivacyLedger.of(settings), "customers", budget=0.05)
    simulated = launch_config(private_text=SIMULATION)
    population = require_population(simulated, ledger)
    runner.run_stage("fine_tune", simulated, launch_id(simulated), settings, STAGES)
    assert (population.simulated, ledger.registered("customers").simulated) == (True, False)
    assert ledger.total("customers") == 0.0


KEYS = ["customers", "made_up_files:customers", "chitchat:customers", "synthetic:customers"]
IDS = [f"device {number}" for number in range(300)]


def test_each_kind_has_a_budget_a_secret_and_a_split_of_its_own(settings: Settings):
    ledger = registered(PrivacyLedger.of(settings), *KEYS, budget=1.0)
    assert len({ledger.split_secret(key) for key in KEYS}) == len(KEYS)
    populations = [ledger.population(key) for key in KEYS]
    assert len({population.split_rule(0.1) for population in populations}) == len(KEYS)
    assert [population.simulated for population in populations] == [False, True, True, True]
    # The split does not rest on the secret alone.
    assert len({store.split_key(key, b"the same") for key in KEYS}) == len(KEYS)
    for number, key in enumerate(KEYS):
        reserve(ledger, f"launch {number}", device(0.8), population=key)
    assert [ledger.total(key) for key in KEYS] == [0.8] * len(KEYS)
    assert ledger.verify() == []


def test_the_secret_of_people_is_drawn_and_never_follows_from_a_name(settings: Settings, tmp_path: Path):
    other = PrivacyLedger.create(at(tmp_path / "other"))
    for ledger in (first := PrivacyLedger.of(settings), other):
        for key in KEYS:
            ledger.register(population_key(key), budget(max_rho=1.0), "owner")
    alike = [first.split_secret(key) == other.split_secret(key) for key in KEYS]
    assert alike == [False, True, True, True]


def test_the_key_says_source_and_name():
    for source, key in zip(("files", "made_up_files", "chitchat"), KEYS, strict=False):
        paths = {} if source == "chitchat" else {"paths": ["p"]}
        made = launch_config(private_text={"source": source, "name": "customers"} | paths)
        assert (made.population, is_simulation(made.population)) == (key, source != "files")
    for wrong in ("", ":customers", "files:customers", "chitchat:", "chitchat:a:b", "a b", "customers\n", "Chitchat:a"):
        with pytest.raises(ValueError, match=r"population: .* can be none"):
            population_key(wrong)


def test_a_launch_file_registers_what_we_make_ourselves_and_nothing_else(settings: Settings):
    ledger = PrivacyLedger.of(settings)
    for source, registers in (("chitchat", True), ("synthetic", True), ("files", False), ("made_up_files", False)):
        more = {"paths": ["p"]} if source.endswith("files") else {"devices": 9} if source == "synthetic" else {}
        config = launch_config(private_text={"source": source, "name": "customers"} | more)
        if registers:
            require_population(config, ledger)
        else:
            with pytest.raises(PopulationUnknown, match=f"tacit ledger register {config.population} "):
                require_population(config, ledger)


def test_nobody_is_in_a_simulation_and_among_people(settings: Settings):
    ledger = registered(PrivacyLedger.of(settings), "customers", "made_up_files:customers", "made_up_files:b")
    ledger.bind_devices("customers", IDS)
    with pytest.raises(BudgetExceeded, match=r"among people; read people's text with source files"):
        ledger.bind_devices("made_up_files:customers", IDS)
    ledger.bind_devices("made_up_files:b", [f"made up {number}" for number in range(300)])
    with pytest.raises(BudgetExceeded, match="among people"):
        ledger.bind_devices("customers", [f"made up {number}" for number in range(300)])
    assert ledger.verify() == []


def test_nobody_is_new_under_another_spelling(settings: Settings):
    ledger = registered(PrivacyLedger.of(settings), "customers", "others")
    ledger.bind_devices("customers", IDS)
    for spelled in ([each.upper() for each in IDS], [f" {each}" for each in IDS], [f"\ufeff{each}" for each in IDS]):
        with pytest.raises(BudgetExceeded, match="these are devices of population 'customers'"):
            ledger.bind_devices("others", spelled)


@pytest.mark.parametrize(
    "later", [[*IDS[1:], "another"], [*IDS, "one more"], [f"person {number}" for number in range(300)]]
)
def test_the_devices_of_a_simulation_never_change(settings: Settings, later: list[str]):
    """What was registered as made up is not, later, people's text at the same path."""
    ledger = registered(PrivacyLedger.of(settings), "made_up_files:customers")
    ledger.bind_devices("made_up_files:customers", IDS)
    ledger.bind_devices("made_up_files:customers", reversed(IDS))
    with pytest.raises(BudgetExceeded, match="a simulation's devices never change"):
        ledger.bind_devices("made_up_files:customers", later)


def test_caches_of_one_kind_hold_nothing_of_the_other(settings: Settings, tmp_path: Path):
    """The same files, the same fields and the same inputs under both sources: content keys are each kind's own."""
    registered(PrivacyLedger.of(settings), *KEYS[:2])
    keys = set[str | None]()
    for source in ("files", "made_up_files"):
        config = launch_config(private_text=people_in(tmp_path) | {"source": source})
        run = run_folder(settings, launch_id(config))
        for name in ("ingest_private", "discover", "count"):
            stage = graph.STAGES[name]
            alike = stage if name == "ingest_private" else replace(stage, given=lambda ctx: {"made of": "the same"})
            ctx = StageContext(config, run, settings, name, None, config.population)
            keys.add(content_key(ctx, graph.STAGES | {name: alike}))
    assert len(keys - {None}) == 6
