"""A finished launch that tests of one session share."""

from dataclasses import dataclass
from pathlib import Path

from tests.golden.facts import Fact


@dataclass(frozen=True)
class Launched:
    """A finished launch, its folder, and everything comparable about it. Tests copy what they change."""

    home: Path
    run: Path
    found: dict[str, Fact]
