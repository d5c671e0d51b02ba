"""Draws of tests: the same in every run and in any order, and for each test and each fixture its own.

The key of a launch's noise decides which words are found and, where an audit errs one time in a hundred, whether the
launch is held. Drawn anew in every run, some test of thousands would fail by chance; drawn alike, what fails fails
again, and what passes passed by these keys and will. Where a process of a test's own draws, ``keyed`` draws before it.
``pytest --draw 7`` draws others: a test that passes by one key and not by another fails by chance.

Used in Airflow's environment too: no import of this project.
"""

import contextlib
import hashlib
import itertools
import os
import secrets
import sys
from collections.abc import Iterator

import pytest

_of_the_system, _process = secrets.token_bytes, os.getpid()
_draws: Iterator[str] = (f"before any test|{number}" for number in itertools.count())


def _token_bytes(nbytes: int | None = None) -> bytes:
    if os.getpid() != _process:
        return _of_the_system(nbytes)  # forks of one process would draw alike
    return hashlib.shake_256(next(_draws).encode()).digest(secrets.DEFAULT_ENTROPY if nbytes is None else nbytes)


secrets.token_bytes = _token_bytes
with contextlib.suppress(ModuleNotFoundError):  # Airflow's environment has none
    from hypothesis import settings

    settings.load_profile("ci")  # the same examples in every run, however long one takes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draw", type=int, default=0, help="draw keys, salts and first weights anew, by this number")


@contextlib.contextmanager
def _drawing_for(name: str, config: pytest.Config) -> Iterator[None]:
    global _draws
    draw = config.getoption("draw")
    named = f"{name}|{draw}" if draw else name
    outside, _draws = _draws, (f"{named}|{number}" for number in itertools.count())
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(draw)  # weights of a model that says no seed
    try:
        yield
    finally:
        _draws = outside


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[None]:
    """Whichever test is the first to ask for it."""
    with _drawing_for(f"{fixturedef.baseid}|{fixturedef.argname}|{getattr(request, 'param', '')}", request.config):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _drawing_for(item.nodeid, item.config):
        return (yield)
