"""The locks hold for every patch version of the Python that README names, which may be any that a machine has."""

import functools
import re
import tomllib
from importlib import metadata

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.helpers.launches.checkout import ROOT

PYTHON = "3.11"
# No minor version of Python has had as many.
PATCHES = range(30)


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.lock").read_text().splitlines()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def installed(environment: str) -> list[metadata.Distribution]:
    site_packages = ROOT / ".venv" / environment / "lib" / f"python{PYTHON}" / "site-packages"
    if not site_packages.is_dir():
        pytest.skip(f"make setup has not installed the environment {environment}")
    return list(metadata.distributions(path=[str(site_packages)]))


def unmet(distributions: list[metadata.Distribution], locked: dict[str, str], patch: int) -> list[str]:
    """Requirements of locked packages, with the extras that others ask of them, that no locked package meets."""
    python = f"{PYTHON}.{patch}"
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
    environment = {**default_environment(), "python_full_version": python, "python_version": PYTHON, "extra": extra}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def test_readme_the_project_and_make_name_one_python():
    assert f"Both need Python {PYTHON}, pip and make" in (ROOT / "README.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11,<3.12"
    assert re.findall(r"--python-version (\S+)", (ROOT / "Makefile").read_text()) == [f"{PYTHON}.0"]


@pytest.mark.parametrize("environment", ["airflow", "stages"])
def test_locked_packages_need_nothing_that_is_not_locked_under_any_patch_version(environment):
    distributions, locked = installed(environment), pins(environment)
    if environment == "stages":
        locked |= pins("check") | pins("cuda")
    names = {canonicalize_name(each.metadata["Name"]) for each in distributions}
    assert pins(environment).keys() <= names
    assert {patch: unmet(distributions, locked, patch) for patch in PATCHES} == {patch: [] for patch in PATCHES}


@pytest.mark.parametrize("environment", ["airflow", "stages"])
def test_a_package_that_a_lock_lacks_is_noticed(environment):
    distributions, locked = installed(environment), pins(environment) | pins("check") | pins("cuda")
    name = {"airflow": "async-timeout", "stages": "typing-extensions"}[environment]
    del locked[name]
    problems = unmet(distributions, locked, 2)
    assert problems
    assert all(name in line.lower().replace("_", "-") for line in problems), problems
    if environment == "airflow":  # redis needs it up to 3.11.2 alone
        assert not unmet(distributions, locked, 3)
