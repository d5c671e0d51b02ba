"""A wrong launch file says which field, which value, and what to do."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from pipeline.launch import config_errors
from pipeline.launch.config import LaunchConfig, config_digest, launch_id, load_launch
from pretrain.reading import yaml_text
from tests.helpers.launches.file_names import EDITORS, NAMES, NO_NAMES
from tests.helpers.launches.pipeline_launch import RAW, launch_config


def write(folder: Path, raw: dict) -> Path:
    """A launch file."""
    path = folder / "trial.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return path


DELETE = object()
LAUNCHES = Path("dags/launches")


def changed(field: str, value: object, raw: dict = RAW) -> dict:
    """The raw launch with one dotted field replaced."""
    raw = copy.deepcopy(raw)
    *parents, last = field.split(".")
    place = raw
    for parent in parents:
        place = place[parent]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return raw


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("polices", {}, "polices: no such field, got {}; did you mean 'policy'?"),
        ("mechanism.round", 3, "mechanism.round: no such field, got 3; did you mean 'rounds'?"),
        ("public_text.maxtokens", 4, "public_text.maxtokens: no such field, got 4; did you mean 'max_tokens'?"),
        (
            "server.zzz",
            4,
            "server.zzz: no such field, got 4; remove it; the fields here are optimizer, learning_rate",
        ),
        ("mechanism.rounds", "many", "mechanism.rounds: got 'many'; give a whole number"),
        ("mechanism.rounds", 3.5, "mechanism.rounds: got 3.5; give a whole number"),
        ("mechanism.delta", 2.0, "mechanism.delta: got 2.0; give a number at most 0.001"),
        ("mechanism.clip_norm", -1, "mechanism.clip_norm: got -1; give a number at least 1e-09 (L2 bound C of"),
        ("mechanism.kind", "gauss", "mechanism.kind: got 'gauss'; choose one of 'tree', 'blt'"),
        ("mechanism.kind", "blt", "mechanism: got 0 theta and 0 omega; give one of each a buffer"),
        ("mechanism", DELETE, "mechanism: missing; add it"),
        ("mechanism.delta", DELETE, "mechanism.delta: missing; add it"),
        ("mechanism", 3, "mechanism: got 3; give a mapping of fields"),
        ("public_text.source", "c5", "public_text.source: got 'c5'; choose one of 'c4', 'files', 'sample'"),
        (
            "private_text.source",
            DELETE,
            "private_text.source: missing; choose one of 'files', 'made_up_files', 'chitchat', 'synthetic'",
        ),
        ("private_text.test_fraction", 1.0, "private_text.test_fraction: got 1.0; give a number below 0.9"),
        ("audit.users", [1, 0], "audit.users[1]: got 0; give a number at least 1 (n_u:"),
        ("audit.users", [], "audit.users: got 0 items; give at least 1"),
        ("model.tied", "maybe", "model.tied: got 'maybe'; give true or false"),
        ("reviewers", "me", "reviewers: got 'me'; give a list, as in [me]"),
        ("locale", "english", "locale: got 'english'; it must match"),
        ("locale", False, "locale: got False; give text, in quotes if YAML reads it as something else"),
        ("policy.max_rho", float("inf"), "policy.max_rho: got inf; give a finite number"),
        ("mechanism.max_participations", 9, "mechanism.max_participations: 9 is not reachable"),
        (
            "policy.population_max_discovery_epsilon",
            0.5,
            "policy.population_max_discovery_epsilon: 0.5 is below discovery.epsilon0 1, so not even one launch fits; "
            "lower discovery.epsilon0",
        ),
    ],
)
def test_names_field_value_and_fix(tmp_path: Path, field: str, value: object, message: str):
    with pytest.raises(ValueError, match=r"\S") as failed:
        load_launch(write(tmp_path, changed(field, value)))
    assert str(failed.value).startswith(message)
    assert "\n" not in str(failed.value), "one problem, one line"


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Dotted path and value of everything in a launch file."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, f"{path}.{name}" if path else name)
    elif not isinstance(value, list):
        yield path, value


@pytest.mark.parametrize("name", ["demo-en-US", "en-US", "fr-FR"])
def test_numbers_and_truths_are_no_text(name: str):
    raw = yaml_text.load((LAUNCHES / f"{name}.yaml").read_text(encoding="utf-8"), name)
    numbers = [(path, value) for path, value in leaves(raw) if isinstance(value, int | float)]
    assert len(numbers) > 50
    for path, value in numbers:
        for wrong in (str(value).lower(), 1 if isinstance(value, bool) else True):
            with pytest.raises(ValidationError) as failed:
                LaunchConfig.model_validate(changed(path, wrong, raw))
            said = config_errors.lines(failed.value, LaunchConfig)
            assert [line.split(":")[0] for line in said] == [path], said


C4 = {"source": "c4", "subset": "en", "max_tokens": 10}


@pytest.mark.parametrize("revision", ["main", "v1.0", "1588ec4", "A" * 40, "a" * 41, ""])
def test_c4_is_pinned_to_a_commit_and_to_no_branch_or_tag(tmp_path: Path, revision: str):
    load_launch(write(tmp_path, RAW | {"public_text": C4 | {"revision": "a" * 40}}))
    with pytest.raises(ValueError, match="revision") as failed:
        load_launch(write(tmp_path, RAW | {"public_text": C4 | {"revision": revision}}))
    said = str(failed.value)
    assert said.startswith(f"public_text.revision: got {revision!r}; it must match ^[0-9a-f]{{40}}$ (commit of")
    with pytest.raises(ValueError, match=r"^public_text.revision: missing; add it \(commit of the dataset"):
        load_launch(write(tmp_path, RAW | {"public_text": C4}))


def test_every_problem_has_its_line(tmp_path: Path):
    raw = changed("mechanism.rounds", -1) | {"seed": "x", "extra": 1}
    with pytest.raises(ValueError, match="rounds") as failed:
        load_launch(write(tmp_path, raw))
    fields = [line.split(":")[0] for line in str(failed.value).splitlines()]
    assert sorted(fields) == ["extra", "mechanism.rounds", "seed"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "a launch file is a mapping of fields, got list"),
        ("a: [1\n", "not valid YAML"),
        ("seed: 1\nseed: 2\n", "a name that stands twice; keep one in line 2"),
    ],
)
def test_files_that_are_no_launch(tmp_path: Path, text: str, message: str):
    path = tmp_path / "trial.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_launch(path)


def test_a_launch_file_has_a_name_that_airflow_reads(tmp_path: Path):
    for name in NAMES:
        (tmp_path / name).write_text(yaml.safe_dump(RAW), encoding="utf-8")
        assert load_launch(tmp_path / name).name == RAW["name"]
    for name in (*NO_NAMES, *EDITORS):
        (tmp_path / name).write_text(yaml.safe_dump(RAW), encoding="utf-8")
        with pytest.raises(ValueError, match=r"FILE: .*no name of a launch file.*; rename it"):
            load_launch(tmp_path / name)
        (tmp_path / "mine.yaml").write_text(f"like: {name}\nname: mine\n", encoding="utf-8")
        with pytest.raises(ValueError, match="no name of a launch file"):
            load_launch(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([], "features: got 0 items; give at least 1 (features that"),
        (["NWP", "NWP"], "features: ['NWP', 'NWP'] names one twice; give each once"),
        (["NWP", "swipe"], "features[1]: got 'swipe'; choose 'NWP', 'SC' or 'OTF'"),
        ("OTF", "features: got 'OTF'; give a list, as in [OTF]"),
        (None, "features: got None; give a list"),
    ],
)
def test_a_list_of_features_names_each_once(tmp_path: Path, features: object, message: str):
    raw = RAW | {"features": features}
    with pytest.raises(ValueError, match="features") as failed:
        load_launch(write(tmp_path, raw))
    assert str(failed.value).startswith(message)
    assert "\n" not in str(failed.value)


def test_the_first_feature_is_the_main_one_and_their_order_is_part_of_the_launch():
    several = [launch_config(features=names) for names in (["NWP"], ["NWP", "OTF"], ["OTF", "NWP"])]
    assert len({launch_id(config) for config in several}) == 3
    assert [config.feature for config in several] == ["NWP", "NWP", "OTF"]
    assert LaunchConfig.model_validate(several[1].model_dump(mode="json")) == several[1]


def test_launch_id_follows_what_can_change_a_result():
    same = [launch_config(), launch_config(runtime={"workers": 4}), launch_config(schedule="@daily")]
    assert len({launch_id(config) for config in same}) == 1
    different = [
        launch_config(mechanism={"noise_multiplier": 6.5}),
        launch_config(seed=8),
        launch_config(policy={"max_rho": 0.4}),
        launch_config(private_text={"max_words_per_device": 99}),
    ]
    assert len({config_digest(config) for config in [same[0], *different]}) == 5
    assert launch_id(same[0], "20261121") == f"{launch_id(same[0])}-20261121"


@pytest.mark.parametrize(("rank", "held"), [(2_223, ""), (2_224, "1.0% of launches"), (22_224, "10.0%")])
def test_canaries_that_chance_alone_would_rank_too_well_are_refused(rank: int, held: str):
    audit = {"users": [1, 4], "examples": [1, 14, 200], "repeats": 3}
    changes: dict[str, object] = {"audit": audit, "policy": {"min_canary_rank": rank}}
    if not held:
        assert launch_config(**changes).policy.min_canary_rank == rank
        return
    with pytest.raises(ValueError, match="lower it to 2,223 or less") as failed:
        launch_config(**changes)
    assert f"{rank:,}, and none of 9 canaries on one device" in str(failed.value)
    assert held in str(failed.value)
    # No canary without training, and none on one device alone.
    launch_config(**changes, counts={"noise_multiplier": 1.0, "model": "counts"})
    launch_config(**{**changes, "audit": audit | {"users": [4]}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"mechanism.secagg": {"bits": 32}},
            r"trust: 'server', but mechanism.secagg is given.*write trust: secure sum",
        ),
        ({"trust": "secure sum", "mechanism.secagg": None}, r"mechanism.secagg: null, but with trust: secure sum"),
        (
            {"trust": "secure sum", "counts": {"noise_multiplier": 3.0, "model": "network"}},
            r"counts: given, but what devices count is not masked",
        ),
        (
            {
                "trust": "secure sum",
                "discovery": {"kind": "central", "noise_multiplier": 4.0, "words_per_device": 9, "delta": 5e-7},
                "policy.max_discovery_epsilon0": None,
                "policy.population_max_words_epsilon": None,
            },
            r"discovery.kind: 'central' shows the server up to 9 rare words of each device",
        ),
    ],
    ids=["secagg", "null", "counts", "central"],
)
def test_what_a_server_would_see_is_no_secure_sum(changes: dict, message: str) -> None:
    raw = RAW
    for field, value in changes.items():
        raw = changed(field, value, raw)
    with pytest.raises(ValidationError, match=message):
        LaunchConfig.model_validate(raw)


def test_settings_chosen_on_people_s_own_text_are_refused() -> None:
    simulated = LaunchConfig.model_validate(RAW | {"tuning": "this population"})
    assert simulated.tuning == "this population"
    raw = RAW | {"private_text": {"source": "files", "name": "people", "paths": ["x"], "max_words_per_device": 9}}
    raw |= {"mechanism": RAW["mechanism"] | {"randomness": "secure"}, "reviewers": ["ana"]}
    assert LaunchConfig.model_validate(raw)
    with pytest.raises(ValidationError, match=r"tuning: 'this population', whose text is people's, and no epsilon"):
        LaunchConfig.model_validate(raw | {"tuning": "this population"})


def test_public_text_does_not_hold_the_private_text() -> None:
    chat = yaml.safe_load((LAUNCHES / "demo-en-US.yaml").read_text(encoding="utf-8"))
    chat["public_text"]["source"] = "sample-with-chat"
    with pytest.raises(ValidationError, match=r"'sample-with-chat' holds the private text of source 'chitchat'"):
        LaunchConfig.model_validate(chat)
    others = changed("public_text.source", "sample-with-chat")
    others["private_text"] = {"source": "synthetic", "name": "made-up", "devices": 40, "max_words_per_device": 30}
    assert LaunchConfig.model_validate(others).public_text.source == "sample-with-chat"
