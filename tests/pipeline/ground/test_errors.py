"""Exit codes carry the retry decision."""

import errno
import sqlite3

import pytest
from pydantic import ValidationError

from pipeline.ground import errors
from pipeline.launch.config import LaunchConfig


def leaves(base: type[errors.LaunchError]) -> list[type[errors.LaunchError]]:
    """Every error class below ``base``."""
    found = []
    for child in base.__subclasses__():
        found += [child, *leaves(child)]
    return found


@pytest.mark.parametrize("kind", leaves(errors.PermanentError))
def test_permanent_ones_are_not_retried(kind: type[errors.LaunchError]):
    assert errors.exit_code(kind("x")) == 65


@pytest.mark.parametrize("kind", leaves(errors.TemporaryError))
def test_temporary_ones_are(kind: type[errors.LaunchError]):
    assert errors.exit_code(kind("x")) == 75


def test_evidence_against_a_running_launch_holds_it():
    assert errors.exit_code(errors.LaunchHeld("x")) == errors.HELD == 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("x"), 65),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "x"), 65),
        (ArithmeticError("x"), 65),
        (ZeroDivisionError("x"), 65),
        (OSError("disk"), 75),
        (ConnectionRefusedError("x"), 75),
        (TimeoutError("x"), 75),
        (MemoryError(), 75),
        (OSError(errno.EROFS, "x"), 65),
        (KeyError("x"), None),
        (AssertionError("x"), None),
        (TypeError("x"), None),
        (sqlite3.OperationalError("x"), None),  # the ledger turns it into ServiceUnavailable
        (KeyboardInterrupt(), None),
    ],
)
def test_other_errors(error: BaseException, code: int | None):
    assert errors.exit_code(error) == code


def test_a_wrong_configuration_is_permanent():
    with pytest.raises(ValidationError) as failed:
        LaunchConfig.model_validate({})
    assert errors.exit_code(failed.value) == 65


def test_the_drawn_tree_names_every_class():
    drawn = errors.__doc__ or ""
    own = [kind.__name__ for kind in leaves(errors.LaunchError) if kind.__module__ == errors.__name__]
    assert [name for name in own if name not in drawn] == []
