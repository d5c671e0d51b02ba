"""Private stages in small, on a text of their own."""

from pathlib import Path

import pytest

from tests.helpers.launches.private_stages import Private


@pytest.fixture
def private(tmp_path: Path) -> Private:
    text = tmp_path / "people.txt"
    text.write_text("what people typed", encoding="utf-8")
    return Private(text)
