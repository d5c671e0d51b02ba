"""Language tags in one form, however systems and keyboards write them."""

import langcodes
import pytest

from pretrain.text.tags import canonical

# Written -> canonical. Java's and POSIX' forms are those of java.util.Locale.toString and of setlocale(3).
FORMS = {
    "en-US": "en-US",
    "en_US": "en-US",
    "EN-us": "en-US",
    "en_US.UTF-8": "en-US",
    "en_US_POSIX": "en-US",
    "en_US_#u-mu-celsius": "en-US",
    "en-Latn-US": "en-US",
    "de_DE@euro": "de-DE",
    "de-DE-u-co-phonebk": "de-DE",
    "iw_IL": "he-IL",
    "in_ID": "id-ID",
    "tl_PH": "fil-PH",
    "pt-br": "pt-BR",
    "es-419": "es-419",
    "en_001": "en-001",
    "sr_RS_#Latn": "sr-Latn-RS",
    "sr-Cyrl-RS": "sr-RS",
    "zh_TW_#Hant": "zh-TW",
    "zh__#Hans": "zh",
    "hi-Latn": "hi-Latn",
}


@pytest.mark.parametrize("written", FORMS)
def test_a_tag_has_one_form(written: str) -> None:
    assert canonical(written) == FORMS[written]
    assert canonical(canonical(written)) == canonical(written)
    assert langcodes.tag_is_valid(canonical(written))


@pytest.mark.parametrize(
    "no_tag", ["", "english", "C", "zz-ZZ", "hello world, this is text", "und", "x" * 1_000, "é_É"]
)
def test_what_is_no_tag_stays(no_tag: str) -> None:
    assert canonical(no_tag) == no_tag
