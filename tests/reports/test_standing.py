"""The picture of a launch's state says what it is given, and nothing of it becomes markup."""

from typing import get_args
from xml.etree import ElementTree

import pytest

from pipeline.publication.approvals import State
from reports.standing import badge


@pytest.mark.parametrize("state", get_args(State))
def test_every_state_has_a_picture(state: str) -> None:
    texts = [element.text for element in ElementTree.fromstring(badge(state, "by somebody, at some time")).iter()]
    assert texts.count(state) == 2  # the title too
    assert "by somebody, at some time" in texts


def test_other_people_s_words_stay_words() -> None:
    reason = 'no: </text><script>alert(1)</script> & "quoted"'
    first, second = [element.text or "" for element in ElementTree.fromstring(badge("rejected", reason)).iter()][-2:]
    assert f"{first} {second}" == reason


def test_a_long_reason_fits_a_phone_and_is_cut_after_nine_lines() -> None:
    picture = badge("held", "a gate that says why at length. " * 100)
    assert picture.count("<text") == 10
    assert 'width="320"' in picture
    assert " ...</text>" in picture
