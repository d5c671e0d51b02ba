"""Every launch file is valid, production files keep the papers' shape, and no field is there for nobody."""

import functools
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel
from scipy import stats

from discovery import outlook
from federated.config.mechanism import BltMechanism
from federated.config.population import FilePopulation
from federated.planning import gain, law
from federated.planning.feasibility import rho_for
from pipeline.launch.config import LaunchConfig, all_fields, launch_id, load_launch
from pipeline.preflight import schedule
from pipeline.preflight.readiness import estimated_splits
from pipeline.publication.gates.decide import Evidence, decide
from pipeline.publication.gates.words import GATES
from pipeline.releases.policy import above_policy
from pipeline.releases.terms import Terms
from pretrain.config import C4Corpus
from pretrain.text import tokenise
from tests.helpers.launches.command import answered

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "dags" / "launches").glob("*.yaml"))
PRODUCTION = [path for path in FILES if path.stem in {"de-DE", "en-US", "es-ES", "fr-FR", "pt-BR"}]


def name_of(path: Path) -> str:
    return path.stem


@functools.cache
def config_of(path: Path) -> LaunchConfig:
    return load_launch(path)


@functools.cache
def terms_of(path: Path) -> Terms:
    """Spends at worst, at the file's own population: certificates of millions of devices take seconds."""
    return Terms.of_file(config_of(path), estimated_splits(config_of(path)))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_is_valid_and_named_after_itself(path: Path):
    config = config_of(path)
    # The DAG's id is the file's name, the launch's id begins with the name in it: one name for both.
    assert config.name == path.stem
    assert config.locale in path.stem
    assert launch_id(config).startswith(f"{path.stem}-")


def test_no_two_files_are_the_same_launch():
    ids = [launch_id(config_of(path)) for path in FILES]
    assert len(set(ids)) == len(ids) >= 3


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_says_every_privacy_parameter_itself(path: Path):
    raw = all_fields(path)
    stated = {"noise_multiplier", "clip_norm", "rounds", "report_goal", "delta"}
    if raw["mechanism"]["kind"] != "independent":
        stated |= {"min_sep", "max_participations"}
    assert stated <= set(raw["mechanism"])
    central = raw["discovery"].get("kind") == "central"
    local = {"epsilon0", "messages_per_device", "honest_share"}
    bounds = {"noise_multiplier", "words_per_device"} if central else local
    ceiling = set() if central else {"max_discovery_epsilon0"}
    assert {"delta"} | bounds <= set(raw["discovery"])
    assert {"max_rho", "max_total_epsilon", "population_delta", "min_canary_rank"} | ceiling <= set(raw["policy"])
    assert {"population_max_rho", "budget"} & set(raw["policy"])
    assert raw["mechanism"]["randomness"] == "secure"


def test_the_production_locales_are_there():
    assert [path.stem for path in PRODUCTION] == ["de-DE", "en-US", "es-ES", "fr-FR", "pt-BR"]


@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_production_files_have_the_papers_shape(path: Path):
    config: LaunchConfig = config_of(path)
    assert isinstance(config.public_text, C4Corpus)
    assert isinstance(config.private_text, FilePopulation)
    assert (config.model.embedding_dim, config.model.hidden_dim, config.model.tied) == (96, 670, False)
    # BLT wherever the planner agrees, at most the report goal of the paper.
    assert isinstance(config.mechanism, BltMechanism)
    assert config.mechanism.report_goal <= 6500
    assert config.mechanism.delta == 1e-10
    assert config.schedule
    assert config.reviewers


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_gate_is_there_or_says_why_it_is_not(path: Path):
    """A launch worse than what users have passed every gate: the one that would have held it was absent."""
    config = config_of(path)
    typed, plain = config.ab_test.session_words != 0, config.evaluation is None
    evidence = Evidence(
        counts_alone=not config.trains,
        launched_for=config.features,
        session_words=1 if typed and plain else 0,
        judged_words=1 if typed else 0,
        broken_margins=() if typed or not plain else None,
    )
    gates = {gate.id for gate in decide(evidence, config.policy).gates}
    assert not [name for name in GATES.keys() - gates if not GATES[name].absent]
    assert {f"champion{suffix}" for suffix in ("", *(f"_{name}" for name in config.features[1:]))} <= gates


@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_a_production_file_leaves_out_only_what_its_budgets_replace(path: Path):
    policy = config_of(path).policy
    assert policy.cover_everything
    assert config_of(path).ab_test.session_words > 0, "typing is in the release"
    assert policy.min_new_word_top3
    assert policy.budget


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_stress_canary_ships(path: Path):
    assert "stress" not in config_of(path).audit.launched


@pytest.mark.slow
@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_a_schedule_fits_its_budget_for_ever(path: Path):
    """In every window there will be, with a week's delay, and no ceiling that adds up for ever."""
    fits = schedule.fits(config_of(path), None, terms_of(path).spends["discover"])
    assert fits == schedule.ScheduleCheck((), ())


def worst_rho(config: LaunchConfig) -> float:
    """rho of a device that joined as often as the enforced limits let it."""
    mechanism = config.mechanism
    (row,) = rho_for(mechanism, 1, noise_multipliers=[mechanism.noise_multiplier])
    return (row.rho if config.trains else 0.0) + sum(config.beside_training.values())


@pytest.mark.parametrize("path", [path for path in FILES if config_of(path).mechanism.timed], ids=name_of)
def test_the_worst_case_of_a_launch_is_within_its_own_ceiling(path: Path):
    config = config_of(path)
    assert 0 < worst_rho(config) <= config.policy.max_rho


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in FILES if not config_of(path).mechanism.timed], ids=name_of)
def test_where_no_timer_holds_a_device_back_few_samples_would_break_the_ceiling(path: Path):
    """A device may be drawn in every round; rho counts how often it really was."""
    config = config_of(path)
    mechanism, sample = config.mechanism, config.mechanism.secret_sample
    rho_of_a_round = worst_rho(config) / mechanism.rounds
    most = int(config.policy.max_rho / rho_of_a_round)
    nobody_more = stats.binom.cdf(most, mechanism.rounds, sample.rate) ** sample.population
    assert nobody_more > 0.95
    # The file states both numbers.
    said = path.read_text("utf-8")
    assert f"more than {most} of the {mechanism.rounds} rounds" in said
    assert f"{1 - nobody_more:.0%} of samplings" in said


def blocks(annotation: object) -> set[type[BaseModel]]:
    """Every block of the configuration that ``annotation`` may hold."""
    if isinstance(annotation, type):
        if not issubclass(annotation, BaseModel):
            return set()
        return {annotation}.union(*(blocks(field.annotation) for field in annotation.model_fields.values()))
    return set().union(*(blocks(part) for part in get_args(annotation)))


def stated(content: object) -> set[str]:
    """Every field that a part of a launch file sets."""
    if isinstance(content, dict):
        return set(content).union(*(stated(value) for value in content.values()))
    return set().union(*(stated(value) for value in content)) if isinstance(content, list) else set()


def test_every_field_is_set_by_a_file() -> None:
    names = {name for block in blocks(LaunchConfig) for name in block.model_fields}
    files = set().union(*(stated(yaml.safe_load(path.read_text(encoding="utf-8"))) for path in FILES))
    assert names - files == set()


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_one_number_stays_under_its_ceiling_at_the_files_own_population(path: Path):
    """Words among it, with half of the other devices of a layer honest: below 1 for production files."""
    config = config_of(path)
    whole = terms_of(path).total
    assert above_policy(terms_of(path)) == []
    assert whole.epsilon <= config.policy.max_total_epsilon < 1.2 * whole.epsilon + 3
    if path in PRODUCTION:
        assert config.policy.cover_everything
        local = not config.central_discovery
        hidden = "shuffled" if config.trust == "server" else "summed"
        assert not local or (config.discovery.honest_share, whole.words.how) == (0.5, hidden)
        assert whole.epsilon < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "epsilon0", "messages", "expected"),
    [("en-US", 7.0, 5, {1.0: 3.192, 0.5: 4.903}), ("de-DE", 7.0, 10, {1.0: 6.962, 0.5: 11.373})],
)
def test_a_share_of_honest_devices_costs_what_it_is_said_to(
    name: str, epsilon0: float, messages: int, expected: dict[float, float]
):
    """Of so many devices that train, as the numbers were first stated."""
    local = config_of(ROOT / "dags" / "launches" / "pt-BR.yaml").discovery
    config = config_of(ROOT / "dags" / "launches" / f"{name}.yaml")
    for share, epsilon in expected.items():
        changed = {"epsilon0": epsilon0, "messages_per_device": messages, "honest_share": share}
        asked = local.model_copy(update=changed)
        seen = outlook.local(asked, {"en-US": 2_700_000, "de-DE": 1_310_000}[name], tokenise.alphabet(config.locale))
        assert seen.shuffled == pytest.approx(epsilon, abs=6e-4)


def own_population(config: LaunchConfig) -> int:
    """Devices that may take part, as the file says, or as the data set of the demo has them."""
    if config.planning is not None:
        return config.planning.population_estimate
    return {"chitchat": 1315}.get(config.private_text.source) or config.private_text.devices


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_is_feasible_at_its_own_population_however_it_is_asked(path: Path, tmp_path: Path):
    config = config_of(path)
    devices = () if config.planning else ("--devices", str(own_population(config)))
    done = answered(tmp_path, "plan", str(path), *devices)
    assert (done["feasible"], done["reasons"]) == (True, [])
    assert done["training_devices"] < own_population(config)
    if path.stem == "es-ES":  # Of devices that may take part: the command and the file mean the same by a population.
        assert answered(tmp_path, "plan", str(path), "--devices", str(own_population(config))) == done


# Xu et al. 2023, Table 1: estimated populations, in millions.
PUBLISHED = {"de-DE": 3.24, "en-US": 13, "es-ES": 4.21, "fr-FR": 2.79, "pt-BR": 16.6}


@pytest.mark.slow
@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_production_files_spend_no_more_than_the_knee_at_half_the_step_noise(path: Path, tmp_path: Path):
    """As no network of their size was trained with noise; the knee is that of all of it."""
    config = config_of(path)
    step = law.step(config.mechanism, config.server)
    assert step.noise == pytest.approx(law.STEP_NOISE / 2, rel=0.08)
    assert gain.NOISY_WAY * 0.95 < step.way < law.longest_way(config.mechanism, config.server)
    done = answered(tmp_path, "plan", str(path))
    assert done["total"]["epsilon"] < 1.2 * done["frontier"]["knee"]


@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_no_file_counts_on_more_people_than_the_paper_estimates(path: Path):
    assert config_of(path).planning.population_estimate <= 1e6 * PUBLISHED[path.stem]
