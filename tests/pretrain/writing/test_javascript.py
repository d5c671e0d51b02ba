"""Patterns for a browser. That they cut text alike is tested in one (``tests/browser/test_keyboard.py``)."""

import pytest
import regex

from pretrain.text.tokenise import for_browsers
from pretrain.writing.javascript import translate


@pytest.mark.parametrize(
    ("pattern", "flags", "expected"),
    [
        (r"a b # c", 0, "a b # c"),
        (r"a b # c", regex.VERBOSE, "ab"),
        (r"[a b\#]\ \#", regex.VERBOSE, "[a b#] #"),
        (r"(?i:com|www)\.", 0, r"(?:com|www)\."),
        (r"\U0001f3f4[\U000e0020-\U000e007e]", 0, r"\u{1f3f4}[\u{e0020}-\u{e007e}]"),
        (r"['\-\u00b7\"/]\-", 0, r"""['\-\u00b7"/]-"""),
        (r"x*+y", 0, r"(?=(?<k1>x*))\k<k1>y"),
        (r"(?:ab?+){1,3}+", 0, r"(?=(?<k2>(?:a(?=(?<k1>b?))\k<k1>){1,3}))\k<k2>"),
        (r"x*?y??z{2}", 0, "x*?y??z{2}"),
        (r"(?:on)(*SKIP)(*FAIL)|(?<!a)off(?=b)", 0, "(?:on)(?<passed>)|(?<!a)off(?=b)"),
        (r"\p{L}+\S", 0, r"\p{L}+\S"),
    ],
)
def test_translation(pattern: str, flags: int, expected: str) -> None:
    assert translate(regex.compile(pattern, flags)) == expected


@pytest.mark.parametrize("locale", ["en-US", "fr-FR", "el-GR", "tr-TR"])
def test_nothing_is_left_that_javascript_does_not_know(locale: str) -> None:
    for source in for_browsers(locale)["patterns"].values():
        assert not regex.search(r"(?<!\\)(?:\\\\)*(?:[*+?]\+|[0-9]\}\+|\\[wbU]|\(\*|\(\?i)", source)
