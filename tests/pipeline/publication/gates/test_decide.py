"""Gates fail closed, one at a time."""

import math

import pytest

from evaluation.audit.released.rows import TRAINED
from pipeline.publication.gates.decide import Evidence, decide
from pipeline.stages.audit import Audit
from pipeline.stages.comparison import AbTest
from pipeline.stages.discover import Discover
from pipeline.stages.fine_tune import FineTune
from reports.disclosure.findings import AuditVerdict, ControlBlock, ControlRow, ReleaseAudit, ReleaseVerdict
from reports.disclosure.utility import OtherFeature
from tests.helpers.launches.pipeline_launch import launch_config

POLICY = launch_config(
    policy={
        "budget": {"rho": 0.7, "days": 60},
        "population_max_discovery_epsilon": 6.0,
        "min_variety": 0.5,
        "min_ngram_gain": 0.0,
        "min_new_word_top3": 0.05,
        "cover_everything": True,
    },
    evaluation={"noise_multiplier": 2.0},
).policy


def made_again(stage: str, *names: str, passed: bool = True) -> ReleaseAudit:
    verdicts = tuple(
        ReleaseVerdict(name=name, tested=name, slack="", passed=passed, sentence="" if passed else f"{name} is wrong")
        for name in names
    )
    return ReleaseAudit(stage=stage, made_by="launch", cited=None, verdicts=verdicts)


ROWS = {kind: AuditVerdict(type=kind, tested=tested, verdict="passed") for kind, tested in TRAINED.items()}
ROWS["noise_added"] = ROWS["noise_added"].model_copy(update={"least_noise": 0.95})
ROWS["update_lengths"] = ROWS["update_lengths"].model_copy(update={"least_clip": 1.01})


def audited(kind: str, **changes: object) -> dict[str, tuple[AuditVerdict, ...]]:
    """All audits, one of them another."""
    return {"audits": tuple((ROWS | {kind: ROWS[kind].model_copy(update=changes)}).values())}


def without(kind: str) -> dict[str, tuple[AuditVerdict, ...]]:
    return {"audits": tuple(row for row in ROWS.values() if row.type != kind)}


# Canaries with one copy need not be found, those with most copies must.
LEARNT = ControlBlock(
    rounds=32,
    devices=4,
    rows=(
        ControlRow(n_e=1, canaries=2, found=0, worst_rank=1_500_000),
        ControlRow(n_e=14, canaries=2, found=2, worst_rank=1),
    ),
)
LOST = LEARNT.model_copy(update={"rows": (LEARNT.rows[1].model_copy(update={"n_e": 1}), LEARNT.rows[0])})
LOST = LOST.model_copy(update={"rows": (LOST.rows[0], LOST.rows[1].model_copy(update={"n_e": 14, "found": 1}))})
GOOD = Evidence(
    uncovered=(),
    rho=0.4,
    epsilon=4.25,
    epsilon_pld=4.2501,
    population_rho=0.9,
    window_rho=0.6,
    total_epsilon=6.5,
    population_words_epsilon=30.0,
    enforced_min_sep=4,
    observed_min_sep=4,
    enforced_max_participations=3,
    observed_max_participations=3,
    violations=0,
    epsilon0=2.0,
    population_discovery_epsilon=4.0,
    worst_rank_single_user=100,
    random_continuations=2_000_000,
    found_single_user=0,
    broken_ceilings=0,
    pooled_p_value=0.4,
    alpha=0.01,
    noise_audit_passed=True,
    audits=tuple(ROWS.values()),
    control=LEARNT,
    releases={"count": ("key", "sum"), "fine_tune": ("key",)},
    release_audits=(made_again("count", "key", "sum"), made_again("fine_tune", "key")),
    top1_gain_low=0.001,
    top3_gain_low=0.0,
    ngram_gain_low=0.0,
    new_word_top3_low=0.05,
    variety_private=6.25,
    variety_public=12.5,
    session_words=500,
    judged_words=2500,
    broken_margins=(),
    missing_metrics=(),
    worse_than_champion=(),
    broken_typists=(),
    launched_for=("NWP",),
    attempt=2,
    confidence=1 - 0.05 * 6 / (2 * math.pi) ** 2,
    leaks=(),
    ledger_problems=(),
)


def test_everything_in_order_is_launched():
    decision = decide(GOOD, POLICY)
    assert decision.decision == "launch"
    assert all(gate.passed for gate in decision.gates)
    assert decision.reasons == (f"all {len(decision.gates)} gates passed",)
    assert len({gate.id for gate in decision.gates}) == len(decision.gates) == 32


@pytest.mark.parametrize(
    ("change", "gate"),
    [
        ({"rho": 0.5000001}, "budget"),
        ({"epsilon_pld": 4.252}, "accountants"),
        ({"population_rho": 1.01}, "population_budget"),
        ({"window_rho": 0.71}, "window_budget"),
        ({"total_epsilon": 10.01}, "total"),  # as with fewer messages received than were planned
        ({"total_epsilon": None}, "total"),
        ({"population_words_epsilon": 100.1}, "population_words"),
        ({"observed_min_sep": 3}, "min_sep"),
        ({"observed_max_participations": 4}, "max_participations"),
        ({"violations": 1}, "violations"),
        ({"epsilon0": 8.5}, "discovery"),
        ({"population_discovery_epsilon": 6.1}, "population_discovery"),
        ({"worst_rank_single_user": 99}, "canaries"),
        ({"found_single_user": 1}, "extraction"),
        ({"broken_ceilings": 1}, "ceilings"),
        ({"pooled_p_value": 0.009}, "pooled"),
        *((without(kind), "released") for kind in TRAINED if kind not in ("noise_added", "update_lengths")),
        *((audited(kind, verdict="not run"), "released") for kind in TRAINED),
        (audited("noise_added", least_noise=0.89), "audit_power"),
        (audited("noise_added", least_noise=None), "audit_power"),
        (audited("update_lengths", least_clip=1.2), "audit_power"),
        ({"control": LOST}, "control"),
        ({"noise_audit_passed": None}, "noise_audit"),
        ({"noise_audit_passed": False}, "noise_audit"),
        ({"release_audits": None}, "release_audits"),
        ({"releases": None}, "release_audits"),
        ({"releases": {}, "release_audits": ()}, "release_audits"),
        ({"release_audits": (made_again("count", "key", "sum"),)}, "release_audits"),
        ({"release_audits": (made_again("count", "key"), made_again("fine_tune", "key"))}, "release_audits"),
        ({"releases": {"count": ("key",), "fine_tune": ("key",), "discover": ("key", "split")}}, "release_audits"),
        (
            {"release_audits": (made_again("count", "key", "sum", passed=False), made_again("fine_tune", "key"))},
            "release_audits",
        ),
        ({"top1_gain_low": 0.0}, "utility"),
        ({"top3_gain_low": -0.001}, "top3_guardrail"),
        ({"ngram_gain_low": -0.001}, "ngram"),
        ({"variety_private": 6.24}, "variety"),
        ({"variety_public": 12.51}, "variety"),
        ({"new_word_top3_low": 0.0499}, "new_words"),
        ({"broken_margins": ("words_per_minute (guardrail): -3.00%",)}, "typing"),
        ({"broken_margins": None}, "typing"),
        ({"missing_metrics": ("prate",)}, "typing"),
        ({"worse_than_champion": ("top-1 recall changes by -5.22%",)}, "champion"),
        ({"broken_typists": ("words per minute: clearly worse under sloppy",)}, "typists"),
        ({"attempt": 3}, "attempts"),
        ({"attempt": 0}, "attempts"),
        ({"confidence": 0.95}, "attempts"),
        ({"uncovered": ("ab_test",)}, "covered"),
        ({"leaks": ("fine_tune: curve[1].noise: nothing public gives it again",)}, "sources"),
        ({"ledger_problems": ("entry 2 was altered",)}, "ledger"),
    ],
)
def test_each_gate_holds_a_launch_alone(change: dict, gate: str):
    decision = decide(GOOD.model_copy(update=change), POLICY)
    assert decision.decision == "hold"
    assert [failed.id for failed in decision.gates if not failed.passed] == [gate]
    assert len(decision.reasons) == 1


@pytest.mark.parametrize(
    "name", sorted(Evidence.model_fields.keys() - {"random_continuations", "others", "counts_alone"})
)
def test_missing_evidence_holds(name: str):
    decision = decide(GOOD.model_copy(update={name: () if name == "audits" else None}), POLICY)
    assert decision.decision == "hold"
    assert "missing" in decision.reasons[0]


OF_OTF = OtherFeature(champion=None, attempt=1, broken_margins=(), missing_metrics=(), worse_than_champion=())


@pytest.mark.parametrize(
    ("found", "failed"),
    [
        (OF_OTF, []),
        (OF_OTF.model_copy(update={"broken_margins": ("words modified",)}), ["typing_OTF"]),
        (OF_OTF.model_copy(update={"missing_metrics": ("words_modified",)}), ["typing_OTF"]),
        (OF_OTF.model_copy(update={"attempt": 3}), ["attempts_OTF"]),
        (OF_OTF.model_copy(update={"worse_than_champion": ("words modified",)}), ["champion_OTF"]),
        # Nobody looked at the second feature.
        (None, ["attempts_OTF", "champion_OTF", "typing_OTF"]),
    ],
)
def test_one_feature_that_fails_holds_the_launch_and_is_named(found: OtherFeature | None, failed: list[str]) -> None:
    both = GOOD.model_copy(update={"launched_for": ("NWP", "OTF"), "others": found and {"OTF": found}})
    decision = decide(both, POLICY)
    assert [gate.id for gate in decision.gates if not gate.passed] == failed
    assert decision.decision == ("hold" if failed else "launch")
    named = {gate.id: gate.title for gate in decision.gates}
    of_features = {"attempts", "champion", "typing"}
    assert of_features < named.keys()
    assert all("(NWP)" in named[name] and "(OTF)" in named[f"{name}_OTF"] for name in of_features)
    assert all("(OTF)" in reason for reason in decision.reasons) == bool(failed)


def test_without_typing_recall_is_held_by_its_margins_where_it_was_judged():
    untyped = GOOD.model_copy(update={"session_words": 0, "judged_words": 0, "broken_typists": None})
    better, worse = (untyped.model_copy(update={"broken_margins": broken}) for broken in ((), ("top-1 recall",)))
    (gate,) = (gate for gate in decide(better, POLICY).gates if gate.id == "typing")
    assert (gate.passed, gate.title) == (True, "recall, against the starting point")
    assert decide(worse, POLICY).decision == "hold"
    (noisy,) = (
        gate for gate in decide(better.model_copy(update={"judged_words": 900}), POLICY).gates if gate.id == "typing"
    )
    assert noisy.title == "simulated typing, against the starting point", "under a budget only the deciding arms type"
    without = decide(untyped.model_copy(update={"broken_margins": None}), POLICY)
    assert "typing" not in {gate.id for gate in without.gates}


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("judged", [True, False])
def test_what_is_worse_than_users_have_holds_whatever_else_is_judged(typed: bool, judged: bool):
    """Without typing and without a budget of evaluation there was no such gate, and -5.22 points were launched."""
    changes = {"session_words": 500 if typed else 0, "broken_margins": () if judged else None}
    worse = GOOD.model_copy(update=changes | {"worse_than_champion": ("top-1 recall changes by -5.22%",)})
    decision = decide(worse, POLICY)
    assert decision.decision == "hold"
    assert "against the users' model: top-1 recall changes by -5.22%" in decision.reasons


def test_without_rows_about_the_noise_both_gates_hold():
    decision = decide(GOOD.model_copy(update={"audits": ()}), POLICY)
    assert [gate.id for gate in decision.gates if not gate.passed] == ["noise_audit", "released", "audit_power"]


@pytest.mark.parametrize("kind", TRAINED)
def test_an_audit_that_failed_holds_and_is_named(kind: str) -> None:
    decision = decide(GOOD.model_copy(update=audited(kind, verdict="failed")), POLICY)
    assert [gate.id for gate in decision.gates if not gate.passed] == ["noise_audit", "released"]
    assert decision.reasons[1].endswith(f": {kind.replace('_', ' ')}: failed")


def test_no_two_stages_state_the_same_evidence():
    """The results are merged by name: what two of them stated, the later would replace in silence."""
    stated = [name for result in (Discover, FineTune, Audit, AbTest) for name in result.model_fields]
    assert {name for name in stated if stated.count(name) > 1} & set(Evidence.model_fields) == set()


@pytest.mark.parametrize(
    "name",
    [
        "rho",
        "epsilon",
        "epsilon_pld",
        "population_rho",
        "epsilon0",
        "top1_gain_low",
        "top3_gain_low",
        "ngram_gain_low",
        "new_word_top3_low",
        "variety_private",
    ],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_hold_and_stay_out_of_the_json(name: str, value: float):
    decision = decide(GOOD.model_copy(update={name: value}), POLICY)
    assert decision.decision == "hold"
    failed = [gate for gate in decision.gates if not gate.passed]
    assert len(failed) == 1
    assert failed[0].value is None
    assert "not a finite number" in failed[0].evidence


def test_nothing_at_all_fails_every_gate():
    decision = decide(Evidence(), POLICY)
    assert decision.decision == "hold"
    assert not any(gate.passed for gate in decision.gates)


def test_devices_that_joined_once_have_no_separation_to_break():
    once = GOOD.model_copy(update={"observed_min_sep": None, "observed_max_participations": 1})
    assert decide(once, POLICY).decision == "launch"
    twice = GOOD.model_copy(update={"observed_min_sep": None, "observed_max_participations": 2})
    assert decide(twice, POLICY).decision == "hold"


def test_without_a_ceiling_there_is_no_gate_on_discovery_over_launches():
    decision = decide(GOOD.model_copy(update={"population_discovery_epsilon": 1e9}), launch_config().policy)
    assert decision.decision == "launch"
    assert "population_discovery" not in {gate.id for gate in decision.gates}


def test_units_do_not_stand_in_for_each_other():
    devices = decide(GOOD.model_copy(update={"population_discovery_epsilon": 0.0, "population_rho": 1.01}), POLICY)
    items = decide(GOOD.model_copy(update={"population_discovery_epsilon": 6.1, "population_rho": 0.0}), POLICY)
    assert [gate.id for gate in devices.gates if not gate.passed] == ["population_budget"]
    assert [gate.id for gate in items.gates if not gate.passed] == ["population_discovery"]


CANARIES = ("canaries", "extraction", "ceilings", "pooled", "control")
NO_CANARIES = {
    "counts_alone": True,
    "worst_rank_single_user": None,
    "found_single_user": None,
    "broken_ceilings": None,
    "pooled_p_value": None,
    "control": None,
    "observed_min_sep": None,
    "observed_max_participations": 0,
}
OF_COUNTS = GOOD.model_copy(update={**NO_CANARIES, "audits": (), "noise_audit_passed": None})


def test_counts_alone_need_their_release_made_again_and_no_canary() -> None:
    decision = decide(OF_COUNTS, POLICY)
    assert decision.decision == "launch", decision.reasons
    assert not {gate.id for gate in decision.gates} & {*CANARIES, "noise_audit", "released", "audit_power"}
    for lost in (None, (), (made_again("count", "key", "sum", passed=False), made_again("fine_tune", "key"))):
        failed = decide(OF_COUNTS.model_copy(update={"release_audits": lost}), POLICY)
        assert [gate.id for gate in failed.gates if not gate.passed] == ["release_audits"]


def test_the_gate_names_what_was_not_tested_and_what_speaks_against_a_release() -> None:
    audits = (made_again("count", "sum", passed=False),)
    failed = decide(OF_COUNTS.model_copy(update={"release_audits": audits}), POLICY)
    (gate,) = (gate for gate in failed.gates if not gate.passed)
    assert gate.evidence == "count: key was not tested; fine_tune: key was not tested; count: sum is wrong"
    assert gate.value is None


def test_what_trains_cannot_do_without_canaries() -> None:
    failed = decide(OF_COUNTS.model_copy(update={"counts_alone": False}), POLICY)
    assert set(CANARIES) <= {gate.id for gate in failed.gates if not gate.passed}
