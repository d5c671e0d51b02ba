"""The planner: a block that a launch file takes as it stands, and values that do meet a target."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml
from pydantic import TypeAdapter

from federated.accounting import guarantees as accounting
from federated.config.mechanism import AvailabilityConfig, MechanismConfig, TreeMechanism
from federated.config.planning import KINDS, PlanningConfig
from federated.config.population import EVERYBODY_TRAINS, Splits
from federated.planning import proposal as proposals
from federated.planning import search as plan_search
from federated.planning.feasibility import plan
from federated.planning.proposal import Proposal, propose, sweeps, to_yaml
from federated.planning.search import INDEPENDENT, Terms, min_sep_of, terms_of
from tests.helpers.audits.strategies import two_starts
from tests.helpers.launches.small_run import mechanism

MECHANISM = mechanism(
    noise_multiplier=7.0, rounds=60, report_goal=100, min_sep=20, max_participations=3, clip_norm=0.3, delta=1e-10
)


def terms(kinds: tuple[str, ...] = ("tree",), most_copies: int = 16, ratio: float = 0.07, **changes: object) -> Terms:
    """Trees alone by default: their numbers take no search, so tests stay quick."""
    base = {"population_estimate": 4000, "max_report_goal": 200, "round_minutes": 6.0, "target_rho": 1.0}
    planning = PlanningConfig.model_validate(base | changes)
    made = terms_of(MECHANISM, planning, EVERYBODY_TRAINS, ratio)
    return replace(made, kinds=kinds, most_copies=most_copies, least_report_goal=10)


row_of_samples = plan_search.independent


@pytest.fixture(autouse=True)
def no_other_mechanisms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the table's rows of other mechanisms, which take seconds; one test asks for them."""
    monkeypatch.setattr(plan_search, "independent", lambda *terms: None)
    monkeypatch.setattr(proposals, "KINDS", ())


@pytest.fixture(scope="module", autouse=True)
def few_starts() -> Iterator[None]:
    with two_starts():
        yield


def meets(wanted: Terms, rounds: int = MECHANISM.rounds) -> bool:
    """The search of ``propose`` alone, without its table."""
    return plan_search.search(wanted, rounds, lambda message: None)[0] is not None


def again(proposal: Proposal) -> MechanismConfig:
    return TypeAdapter(MechanismConfig).validate_python(yaml.safe_load(to_yaml(proposal.mechanism))["mechanism"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"kinds": KINDS},
        {},
        {"kinds": ("banded",), "most_copies": 100},
    ],
    ids=["any", "tree", "banded"],
)
def test_the_block_goes_into_a_launch_file_and_gives_exactly_the_stated_rho(changes: dict) -> None:
    wanted = terms(**changes)
    proposal = propose(MECHANISM, wanted)
    block = again(proposal)
    assert block == proposal.mechanism
    assert block.kind in wanted.kinds
    reached = accounting.account(block, (1e-10,))
    assert (reached.rho, reached.epsilon[1e-10]) == (proposal.chosen.rho, proposal.chosen.epsilon)
    assert proposal.feasible
    assert reached.rho <= proposal.terms.target.rho
    assert reached.epsilon[1e-10] <= proposal.terms.target.epsilon
    assert plan_search.noise_to_signal(block) == pytest.approx(0.07, rel=1e-3)
    assert plan_search.noise_to_signal(block) >= 0.07
    assert plan(block, wanted.training_devices).feasible
    assert (block.clip_norm, block.delta, block.randomness) == (0.3, 1e-10, "seeded")


@pytest.mark.slow
def test_the_timer_that_is_proposed_is_the_one_that_a_launch_by_the_clock_takes() -> None:
    by_the_clock = MECHANISM.model_copy(update={"availability": AvailabilityConfig(timer_days=9)})
    proposal = propose(by_the_clock, terms(round_minutes=100.0))
    days = -(-proposal.chosen.min_sep * 100 // (24 * 60))
    assert again(proposal).timer_days == proposal.timer.days == days < 9
    assert f"timer_days: {days}" in to_yaml(proposal.mechanism)
    assert proposal.timer.min_sep >= proposal.chosen.min_sep, "the floor holds"
    assert propose(MECHANISM, terms(round_minutes=100.0)).mechanism.timer_days is None


@pytest.mark.slow
def test_the_smallest_report_goal_that_meets_the_target() -> None:
    wanted = terms()
    proposal = propose(MECHANISM, wanted)
    smaller = [goal for goal in plan_search.report_goals(wanted) if goal < proposal.chosen.report_goal]
    assert smaller
    for goal in smaller:
        assert plan_search.best(wanted, 60, goal).rho > proposal.terms.target.rho


@pytest.mark.slow
def test_limits_follow_from_the_population() -> None:
    # By hand: 90% of 4,000 are 3,600; rounds of 100 repeat after 36; 60 rounds hold 2 participations.
    wanted = replace(terms(max_report_goal=100), least_report_goal=100)
    proposal = propose(MECHANISM, wanted)
    chosen = proposal.chosen
    assert (chosen.report_goal, chosen.min_sep, chosen.max_participations) == (100, 36, 2)
    assert proposal.timer.days == 1
    # Devices that rest for a day are back before 36 rounds are over, as some sleep through a night.
    assert proposal.timer.min_sep is not None
    assert 18 < proposal.timer.min_sep < 36
    assert any("Timer 1 whole day:" in reason and "36" in reason for reason in proposal.reasons)
    assert min_sep_of(terms(population_estimate=10**6), 60, 100) == 60
    assert min_sep_of(terms(population_estimate=100), 60, 100) == 0


def test_devices_that_are_held_out_fill_no_round() -> None:
    """4,000 that may take part are 2,800 that train, of which a plan counts on nine tenths."""
    everybody = terms()
    held_out = replace(everybody, splits=Splits(test=0.2))
    assert (everybody.training_devices, everybody.usable_devices) == (4000, 3600)
    assert (held_out.training_devices, held_out.usable_devices) == (2800, 2520)
    assert (min_sep_of(everybody, 60, 100), min_sep_of(held_out, 60, 100)) == (36, 25)
    chosen = propose(MECHANISM, held_out).chosen
    assert chosen.min_sep * chosen.report_goal <= held_out.usable_devices


def test_rho_falls_with_the_square_of_the_report_goal_until_devices_come_back() -> None:
    def rho(devices: int, goal: int) -> float:
        wanted = terms(("banded",), 60, population_estimate=devices, max_report_goal=goal)
        return plan_search.best(wanted, 60, goal).rho

    plenty = [rho(10**6, goal) for goal in (50, 100, 200, 400)]
    assert [first / second for first, second in itertools.pairwise(plenty)] == pytest.approx([4, 4, 4], rel=0.01)
    # 3,600 devices: 60 rounds of 50 use each once; from 100 on they return, and a doubling gains less than 4.
    scarce = [rho(4000, goal) for goal in (50, 100, 200, 400)]
    assert scarce[0] == plenty[0]
    gains = [first / second for first, second in itertools.pairwise(scarce)]
    assert all(1 < gain < 3.5 for gain in gains)


@pytest.mark.slow
def test_rho_rises_with_rounds_and_falls_with_population() -> None:
    wanted = terms(KINDS)
    found = {sweep.over: sweep for sweep in sweeps(wanted, propose(MECHANISM, terms()).chosen)}
    for curve in found["population_estimate"].curves:
        rhos = [rho for _, rho in curve.points]
        assert rhos == sorted(rhos, reverse=True)
        assert rhos[0] > 2 * rhos[-1]
    by_label = {curve.label: dict(curve.points) for curve in found["rounds"].curves}
    for rhos in by_label.values():
        assert list(rhos.values()) == sorted(rhos.values())
    tree, blt, banded = by_label.values()
    assert all(banded[rounds] <= blt[rounds] * 1.001 < tree[rounds] for rounds in tree if rounds > 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"target_rho": 0.05},
        {"target_rho": 0.02},
        {"target_rho": 0.3, "population_estimate": 900},
        {"target_rho": 0.05, "kinds": ("blt", "banded"), "most_copies": 4},
    ],
)
def test_the_values_that_would_meet_a_target_do_meet_it(changes: dict) -> None:
    wanted = terms(**changes)
    missed = propose(MECHANISM, wanted)
    assert not missed.feasible
    assert missed.chosen.rho > missed.terms.target.rho
    possible = [change for change in missed.changes if change.needed is not None]
    assert {"noise_to_signal"} < {change.field for change in possible}

    def changed(field: str, value: float) -> Terms:
        if field == "rounds":
            return wanted
        if field == "noise_to_signal":
            return replace(wanted, noise_to_signal=value)
        now = {name: getattr(wanted.planning, name) for name in PlanningConfig.model_fields}
        planning = PlanningConfig.model_validate(now | {field: value})
        target = terms_of(MECHANISM, planning, EVERYBODY_TRAINS).target
        return replace(wanted, planning=planning, target=target)

    for change in possible:
        rounds = int(change.needed) if change.field == "rounds" else MECHANISM.rounds
        assert meets(changed(change.field, change.needed), rounds), change
    # Nearly as much is not enough: the values are the edge and no lazy exaggeration.
    for change in possible:
        if change.field in ("population_estimate", "max_report_goal", "noise_to_signal"):
            value = change.needed * 0.9
            value = value if change.field == "noise_to_signal" else max(int(value), change.now)
            assert not meets(changed(change.field, value)), change


@pytest.mark.slow
def test_what_no_value_can_do_is_said() -> None:
    missed = propose(MECHANISM, terms(target_rho=1e-4, population_estimate=300))
    impossible = {change.field: change.sentence for change in missed.changes if change.needed is None}
    assert "no population is large enough" in impossible["population_estimate"]
    assert "no report goal is large enough" in impossible["max_report_goal"]


@pytest.mark.slow
def test_alternatives_show_every_mechanism_and_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_search, "independent", row_of_samples)
    monkeypatch.setattr(proposals, "KINDS", KINDS)
    rows = propose(MECHANISM, terms()).alternatives
    same = [row for row in rows if (row.rounds, row.report_goal) == (rows[0].rounds, rows[0].report_goal)]
    assert {row.kind for row in same} == {"tree", "blt", "banded", INDEPENDENT}
    assert all("not among the mechanisms" in row.note for row in same if row.kind == "blt")
    sampled = next(row for row in same if row.kind == INDEPENDENT)
    assert sampled.rho is None
    assert "uniform sample" in sampled.note
    assert all(row.noise_to_signal == pytest.approx(0.07, rel=0.02) for row in rows)


@pytest.mark.slow
def test_without_a_rehearsal_the_ratio_is_that_of_the_block() -> None:
    proposal = propose(MECHANISM, terms(ratio=None))
    assert not proposal.terms.rehearsed
    assert proposal.terms.noise_to_signal == plan_search.noise_to_signal(MECHANISM)
    assert "tacit rehearse" in proposal.reasons[0]


@pytest.mark.slow
def test_adaptive_clipping_is_kept_only_where_the_noise_restarts() -> None:
    adaptive = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 20.0}
    config = MECHANISM.model_validate(MECHANISM.model_dump() | {"restarts": (8,), "adaptive_clipping": adaptive})
    fixed = propose(config, terms(("banded",), 60))
    assert fixed.mechanism.adaptive_clipping is None
    assert any("Clip norm 0.3 stays fixed" in reason for reason in fixed.reasons)
    restarted = propose(config, terms(target_rho=0.5))
    assert restarted.mechanism.restarts
    assert restarted.mechanism.adaptive_clipping == config.adaptive_clipping


def test_too_little_memory_is_an_error_that_names_the_fix() -> None:
    with pytest.raises(ValueError, match="most_copies: 2 copies of the model hold the noise of none of tree"):
        propose(MECHANISM, terms(most_copies=2))


def test_one_device_is_no_population() -> None:
    with pytest.raises(ValueError, match=r"population_estimate: of 1 devices about 1 train, .* leaves none"):
        terms(population_estimate=1)


@pytest.mark.slow
def test_who_checks_in_is_kept() -> None:
    config = TreeMechanism.model_validate(MECHANISM.model_dump() | {"availability": {"round_minutes": 7.0}})
    proposal = propose(config, terms())
    assert proposal.mechanism.availability == config.availability
    assert again(proposal) == proposal.mechanism
    assert any("not part of this search" in reason for reason in proposal.reasons)
