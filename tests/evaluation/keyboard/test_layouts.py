"""Keyboards, common random numbers and traits."""

import string

import numpy as np
import pytest
from scipy import stats

from evaluation.keyboard import layouts as geometry
from evaluation.keyboard import randomness, typist


def place(keys: geometry.Keyboard, character: str) -> tuple[float, float, bool]:
    number = keys.index[character]
    return keys.x_A[number], keys.y_A[number], bool(keys.held_A[number])


def test_layouts_differ_by_locale() -> None:
    english, french, german, spanish = (
        geometry.keyboard(locale, "") for locale in ("en-US", "fr-FR", "de-DE", "es-MX")
    )
    assert place(english, "q") == (0.5, 0.5, False)
    assert place(french, "a") == (0.5, 0.5, False)
    assert place(english, "a") == (1.0, 1.5, False)
    assert place(german, "z")[0] == place(german, "t")[0] + 1
    assert place(german, "y")[1] == 2.5
    assert place(spanish, "ñ") == (9.5, 1.5, False)
    assert "ñ" not in english.index
    # The apostrophe has a key in French only.
    assert place(french, "'")[2] is False


@pytest.mark.parametrize("locale", ["en-US", "es-ES", "pt-BR", "fr-FR", "de-DE", "it-IT", "tr-TR", "sv-SE"])
def test_every_letter_has_a_key_and_no_two_keys_overlap(locale: str) -> None:
    keys = geometry.keyboard(locale, string.ascii_lowercase + "áéíóúâêôãõçàèùüñœß'-")
    assert keys.x_A.max() < 12, "a character was left on no page"
    centres = {(x, y) for x, y, held in zip(keys.x_A, keys.y_A, keys.held_A, strict=True) if not held}
    assert len(centres) == int(np.sum(~keys.held_A))
    assert centres == {(x, y) for x, y in zip(keys.x_A, keys.y_A, strict=True)}
    base = {"é": "e", "ç": "c", "ã": "a"}
    for accent, letter in base.items():
        if place(keys, accent)[2]:
            assert place(keys, accent)[:2] == place(keys, letter)[:2]


def test_what_has_no_keyboard_is_refused_with_the_fix() -> None:
    assert geometry.has_keyboard("pt-BR")
    assert not geometry.has_keyboard("ru-RU")
    with pytest.raises(ValueError, match=r"no keyboard for 'ru-RU' \(script Cyrl\).*session_words to 0"):
        geometry.keyboard("ru-RU", "")
    with pytest.raises(ValueError, match=r"no key for \['ж'\]"):
        geometry.keyboard("en-US", "").spell("жa")
    far = geometry.keyboard("en-US", "жщ")
    assert min(place(far, "ж")[0], place(far, "щ")[0]) > 50
    assert place(far, "ж") != place(far, "щ")


@pytest.mark.statistical
def test_common_random_numbers_are_uniform_independent_and_named() -> None:
    rows, columns = np.arange(300)[:, None], np.arange(300)[None]
    drawn = randomness.uniform(7, "x", rows, columns)
    assert drawn.shape == (300, 300)
    assert 0 < drawn.min() < drawn.max() < 1
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 0.01
    for other in (np.roll(drawn, 1, 0), np.roll(drawn, 1, 1), drawn.T, randomness.uniform(7, "y", rows, columns)):
        kept = ~np.eye(300, dtype=bool)
        assert abs(np.corrcoef(drawn[kept], other[kept])[0, 1]) < 4 / 300
    assert stats.kstest(randomness.normal(7, "x", rows, columns).ravel(), "norm").pvalue > 0.01
    # The same check refuses a normal of another width.
    assert stats.kstest(1.03 * randomness.normal(7, "x", rows, columns).ravel(), "norm").pvalue < 0.01
    assert randomness.uniform(7, "x", 3, 5) == drawn[3, 5]
    assert randomness.uniform(8, "x", 3, 5) != drawn[3, 5]


def test_a_device_keeps_its_traits_when_others_come() -> None:
    few, many = (typist.draw(typist.MEDIAN, devices, 3) for devices in (5, 400))
    np.testing.assert_array_equal(few.touch_std, many.touch_std[:5])
    np.testing.assert_array_equal(few.offset_x, many.offset_x[:5])
    assert np.median(many.look) == pytest.approx(typist.MEDIAN.look, abs=0.05)
    assert np.median(many.key_seconds) == pytest.approx(typist.MEDIAN.key_seconds, rel=0.05)
    assert np.std(np.log(many.touch_std)) == pytest.approx(0.2, rel=0.15)
    assert len({calibration.name for calibration in typist.CALIBRATIONS}) == 3


def test_a_key_does_not_depend_on_what_else_is_typed() -> None:
    """Under a budget a device moves its own counts alone, so its characters move no key of another device."""
    alone, together = (geometry.keyboard("en-US", characters) for characters in ("1é", "0123é🙂ñ"))
    for character in alone.characters:
        assert place(alone, character) == place(together, character)
    assert len({*zip(together.x_A, together.y_A, strict=True)}) == len(together.characters) - 2, "é and ñ are held"
