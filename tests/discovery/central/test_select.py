"""A central discovery from devices to words."""

from pathlib import Path

import numpy as np
import pytest

from discovery.central import weighted_gaussian
from discovery.central.contributions import Shard, add_to, shards_of
from discovery.central.select import FILLED_SHARE, FORMS_SHARE, cut_of, discover, require_devices, select
from discovery.config import FAILURE_SHARE, CentralConfig
from discovery.device.typed import TypedWords
from pretrain.randomness import noise

KEY, KNOWN = bytes(range(32)), frozenset({"the"})
CONFIG = CentralConfig(kind="central", noise_multiplier=2.0, words_per_device=4, delta=1e-6)


def devices(count: int = 900) -> TypedWords:
    rng = np.random.default_rng(0)
    return TypedWords.gather(
        [["the", f"own{number}", *rng.choice(["haha", "Lol", "c'mon", "gr8"], 2).tolist()] for number in range(count)]
    )


def test_finds_what_many_type_with_its_share_and_nothing_that_one_types(tmp_path: Path) -> None:
    found = discover(devices(), known_words=KNOWN, config=CONFIG, key=KEY, directory=tmp_path / "d")
    assert {word.word for word in found.words} == {"haha", "Lol", "c'mon", "gr8"}
    # Devices hold two or three words, so each weighs 3^-0.5 for six of sixteen devices and 2^-0.5 for one, of
    # 12 * 3^0.5 and 4 * 2^0.5.
    for word in found.words:
        assert 0 < word.low < word.share < word.high < 1
        assert word.share == pytest.approx((6 * 3**-0.5 + 2**-0.5) / (12 * 3**0.5 + 4 * 2**0.5), rel=0.2)
    noise_multiplier = 2 / (1 - FORMS_SHARE - FILLED_SHARE) ** 0.5
    assert found.threshold == weighted_gaussian.threshold(noise_multiplier, 4, FAILURE_SHARE * 1e-6)


def test_a_share_does_not_depend_on_how_many_words_devices_may_tell() -> None:
    few, many = (
        select(lambda: [Shard(0, devices())], 900, KNOWN, CONFIG.model_copy(update={"words_per_device": most}), KEY)
        for most in (3, 40)
    )
    shares = {word.word: word.share for word in few.words}
    assert len(shares) == 4
    assert {word.word: word.share for word in many.words} == pytest.approx(shares, rel=0.2)


def test_shards_change_nothing() -> None:
    typed = TypedWords.gather([[*devices(90).of(row), *(f"{row // 9}.{n}" for n in range(20))] for row in range(90)])
    changed = {"noise_multiplier": 0.3, "words_per_device": 22}
    config = CONFIG.model_copy(update=changed)
    whole = select(lambda: [Shard(0, typed)], 90, KNOWN, config, KEY)
    assert whole.words
    for size in (1, 7, 89):
        shards = list(shards_of(typed, size))
        assert select(lambda shards=shards: shards, 90, KNOWN, config, KEY) == whole
        assert select(lambda shards=shards: shards[::-1], 90, KNOWN, config, KEY) == whole


def test_words_cost_what_forms_and_filled_places_leave() -> None:
    cut, rest = cut_of(CONFIG), 1 - FORMS_SHARE - FILLED_SHARE
    assert 1 / (2 * cut.noise_multiplier**2) == pytest.approx(rest * CONFIG.rho)
    assert cut.threshold == weighted_gaussian.threshold(cut.noise_multiplier, 4, CONFIG.failure)


def test_each_release_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, gaussian = [], noise.gaussian
    monkeypatch.setattr(noise, "gaussian", lambda *which: drawn.append(which[:3]) or gaussian(*which))
    select(lambda: [Shard(0, devices(60))], 60, KNOWN, CONFIG, KEY)
    assert len(drawn) == len(set(drawn)) == 3  # of words, of forms and of filled places


def test_sums_leave_out_what_nobody_contributes() -> None:
    total: dict[str, int] = {}
    for _ in range(3):
        add_to(total, ("a", "b", "c"), np.array([1, 0, 2]))
    assert total == {"a": 3, "c": 6}


def test_another_discovery_s_folder_is_refused(tmp_path: Path) -> None:
    first = discover(devices(60), known_words=KNOWN, config=CONFIG, key=KEY, directory=tmp_path / "d")
    assert discover(devices(60), known_words=KNOWN, config=CONFIG, key=KEY, directory=tmp_path / "d") == first
    for change in ({"noise_multiplier": 2.1}, {"words_per_device": 5}, {"delta": 1e-5}):
        other = CONFIG.model_copy(update=change)
        with pytest.raises(ValueError, match="new launch"):
            discover(devices(60), known_words=KNOWN, config=other, key=KEY, directory=tmp_path / "d")
    with pytest.raises(ValueError, match="new launch"):
        discover(devices(61), known_words=KNOWN, config=CONFIG, key=KEY, directory=tmp_path / "d")


def test_a_retry_that_divides_rho_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise under another multiplier: the difference of the two releases would be noise alone."""
    discover(devices(60), known_words=KNOWN, config=CONFIG, key=KEY, directory=tmp_path / "d")
    monkeypatch.setattr("discovery.central.select.FILLED_SHARE", 0.03)
    with pytest.raises(ValueError, match="new launch"):
        discover(devices(60), known_words=KNOWN, config=CONFIG, key=KEY, directory=tmp_path / "d")


def test_more_devices_than_a_sum_holds_are_refused() -> None:
    require_devices(weighted_gaussian.MOST_DEVICES)
    with pytest.raises(ValueError, match="overflow"):
        require_devices(weighted_gaussian.MOST_DEVICES + 1)


@pytest.mark.statistical
def test_intervals_hold_the_weight_without_noise() -> None:
    """Of words near the threshold, chosen for their noise, no more than 2.5% may lie outside on either side."""
    config = CONFIG.model_copy(update={"noise_multiplier": 0.5, "words_per_device": 1})
    least = int(weighted_gaussian.threshold(0.5, 1, config.failure))
    typed = TypedWords.gather([[f"w{n}"] for n in range(4_000) for _ in range(least + n % 3)])
    found = select(lambda: [Shard(0, typed)], len(typed), frozenset(), config, KEY).words
    places = len(typed) // 10 * 10
    true = [(least + int(word.word[1:]) % 3) / places for word in found]
    below = sum(share < word.low * 0.999 for word, share in zip(found, true, strict=True))
    above = sum(share > word.high * 1.001 for word, share in zip(found, true, strict=True))
    assert len(found) > 800
    assert below <= 0.035 * len(found)
    assert above <= 0.035 * len(found)
