"""The locks hold for every version of Python that README names, of which a machine may have any."""

import functools
import platform
import re
import tomllib
from importlib import metadata

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.helpers.launches.checkout import ROOT

PYTHONS = ("3.11", "3.12", "3.13")
# Packages name early patch versions, if any.
PATCHES = (*range(10), 29)


def pins(name: str, python: str) -> dict[str, str]:
    """Versions of a lock's packages under a version of Python."""
    lines = map(Requirement, (ROOT / "requirements" / f"{name}.lock").read_text().splitlines())
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in lines
        if applies(each, python, "")
    }


def installed(environment: str) -> list[metadata.Distribution]:
    site_packages = [str(each) for each in (ROOT / ".venv" / environment / "lib").glob("python3.*/site-packages")]
    if not site_packages:
        pytest.skip(f"make setup has not installed the environment {environment}")
    return list(metadata.distributions(path=site_packages))


def unmet(distributions: list[metadata.Distribution], locked: dict[str, str], python: str) -> list[str]:
    """Requirements of locked packages, with the extras that others ask of them, that no locked package meets."""
    metadata_of = {canonicalize_name(each.metadata["Name"]): each for each in distributions}
    extras: dict[str, set[str]] = {name: {""} for name in metadata_of}
    found, problems = True, set()
    while found:  # an extra that is found late may ask for further ones
        found = False
        for name in locked.keys() & metadata_of.keys():
            distribution = metadata_of[name]
            allowed = distribution.metadata.get("Requires-Python")
            if allowed and not SpecifierSet(allowed).contains(python):
                problems.add(f"{name}: needs Python {allowed}")
            for line in distribution.requires or ():
                requirement = parsed(line)
                if not any(applies(requirement, python, extra) for extra in extras[name]):
                    continue
                other = canonicalize_name(requirement.name)
                if other not in locked or not requirement.specifier.contains(locked[other], prereleases=True):
                    problems.add(f"{name}: {line}, locked is {locked.get(other)}")
                elif missing := requirement.extras - extras.get(other, requirement.extras):
                    extras[other] |= missing
                    found = True
    return sorted(problems)


parsed = functools.cache(Requirement)


@functools.cache
def applies(requirement: Requirement, python: str, extra: str) -> bool:
    minor = python.rpartition(".")[0]
    environment = {**default_environment(), "python_full_version": python, "python_version": minor, "extra": extra}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def test_readme_the_project_and_make_name_the_same_pythons():
    first, *others, last = PYTHONS
    assert f"Both need Python {', '.join((first, *others))} or {last}, pip and make" in (ROOT / "README.md").read_text()
    project, make = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"], (ROOT / "Makefile").read_text()
    allowed = SpecifierSet(project["requires-python"])
    assert [each for each in (f"3.{minor}" for minor in range(30)) if each in allowed] == [*PYTHONS]
    assert f"for name in {' '.join(f'python{each}' for each in PYTHONS)} python3 python" in make
    assert f"for python in {' '.join(PYTHONS)};" in make
    assert re.findall(r"--python-version (\S+)", make) == [f"{first}.0"]


def test_the_wheel_asks_for_what_was_run_or_later_and_for_exact_texts():
    locked = pins("stages", "3.11.0")
    for name, operator in (("tacit", ">="), ("text", "==")):
        lines = (ROOT / "requirements" / f"{name}.in").read_text().splitlines()
        asked = [Requirement(line.partition("#")[0]) for line in lines if not line.startswith("#")]
        for each in asked:
            run = locked[canonicalize_name(each.name)]
            assert run in each.specifier
            assert [Version(it.version) == Version(run) for it in each.specifier if it.operator == operator] == [True]
        assert {it.operator for each in asked for it in each.specifier} <= {operator, "!=", "<"}


@pytest.mark.parametrize("environment", ["airflow", "stages"])
@pytest.mark.parametrize("python", PYTHONS)
def test_locked_packages_need_nothing_that_is_not_locked_under_any_patch_version(environment, python):
    distributions, locked = installed(environment), pins(environment, f"{python}.0")
    for more in {"stages": ("check", "cuda"), "airflow": ("kubernetes",)}[environment]:
        locked |= pins(more, f"{python}.0")
    missing = {patch: unmet(distributions, locked, f"{python}.{patch}") for patch in PATCHES}
    assert missing == {patch: [] for patch in PATCHES}


@pytest.mark.parametrize("environment", ["airflow", "stages"])
def test_every_locked_package_is_installed(environment):
    names = {canonicalize_name(each.metadata["Name"]) for each in installed(environment)}
    assert pins(environment, platform.python_version()).keys() <= names


@pytest.mark.parametrize("environment", ["airflow", "stages"])
def test_a_package_that_a_lock_lacks_is_noticed(environment):
    distributions, old = installed(environment), "3.11.2"
    locked = pins(environment, old) | pins("check", old) | pins("cuda", old)
    name = {"airflow": "async-timeout", "stages": "typing-extensions"}[environment]
    del locked[name]
    problems = unmet(distributions, locked, old)
    assert problems
    assert all(name in line.lower().replace("_", "-") for line in problems), problems
    if environment == "airflow":  # redis needs it up to 3.11.2 alone
        assert not unmet(distributions, locked, "3.11.3")
