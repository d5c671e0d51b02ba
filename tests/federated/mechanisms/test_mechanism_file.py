import json
from pathlib import Path

import numpy as np
import pytest

from federated.config.blt_presets import PRESETS
from federated.config.mechanism import BandedMechanism
from federated.mechanisms import Blt, Independent, Tree, build
from federated.mechanisms import mechanism_file as files
from federated.mechanisms.optimise_banded import optimise_banded

PRESET = PRESETS["min-sep-400"]
MECHANISMS = {
    "tree": Tree(7.1, (128, 1152)),
    "blt": Blt(7.379, PRESET.theta, PRESET.omega, (100,)),
    "banded": optimise_banded(12, 4, 3, 3, loss="model").strategy,
    "independent": Independent(1.1, "fixed", 0.25, 400),
}


@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_file_gives_back_every_digit(kind: str, tmp_path: Path) -> None:
    mechanism, path = MECHANISMS[kind], tmp_path / "mechanism.json"
    files.save(mechanism, path)
    again = files.load(path)
    assert type(again) is type(mechanism)
    assert again.noise_multiplier == mechanism.noise_multiplier
    assert again.sensitivity_squared(12, 4, 3) == mechanism.sensitivity_squared(12, 4, 3)
    if kind == "banded":
        assert np.array_equal(again.lags_NL, mechanism.lags_NL)
    else:
        assert again == mechanism


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("not JSON", "mechanism.json is not JSON"),
        ("[]", "kind is None"),
        ('{"kind": "forest"}', "'forest'; a mechanism file names one of tree, blt, banded, independent"),
        ('{"kind": "tree", "noise_multiplier": 7, "leaves": 3}', "do not fit kind 'tree'"),
        ('{"kind": "blt", "noise_multiplier": 7, "theta": [0.5], "omega": [2.0]}', "omega"),
        ('{"kind": "banded", "noise_multiplier": 7, "lags_NL": [[0.0, 0.0]]}', "lags"),
    ],
)
def test_what_is_not_a_mechanism_is_refused(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mechanism.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        files.load(path)


def test_a_banded_launch_is_the_optimised_strategy_with_its_own_noise() -> None:
    fields = {"kind": "banded", "bands": 3, "noise_multiplier": 2.5, "clip_norm": 1.0, "rounds": 12}
    fields |= {"report_goal": 5, "min_sep": 4, "max_participations": 3, "delta": 1e-6, "randomness": "seeded"}
    built = build(BandedMechanism.model_validate(fields))
    assert built.noise_multiplier == 2.5
    np.testing.assert_array_equal(built.lags_NL, MECHANISMS["banded"].lags_NL)
    with pytest.raises(ValueError, match="lower it to 4"):
        BandedMechanism.model_validate(fields | {"bands": 5})


def test_banded_noise_has_a_column_for_each_round_where_these_are_few() -> None:
    banded = {"kind": "banded", "bands": 3, "noise_multiplier": 2.5, "clip_norm": 1.0, "report_goal": 5, "min_sep": 4}
    banded |= {"max_participations": 3, "delta": 1e-6, "randomness": "seeded"}
    for rounds, form in ((2000, "matrix"), (2001, "toeplitz")):
        assert BandedMechanism.model_validate(banded | {"rounds": rounds}).form == form


def test_the_file_is_json_a_person_can_read(tmp_path: Path) -> None:
    files.save(MECHANISMS["tree"], tmp_path / "mechanism.json")
    assert json.loads((tmp_path / "mechanism.json").read_text()) == {
        "kind": "tree",
        "noise_multiplier": 7.1,
        "restarts": [128, 1152],
    }
