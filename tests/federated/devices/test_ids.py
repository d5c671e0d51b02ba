"""One person is one device, under any spelling of an id: in the store, in the ledger and in withdrawals."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federated.devices.ids import normal_form, require_distinct
from federated.devices.store import build_store
from federated.devices.withdrawals import Withdrawals
from tests.federated.devices.built import build, config

UUID = str(uuid.uuid5(uuid.NAMESPACE_DNS, "person"))
SPELLINGS: dict[str, tuple[str, str]] = {
    "case of a UUID": (UUID, UUID.upper()),
    "hyphens": (UUID, UUID.replace("-", "")),
    "braces": (UUID, f"{{{UUID.upper()}}}"),
    "brackets": (UUID, f"({UUID})"),
    "urn": (UUID, f"urn:uuid:{UUID}"),
    "URN": (UUID, f"URN:UUID:{UUID.upper()}"),
    "a number that became a fraction": ("12", "12.0"),
    "a number with two digits behind": ("12", "12.00"),
    "spaces": ("device-1", " device-1 "),
    "a line break": ("device-1", "device-1\r\n"),
    "a space that never breaks": ("device-1", "device-1\u00a0"),
    "case": ("device-ab", "Device-AB"),
    "case of more letters": ("straße", "STRASSE"),
    "NFC": ("jos\u00e9", "jose\u0301"),
    "NFKC": ("office", "o\ufb03ce"),
    "full-width digits": ("2024", "\uff12\uff10\uff12\uff14"),
    "other digits": ("2024", "\u0662\u0660\u0662\u0664"),
    "zero width": ("device-1", "dev\u200bice-1"),
    "a byte order mark": ("device-1", "\ufeffdevice-1"),
    "a direction mark": ("device-1", "device-1\u200e"),
    "padding by zeros": ("device-1", "device-1\0\0"),
    "a soft hyphen": ("device-1", "device\u00ad-1"),
}


@pytest.mark.parametrize(("one", "other"), SPELLINGS.values(), ids=SPELLINGS)
def test_spellings_of_one_id(one: str, other: str, tmp_path: Path) -> None:
    assert normal_form(one) == normal_form(other)
    rows = [{"client_id": each, "text": "hello you"} for each in (one, other, "somebody")]
    with pytest.raises(ValueError, match=r"fewer than ten devices .* another spelling") as refused:
        build(tmp_path, rows)
    assert "somebody" not in str(refused.value)
    assert one not in str(refused.value)
    gone = Withdrawals("5a" * 32, frozenset((NOBODY_KEYED.hashed(one),)))
    assert gone.has(other)
    assert not gone.has("somebody")


NOBODY_KEYED = Withdrawals("5a" * 32, frozenset())


@pytest.mark.parametrize(
    "pair", [("12", "12.5"), ("12", "120"), ("a1", "a2"), ("12.0a", "12a"), ("0x12", "12"), ("1", "01")]
)
def test_other_ids_are_other_devices(pair: tuple[str, str]) -> None:
    require_distinct(pair, "field", case_sensitive=False)


def test_short_ids_of_base_62_may_be_declared() -> None:
    with pytest.raises(ValueError, match="--case-sensitive-ids"):
        require_distinct(("aB3", "Ab3"), "field", case_sensitive=False)
    require_distinct(("aB3", "Ab3"), "field", case_sensitive=True)
    for one, other in ((UUID, UUID.upper()), ("aB", " aB "), ("12", "12.0"), ("jos\u00e9", "jose\u0301")):
        with pytest.raises(ValueError, match="another spelling"):
            require_distinct((one, other), "field", case_sensitive=True)


def test_a_declared_population_withdraws_one_of_them() -> None:
    keyed = Withdrawals("5a" * 32, frozenset(), case_sensitive_ids=True)
    gone = Withdrawals(keyed.key, frozenset((keyed.hashed("aB3"),)), case_sensitive_ids=True)
    assert gone.has(" aB3")
    assert not gone.has("Ab3")


def test_a_store_of_a_declared_population(tmp_path: Path) -> None:
    (tmp_path / "typed.jsonl").write_text(
        "".join(f'{{"client_id": "{each}", "text": "hi"}}\n' for each in ("aB3", "Ab3"))
    )
    population = config(paths=[str(tmp_path / "typed.jsonl")])
    with pytest.raises(ValueError, match="another spelling"):
        build_store(population, "en-US", 1, tmp_path / "one")
    build_store(population, "en-US", 1, tmp_path / "two", withdrawn=Withdrawals("5a" * 32, frozenset(), True))


@pytest.mark.parametrize(
    ("again", "said"), [(1, "fewer than ten"), (9, "fewer than ten"), (10, r"10\+"), (129, r"120\+")]
)
def test_the_count_leaves_in_tens(again: int, said: str) -> None:
    ids = [f"d{number}" for number in range(200)] + [f"D{number}" for number in range(again)]
    with pytest.raises(ValueError, match=rf"^field: {said} devices "):
        require_distinct(ids, "field", case_sensitive=False)


@given(st.text(max_size=40), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_normal_form_is_its_own(text: str, case_sensitive: bool) -> None:
    form = normal_form(text, case_sensitive=case_sensitive)
    assert normal_form(form, case_sensitive=case_sensitive) == form


@pytest.mark.slow
@pytest.mark.parametrize("spell", [str, lambda number: str(uuid.UUID(int=number)).upper()], ids=["plain", "uuid"])
def test_a_million_ids_take_seconds(spell: Callable[[int], str]) -> None:
    ids = [spell(number) for number in range(300_000)]
    began = time.process_time()
    require_distinct(ids, "field", case_sensitive=False)
    assert time.process_time() - began < 5
