"""An answer counts if its account signed it, for this launch and this report."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ground import keys
from pipeline.ground.errors import KeyUnusable, LedgerConflict, PopulationUnknown, ReleaseRefused
from pipeline.ground.settings import Settings, account
from pipeline.ledger.ledger import PrivacyLedger, rotate
from pipeline.ledger.reviewers import is_key
from pipeline.publication.answers import Review, stage_of
from pipeline.publication.approvals import require_approved, review
from pipeline.publication.review import answer_review
from pipeline.verify.files import answer_checks
from pretrain.files import PRIVATE, write_bytes
from tests.helpers.launches.answering import OWNER, enrolled, key_of, signed
from tests.helpers.launches.command import answered
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.spends import budget

from .test_approvals import CONFIG, SEEN, Case

FILES = {"source": "files", "paths": ["people.parquet"], "name": "people"}
YES = Review(account="os:ana", answer="approve", reason="read it", report=SEEN)
IN_AIRFLOW = YES.model_copy(update={"account": "airflow:ana"})


@pytest.fixture
def case(settings: Settings) -> Case:
    made = Case(settings)
    for name in ("ana", "bo"):
        enrolled(made.ledger, CONFIG.population, name)
    return made


def by(name: str) -> Callable[[Case, Review], Review]:
    return lambda case, given: given.signed(case.run.launch_id, key_of(name))


def by_installation(role: keys.Role) -> Callable[[Case, Review], Review]:
    return lambda case, given: given.signed(case.run.launch_id, keys.signer(case.settings, role))


def then(sign: Callable[[Case, Review], Review], **changes: str) -> Callable[[Case, Review], Review]:
    """Signed, and changed after it."""
    return lambda case, given: sign(case, given).model_copy(update=changes)


def of_another_launch(case: Case, given: Review) -> Review:
    return given.signed("people-4567abcd", key_of("ana"))


def first_a_no(case: Case, given: Review) -> Review:
    no = given.model_copy(update={"answer": "reject"}).signed(case.run.launch_id, key_of("ana"))
    return given.model_copy(update={"signature": no.signature})


FORGED = {
    "unsigned": (YES, lambda case, given: given),
    "no signature but other digits": (YES, lambda case, given: given.model_copy(update={"signature": "no digits"})),
    "by another reviewer": (YES, by("bo")),
    "by the ledger's key": (YES, by_installation("ledger")),
    "by the key for answers in Airflow": (YES, by_installation("answers")),
    "by nobody who is registered": (YES.model_copy(update={"account": "os:eve"}), by("eve")),
    "a no turned into a yes": (YES, first_a_no),
    "another account": (YES, then(by("ana"), account="os:bo")),
    "another system": (YES, then(by("ana"), account="airflow:ana")),
    "another reason": (YES, then(by("ana"), reason="fine")),
    "another report": (YES.model_copy(update={"report": "b" * 64}), then(by("ana"), report=SEEN)),
    "another launch": (YES, of_another_launch),
    "in Airflow, by a reviewer": (IN_AIRFLOW, by("ana")),
    "in Airflow, by the ledger's key": (IN_AIRFLOW, by_installation("ledger")),
    "in Airflow, without whom it may be": (
        IN_AIRFLOW.model_copy(update={"indistinct_from": "os:bo"}),
        then(by_installation("answers"), indistinct_from=""),
    ),
}


@pytest.mark.parametrize(("given", "forge"), FORGED.values(), ids=FORGED)
def test_an_answer_that_its_account_did_not_sign_is_named_and_counts_for_nothing(
    case: Case, given: Review, forge: Callable[[Case, Review], Review]
):
    forged = forge(case, given)
    with pytest.raises(ReleaseRefused, match=r"is no reviewer|had no registered key|did not sign this approve about"):
        review(CONFIG, case.run, case.ledger, forged)
    # Written with the ledger's own key, past the command.
    entry = case.ledger.note("review", CONFIG.population, case.run.launch_id, stage_of(forged), forged.model_dump())
    assert case.ledger.verify() == [], "the ledger's key signed it"
    assert case.now.state == "waiting"
    with pytest.raises(ReleaseRefused, match="is waiting"):
        require_approved(CONFIG, case.run, case.ledger)
    (check,) = answer_checks(CONFIG, case.run, case.ledger)
    assert check.passed is False
    assert check.detail.startswith(f"entry {entry.seq} is no answer of a reviewer: ")


def test_an_answer_that_stands_twice_is_named(case: Case):
    case.answer("approve")
    (entry,) = [entry for entry in case.ledger.entries() if entry.kind == "review"]
    assert [check.passed for check in answer_checks(CONFIG, case.run, case.ledger)] == [True]
    case.ledger.note("review", CONFIG.population, case.run.launch_id, "another", dict(entry.content))
    (check,) = answer_checks(CONFIG, case.run, case.ledger)
    assert (check.passed, check.detail.rpartition(": ")[2]) == (False, "it repeats that of os:ana")


def test_an_answer_that_nobody_can_read_is_named(case: Case):
    case.ledger.note("review", CONFIG.population, case.run.launch_id, "another", {"answer": "approve"})
    (check,) = answer_checks(CONFIG, case.run, case.ledger)
    assert (check.passed, case.now.state) == (False, "waiting")
    assert "cannot be read" in check.detail


def test_a_launch_without_answers_has_nothing_to_check(case: Case):
    assert list(answer_checks(CONFIG, case.run, case.ledger)) == []


def test_a_later_key_signs_what_comes_after_it(case: Case):
    case.answer("approve")
    old, new = key_of("ana"), key_of("ana later")
    case.ledger.register_reviewer(CONFIG.population, "ana", new.public_key.keyval["public"], "ana")
    assert case.now.state == "approved", "what the earlier key signed stays"
    case.do("report", report="b" * 64)
    again = YES.model_copy(update={"report": "b" * 64})
    with pytest.raises(ReleaseRefused, match="the key of os:ana did not sign"):
        review(CONFIG, case.run, case.ledger, again.signed(case.run.launch_id, old))
    assert review(CONFIG, case.run, case.ledger, again.signed(case.run.launch_id, new)).state == "approved"
    assert [check.passed for check in answer_checks(CONFIG, case.run, case.ledger)] == [True]


def test_a_rotated_key_for_answers_in_airflow_signs_what_comes_after_it(case: Case):
    case.answer("approve", "airflow:ana")
    old = keys.signer(case.settings, "answers")
    rotate(case.settings, "answers")
    case.ledger = PrivacyLedger.of(case.settings)
    assert case.now.state == "approved"
    assert case.now.approvers == ("airflow:ana (signed by the installation)",)
    late = IN_AIRFLOW.model_copy(update={"account": "airflow:bo"}).signed(case.run.launch_id, old)
    entry = case.ledger.note("review", CONFIG.population, case.run.launch_id, stage_of(late), late.model_dump())
    (check,) = answer_checks(CONFIG, case.run, case.ledger)
    assert check.detail.startswith(f"entry {entry.seq} is no answer of a reviewer: the installation's key")


PUBLIC = key_of("ana").public_key.keyval["public"]


P = 2**255 - 19


def encoded(y: int, sign: int = 0) -> str:
    return (y | sign << 255).to_bytes(32, "little").hex()


# The eight points of small order, in all their encodings (Chalkias et al. 2020, *Taming the many EdDSAs*), and others.
SMALL = [encoded(y, sign) for y in (0, 1, P - 1, P, P + 1) for sign in (0, 1)]
SMALL += ["c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"]
SMALL += ["c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"]
SMALL += ["26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"]
SMALL += ["26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"]
OFF_CURVE = [encoded(2), encoded(7)]
# A key, whose other spellings are none.
WHOLE = "9b32dc09316dc2f16e2062d5c3be49666e3e96b1ac61887836b9d69be63a0af6"
NOT_CANONICAL = [encoded(P + number) for number in range(2, 19)]


@pytest.mark.parametrize("public", [*SMALL, *OFF_CURVE, *NOT_CANONICAL, WHOLE.upper(), f"{WHOLE}\n", ""])
def test_a_key_that_anyone_could_sign_for_is_no_reviewer_s(settings: Settings, public: str):
    ledger = registered(PrivacyLedger.of(settings), "people")
    with pytest.raises(LedgerConflict, match="is no Ed25519 public key"):
        ledger.register_reviewer("people", "ana", public, OWNER)
    # Written past the command, it registers nothing.
    ledger.note("reviewer", "people", "", "people 1", {"account": "ana", "public": public, "by": OWNER})
    assert ledger.answer_keys("people").registration("ana") is None


def test_a_key_with_a_part_of_small_order_is_refused_and_every_honest_key_is_taken():
    for number in range(20):
        honest = key_of(f"reviewer {number}").public_key.keyval["public"]
        assert is_key(honest)
        raw = int.from_bytes(bytes.fromhex(honest), "little")
        assert not is_key(encoded(P - (raw & 2**255 - 1), 1 - (raw >> 255))), "the same point plus that of order 2"


def test_only_who_may_raise_the_budget_registers_reviewers_of_people(settings: Settings):
    ledger = PrivacyLedger.of(settings)
    with pytest.raises(PopulationUnknown):
        ledger.register_reviewer("people", "ana", PUBLIC, OWNER)
    registered(ledger, "people")
    with pytest.raises(LedgerConflict, match=f"may be registered by {OWNER}, not by ana"):
        ledger.register_reviewer("people", "ana", PUBLIC, "ana")
    with pytest.raises(LedgerConflict, match="is no Ed25519 public key of 64 digits"):
        ledger.register_reviewer("people", "ana", PUBLIC[1:], OWNER)
    with pytest.raises(LedgerConflict, match="is no account's name"):
        ledger.register_reviewer("people", "\u0430na", PUBLIC, OWNER)
    made = ledger.register_reviewer("people", "ana", PUBLIC, OWNER)
    assert ledger.register_reviewer("people", "ana", PUBLIC, OWNER) == made, "repeated, it is free"
    with pytest.raises(LedgerConflict, match="is the key of ana; each reviewer has a key of their own"):
        ledger.register_reviewer("people", "bo", PUBLIC, OWNER)
    ledger.register_reviewer("people", "ana", key_of("ana later").public_key.keyval["public"], OWNER)
    with pytest.raises(LedgerConflict, match="is an earlier key of ana"):
        ledger.register_reviewer("people", "ana", PUBLIC, OWNER)


def test_a_registration_by_an_account_that_may_not_counts_for_nothing(settings: Settings):
    ledger = registered(PrivacyLedger.of(settings), "people")
    ledger.note("reviewer", "people", "", "people 1", {"account": "ana", "public": PUBLIC, "by": "eve"})
    assert ledger.answer_keys("people").registration("ana") is None
    ledger.note("reviewer", "people", "", "people 2", {"account": "ana", "public": "no key", "by": OWNER})
    assert ledger.answer_keys("people").registration("ana") is None


def test_a_key_of_another_population_signs_nothing(settings: Settings):
    ledger = registered(PrivacyLedger.of(settings), "people", "others")
    ledger.register_reviewer("others", "ana", PUBLIC, OWNER)
    assert ledger.answer_keys("people").registration("ana") is None


@pytest.mark.slow
def test_a_reviewer_of_people_without_a_registered_key_is_told_before_anything_else(settings: Settings, tmp_path: Path):
    registered(PrivacyLedger.of(settings), "people")
    me = account()
    concerns = ("Words have a loss of 80.",)
    case = Case(settings, launch_config(reviewers=[me], private_text=FILES), concerns=concerns)
    here = replace(settings, review_key=tmp_path / "own" / "review.pem")

    def approve(*accept: int) -> str:
        return answer_review(case.config, case.run, here, me, "approve", reason="read it", accept=accept).state

    with pytest.raises(KeyUnusable, match=r"TACIT_REVIEW_KEY.*tacit ledger key"):
        approve()
    public = keys.make_reviewer(here.review_key).public_key.keyval["public"]
    assert here.review_key.stat().st_mode & 0o777 == 0o600
    assert keys.make_reviewer(here.review_key).public_key.keyval["public"] == public, "made once"
    with pytest.raises(ReleaseRefused, match=rf"has no key .* tacit ledger reviewer people {me} --key {public}"):
        approve()
    case.ledger.register_reviewer("people", me, PUBLIC, OWNER)
    with pytest.raises(ReleaseRefused, match=f"has another key \\({PUBLIC[:16]}\\)"):
        approve()
    case.ledger.register_reviewer("people", me, public, OWNER)
    with pytest.raises(ValueError, match="1 of 1 main concerns"):
        approve()
    assert approve(1) == "approved"
    assert [check.passed for check in answer_checks(case.config, case.run, case.ledger)] == [True]


def test_a_reviewer_s_key_is_made_and_registered_by_command(settings: Settings):
    ledger, me = PrivacyLedger.of(settings), account()
    ledger.register("people", budget(max_rho=1.0), me)
    said = answered(settings.home, "ledger", "key")
    assert said == {"account": me, "file": str(settings.home / "review.pem"), "public": said["public"]}
    answered(settings.home, "ledger", "reviewer", "people", me)
    answered(settings.home, "ledger", "reviewer", "people", "ana", "--key", PUBLIC)
    registrations = [ledger.answer_keys("people").registration(name) for name in (me, "ana")]
    assert [entry.names("public") for entry in registrations if entry] == [said["public"], PUBLIC]
    refused = answered(settings.home, "ledger", "reviewer", "people", "bo", code=65)
    assert refused["error"].startswith("--key: missing")


@pytest.mark.parametrize(
    ("content", "why"), [(b"no key", "damaged, or no private key"), (None, "a key of type ecdsa; reviewers sign")]
)
def test_a_file_that_is_no_reviewer_s_key_is_refused(
    tmp_path: Path, settings: Settings, content: bytes | None, why: str
):
    path = tmp_path / "review.pem"
    write_bytes(path, content or (settings.keys_dir / "model-1.pem").read_bytes(), mode=PRIVATE)
    with pytest.raises(KeyUnusable, match=why):
        keys.reviewer(path)


def test_answers_of_two_accounts_are_each_their_own(case: Case):
    for given in (YES, IN_AIRFLOW.model_copy(update={"account": "airflow:bo"})):
        made = signed(case.settings, CONFIG.population, case.run.launch_id, given)
        case.ledger.note("review", CONFIG.population, case.run.launch_id, stage_of(made), made.model_dump())
    (check,) = answer_checks(CONFIG, case.run, case.ledger)
    assert (check.passed, case.now.approvers) == (True, ("os:ana", "airflow:bo (signed by the installation)"))
    assert check.detail.endswith(": os:ana, airflow:bo (signed by the installation)")
