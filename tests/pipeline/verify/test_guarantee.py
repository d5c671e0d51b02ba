"""The one number is derived again from what layers and releases show, and any other one is no proof."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.releases.counts import counts
from pipeline.releases.local_words import certified, words_of
from pipeline.releases.total import total
from pipeline.verify.guarantee import whole
from reports.disclosure.total import Total
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.reports.reports_example import COUNTS, LOCAL_WORDS, discovered, example, guarantee_of

WORDS = discovered((20_000, 30))
CONFIG = launch_config(
    counts={"noise_multiplier": 2.0, "model": "start-mixture"},
    discovery={"epsilon0": 2.0, "messages_per_device": 3},
)


def derived(words: dict = WORDS, certificate: float | None = None) -> tuple[dict, Total]:
    """Words with a certificate, by default that of their layers, and the total of a launch that ships counts."""
    stated = words | {"device_epsilon_central": certified(words) if certificate is None else certificate}
    return stated, total(CONFIG, {"discover": words_of(stated), "count": counts(0.125, 1e-6)})


def checked(tmp_path: Path, stated: dict, said: Total, words: dict = WORDS) -> dict[str, bool | None]:
    """What verifying says of the launch, by check; its disclosure states this total."""
    report = tmp_path / "public" / "report"
    report.mkdir(parents=True)
    names = ("epsilon0", "messages_per_device", "device_level_epsilon0", "device_epsilon_central", "epsilon_clones")
    low = {"epsilon_central": 0.001, "epsilon_attack": 0.001}
    made = [LOCAL_WORDS | low | {name: stated[name] for name in names}, COUNTS | {"rho": 0.125}]
    accounting = guarantee_of(*made) | {"total": said.model_dump()}
    text = example(accounting=accounting, releases=made).model_dump_json()
    (report / "disclosure.json").write_text(text, encoding="utf-8")
    records = {name: SimpleNamespace(result=words) for name in ("fine_tune", "plan", "discover")}
    return {check.id: check.passed for check in whole(CONFIG, SimpleNamespace(path=tmp_path), records)}  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_one_number_is_derived_again(tmp_path: Path) -> None:
    checks = checked(tmp_path, *derived())
    assert (checks["one_number"], checks["local_words asked"]) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_another_number_of_words_is_noticed(tmp_path: Path, factor: float) -> None:
    assert checked(tmp_path, *derived(certificate=factor * certified(WORDS)))["one_number"] is False


@pytest.mark.slow
def test_layers_that_say_less_and_devices_that_were_taken_for_honest_are_noticed(tmp_path: Path) -> None:
    few = discovered((20, 30))
    assert checked(tmp_path / "few", *derived(), words=few)["one_number"] is False
    trusting = discovered((20_000, 30), honest_share=1.0)
    checks = checked(tmp_path / "trusting", *derived(trusting), words=trusting)
    assert (checks["one_number"], checks["local_words asked"]) == (True, False)
