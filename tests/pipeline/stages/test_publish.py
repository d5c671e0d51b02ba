"""A bundle computes what the model computes, is registered once, and can be taken back."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch

from discovery.config import CentralConfig
from evaluation import int8
from pipeline.ground import settings as settings_module
from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import rollback, standing
from pipeline.publication.prediction import predict
from pipeline.publication.registry import Registry, promote
from pipeline.run.known import as_it_lies, run_folder
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from pipeline.stages.graph import STAGES
from pipeline.stages.publish import keyboard_dictionary, publish, write_dictionary
from pipeline.tracking import mlflow_tracker
from pretrain.dictionary import binary, combined
from pretrain.dictionary.from_model import Arm
from pretrain.files import sha256
from pretrain.model import export
from pretrain.model.keyboard_lm import build_model
from pretrain.model.predictor import COLUMN, KeyboardPredictor
from pretrain.text import vocabulary
from pretrain.text.vocabulary import BOS, SPECIALS
from pretrain.writing import truecasing
from pretrain.writing.truecasing import TypicalForm
from reports.losses import up
from tests.helpers.launches.installed import installed
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.publishable import COMPOSE, NAME, POPULATION, WORDS, launch
from tests.helpers.launches.tracking_database import put
from tests.helpers.reports.reports_example import example
from tests.helpers.text.dictionaries import SMALL

pytestmark = [
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


@dataclass(frozen=True)
class Published:
    """A launch that its tests only read, and the installation that it was published in."""

    settings: Settings
    done: dict


@pytest.fixture(scope="module")
def published(tracking_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    home = tmp_path_factory.mktemp("published")
    put(tracking_database, home)
    installed(home)
    here = settings_module.load({"TACIT_HOME": str(home)})
    return Published(here, launch(here, home))


@pytest.mark.slow
def test_bundle_predicts_what_the_model_predicts(published: Published, tmp_path: Path):
    done = published.done
    assert (done["published"], done["registered_model"], done["version"]) == (True, NAME, 1)
    assert done["parity_max_difference"] < 1e-4
    names = ("bundle.json", "disclosure.json", "en-US.combined", "en-US.dict", "model.onnx", "truecase.json")
    assert done["files"] == [f"bundle/{name}" for name in ("README.md", *names, "vocabulary.json")]
    model = build_model(launch_config().model, len(WORDS), launch_config().seed)
    predictor = KeyboardPredictor(done["bundle"])
    usual = truecasing.load(done["bundle"] / "truecase.json")
    assert {word: (entry.form, entry.share) for word, entry in usual.items()} == {"talk": ("Talk", 1.0)}
    for text, context in (
        ("See YOU", ["see", "you"]),
        ("see you. we", ["we"]),
        ("see you.", []),
        ("", []),
        ("see 4", []),
    ):
        with torch.no_grad():
            logits_1TV, _ = model(torch.tensor([[BOS, *WORDS.ids(context)]], dtype=torch.int64))
        best = logits_1TV[0, -1, len(SPECIALS) :].argsort(descending=True)[:3] + len(SPECIALS)
        words = [
            truecasing.shown(WORDS.words[index], usual, "en-US", begins=text in ("see you.", "")) for index in best
        ]
        assert predictor.suggest(text) == words, text
    assert len(predictor.suggest("see you", count=3)) == 3
    assert len(predictor.suggest("see", count=99)) == len(WORDS) - len(SPECIALS)
    with pytest.raises(ValueError, match=r"lacks model\.onnx"):
        KeyboardPredictor(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {
            "discovery": CentralConfig(kind="central", noise_multiplier=2.0, words_per_device=5, delta=5e-7),
            "policy": {"max_discovery_epsilon0": None},
        },
        {"evaluation": {"noise_multiplier": 1.0}},
        {"counts": {"noise_multiplier": 1.5, "model": "mixture"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_publication_opens_what_its_stage_declares(tracked: Settings, tmp_path: Path, changes: dict):
    """Its link lists what it opened, and everybody's tools refuse one that lists another stage."""
    done = launch(tracked, tmp_path, **changes)
    assert done["published"]
    record = RunDir(tracked.runs_dir, done["run_id"], as_it_lies).record("publish")
    assert record is not None
    assert {path.partition("/")[0] for path in record.inputs} <= {*STAGES["publish"].opens}


@pytest.mark.slow
def test_a_launch_is_asked_for_words_by_its_name(published: Published):
    """By its id or the beginning of it, as every other command; not by a beginning of two, nor without a model."""
    here, run_id = published.settings, published.done["run_id"]
    by_folder = predict(str(published.done["bundle"]), "see you", here)
    assert predict(run_id, "see you", here) == predict(run_id[:-4], "see you", here) == by_folder
    other = here.runs_dir / f"{run_id[:-1]}-other" / "public" / "launch"
    other.mkdir(parents=True)
    (other / "launch.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is the beginning of"):
        predict(run_id[:-4], "see you", here)
    with pytest.raises(ValueError, match="-other has published no model; 'tacit status"):
        predict(f"{run_id[:-1]}-other", "see you", here)
    (other / "launch.json").unlink()


@pytest.mark.slow
def test_int8_is_left_out_with_a_reason_unless_it_passes(
    tracked: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Eleven words in six hidden units: quantising saves nothing and costs time.
    done = launch(tracked, tmp_path)
    about = json.loads((done["bundle"] / "bundle.json").read_text(encoding="utf-8"))
    assert about["int8"] == done["int8"]
    assert not done["int8"]["shipped"]
    assert any(reason.startswith("size") for reason in done["int8"]["reasons"])
    for name, limit in {"MIN_TOP1_AGREEMENT": 0.0, "MIN_TOP3_AGREEMENT": 0.0}.items():
        monkeypatch.setattr(int8, name, limit)
    for name in ("MAX_SIZE_RATIO", "MAX_LATENCY_RATIO"):
        monkeypatch.setattr(int8, name, 100.0)
    done = launch(tracked, tmp_path, seed=8)
    assert (done["int8"]["shipped"], done["int8"]["reasons"]) == (True, [])
    assert len(KeyboardPredictor(done["bundle"], "model.int8.onnx").suggest("see you")) == 3


@pytest.mark.slow
def test_every_file_of_the_bundle_has_its_digest(published: Published):
    bundle = published.done["bundle"]
    about = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    found = {path.name: sha256(path) for path in bundle.iterdir() if path.name != "bundle.json"}
    assert about["files"] == found
    assert {"en-US.dict", "en-US.combined"} <= found.keys()


@pytest.mark.slow
def test_the_keyboard_s_dictionary_holds_the_words_and_the_disclosure(published: Published):
    done = published.done
    read = binary.from_bytes((done["bundle"] / "en-US.dict").read_bytes())
    assert set(read.words) == {"see", "you", "soon", "later", "we", "Talk", "tomorrow"}, "as public text writes them"
    assert done["dictionary_words"] == len(read.words)
    text = combined.from_text((done["bundle"] / "en-US.combined").read_text(encoding="utf-8"))
    assert text.as_keyboards_read_it() == read
    accounting = example().accounting
    assert read.attributes == {
        "dictionary": "main:en_us",
        "locale": "en_US",
        "description": "Launch test-fixture-01. Differential privacy of every device "
        f"(epsilon {up(accounting.bound)} delta {accounting.delta:.3g})",
        "date": "1767323045",
        "version": "20260102",
        "launch": "test-fixture-01",
        "arm": "network",
        "epsilon": up(accounting.bound),
        "delta": f"{accounting.delta:.3g}",
        "disclosure_sha256": sha256(done["bundle"] / "disclosure.json"),
    }


@pytest.mark.slow
def test_the_dictionary_follows_from_what_the_bundle_releases(published: Published):
    # Post-processing: four released files are enough to make it again, byte by byte.
    bundle = published.done["bundle"]
    model, words = export.load_graph(bundle / "model.onnx"), vocabulary.load(bundle / "vocabulary.json")
    usual, disclosed = truecasing.load(bundle / "truecase.json"), (bundle / "disclosure.json").read_text("utf-8")
    again = keyboard_dictionary(Arm(model, None), words, usual, disclosed, "network")
    assert binary.to_bytes(again) == (bundle / "en-US.dict").read_bytes()
    assert combined.to_text(again) == (bundle / "en-US.combined").read_text(encoding="utf-8")


def test_a_launch_without_a_bound_claims_none(tmp_path: Path):
    stated = example().model_dump(mode="json")
    stated["launch"] |= {"seeded_randomness": True, "locale": "sr-Latn-RS"}
    stated["accounting"] |= {"randomness": "seeded"}
    model = build_model(launch_config().model, len(WORDS), 1)
    attributes = keyboard_dictionary(Arm(model, None), WORDS, {}, json.dumps(stated), "network").attributes
    assert "(noise was seeded)" in attributes["description"]
    assert not {"rho", "epsilon", "delta"} & attributes.keys()
    assert attributes["locale"] == "sr-Latn-RS", "HeliBoard reads a tag with a script as a tag"


def test_words_that_are_written_alike_stay_apart():
    model = build_model(launch_config().model, len(WORDS), 1)
    usual = {"see": TypicalForm("SEE", 2, 1.0), "you": TypicalForm("X", 2, 1.0), "we": TypicalForm("X", 2, 1.0)}
    words = keyboard_dictionary(Arm(model, None), WORDS, usual, example().model_dump_json(), "network").words
    assert set(words) == {"SEE", "you", "soon", "later", "we", "talk", "tomorrow"}


def test_a_dictionary_that_does_not_read_back_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(binary, "bigram_level", lambda unigram, bigram: 15)
    with pytest.raises(ArithmeticError, match="reads back as another dictionary"):
        write_dictionary(SMALL, tmp_path / "en-US")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_registered_model_loads_without_this_project_and_without_pickle(published: Published, tmp_path: Path):
    done, tracked = published.done, published.settings
    bundle = Registry(tracked).download(NAME, "champion", tmp_path / "got")
    assert not [path for path in bundle.parent.rglob("*") if path.suffix in (".pkl", ".pickle", ".pt")]
    # A process that cannot see the project finds the code inside the model.
    program = (
        "import sys, json; sys.path = [p for p in sys.path if p and not p.startswith(sys.argv[3])];"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)];"
        "import mlflow; mlflow.set_tracking_uri(sys.argv[1]);"
        "model = mlflow.pyfunc.load_model(sys.argv[2]); import pretrain;"
        "import pandas; table = pandas.DataFrame({'line': [7, 8], 'text': ['see you', 'we']});"
        "print(json.dumps([model.predict(table), pretrain.__file__]))"
    )
    root = str(Path(mlflow_tracker.__file__).resolve().parents[2])
    command = [sys.executable, "-c", program, tracked.tracking_uri, f"models:/{NAME}@champion", root + "/pipeline"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    words, home = json.loads(ran.stdout.splitlines()[-1])
    assert words == [KeyboardPredictor(done["bundle"]).suggest(text, 3) for text in ("see you", "we")]
    assert not home.startswith(root)


@pytest.mark.slow
def test_a_registered_model_says_what_it_takes_and_refuses_the_rest_in_a_sentence(published: Published):
    here = published.settings
    mlflow = mlflow_tracker.load(here.tracking_uri)
    model = mlflow.pyfunc.load_model(f"models:/{NAME}@champion")
    signature, secret = model.metadata.signature, "nobody may see this"
    assert signature.inputs.input_names() == [COLUMN]
    assert [(each.name, each.default) for each in signature.params] == [("count", 3)]
    (example,) = model.predict(model.input_example)
    assert example == KeyboardPredictor(published.done["bundle"]).suggest("see you", 3)
    table = pd.DataFrame({COLUMN: [secret, "we"]})
    assert [len(each) for each in model.predict(table, {"count": 2})] == [2, 2]
    refused = [
        (table.rename(columns={COLUMN: "phrase"}), {}, "lacks column 'text'"),
        ([secret], {}, "lacks column 'text'"),
        ({COLUMN: [secret]}, {}, "row 0 of column 'text' is list"),
        (pd.DataFrame({COLUMN: [secret, None]}), {}, "row 1 of column 'text' is "),
        (table, {"count": 0}, "count: 0 is no number of suggestions"),
    ]
    for given, params, sentence in refused:
        with pytest.raises(ValueError, match=sentence) as error:
            model.predict(given, params)
        assert secret not in str(error.value)


@pytest.mark.slow
def test_one_model_is_a_version_for_each_feature_and_each_goes_its_own_way(tracked: Settings, tmp_path: Path):
    """Champions, rollbacks and what comes after them are a feature's own."""
    names = {feature: f"simulated-keyboard-en-US-{feature}" for feature in ("NWP", "SC", "OTF")}
    alone = launch(tracked, tmp_path)
    done = launch(tracked, tmp_path, seed=8, features=["NWP", "OTF"])
    assert alone["versions"] == {names["NWP"]: 1}
    assert done["versions"] == {names["NWP"]: 2, names["OTF"]: 1}
    assert (done["registered_model"], done["version"]) == (names["NWP"], 2)
    registry, client = Registry(tracked), mlflow_tracker.connect(tracked)
    sources = [client.get_model_version(name, str(version)).source for name, version in done["versions"].items()]
    assert len(set(sources)) == 1, "one logged model for both"
    assert client.get_registered_model(names["OTF"]).tags["feature"] == "OTF"

    def aliases(feature: str) -> tuple:
        return tuple(registry.alias(names[feature], alias) for alias in ("champion", "previous"))

    assert (aliases("NWP"), aliases("OTF")) == ((2, 1), (1, None))
    assert registry.download(names["OTF"], "champion", tmp_path / "otf").is_dir()
    with pytest.raises(ReleaseRefused, match="no previous version"):
        rollback("en-US", "OTF", tracked, "worse", "me", POPULATION)
    # Of another launch, under the same number: what was crowned is told by the model's name too.
    last = launch(tracked, tmp_path, seed=9, features=["OTF", "NWP"])
    assert last["versions"] == {names["OTF"]: 2, names["NWP"]: 3}
    assert rollback("en-US", "OTF", tracked, "worse", "me", POPULATION).champion == 1
    assert (aliases("NWP"), aliases("OTF")) == ((3, 2), (1, None))
    config = launch_config(seed=9, features=["OTF", "NWP"])
    run, ledger = run_folder(tracked, last["run_id"]), PrivacyLedger.of(tracked)
    now = standing(config, run, ledger)
    assert now.state == "published"
    assert now.detail.startswith(f"as version 3 of {names['NWP']}; no longer for its other features, rolled back by me")
    rollback("en-US", "NWP", tracked, "worse too", "me", POPULATION)
    assert standing(config, run, ledger).state == "rolled back"


@pytest.mark.slow
def test_a_bundle_for_phrases_has_the_threshold_of_the_comparison(tracked: Settings, tmp_path: Path):
    done = launch(tracked, tmp_path, features=["SC"])
    about = json.loads((done["bundle"] / "bundle.json").read_text(encoding="utf-8"))
    assert about["features"].keys() == {"SC"}
    assert about["features"]["SC"]["threshold_nats"] == COMPOSE.threshold_nats
    opened = run_folder(tracked, done["run_id"]).record("publish")
    assert "ab_test/comparison.json" in opened.inputs


@pytest.mark.slow
def test_hold_publishes_nothing(tracked: Settings, tmp_path: Path):
    done = launch(tracked, tmp_path, decision="hold")
    assert not done["published"]
    assert "too small" in done["reason"]
    assert not done["bundle"].exists()
    assert mlflow_tracker.connect(tracked).search_registered_models() == []
    with pytest.raises(ReleaseRefused, match="publish a launch first"):
        Registry(tracked).download(NAME, "champion", tmp_path)


@pytest.mark.slow
def test_aliases_move_forward_and_back(tracked: Settings, tmp_path: Path):
    registry = Registry(tracked)
    with pytest.raises(ReleaseRefused, match="no previous version"):
        rollback("en-US", "NWP", tracked, "worse", "me", POPULATION)
    first = launch(tracked, tmp_path)
    with pytest.raises(ReleaseRefused, match="champion: 1"):
        rollback("en-US", "NWP", tracked, "worse", "me", POPULATION)
    second = launch(tracked, tmp_path, seed=8)
    assert (first["version"], second["version"]) == (1, 2)

    def aliases() -> tuple:
        return tuple(registry.alias(NAME, name) for name in ("candidate", "champion", "previous"))

    assert aliases() == (2, 2, 1)
    promote(launch_config(), registry, NAME, 2)
    assert aliases() == (2, 2, 1), "promoting again loses nothing"
    launch(tracked, tmp_path, seed=9)
    assert aliases() == (3, 3, 2)
    with pytest.raises(ReleaseRefused, match="--reason"):
        rollback("en-US", "NWP", tracked, " ", "me", POPULATION)
    done = rollback("en-US", "NWP", tracked, "worse", "me", POPULATION)
    assert (done.champion, done.rolled_back) == (2, 3)
    assert aliases() == (3, 2, 1)
    assert rollback("en-US", "NWP", tracked, "worse too", "me", POPULATION).champion == 1
    assert aliases() == (3, 1, None)
    kept = [entry for entry in PrivacyLedger.of(tracked).entries() if entry.kind == "rollback"]
    assert [json.loads(entry.binding)["reason"] for entry in kept] == ["worse", "worse too"]
    assert kept[1].launch_id == second["run_id"]


@pytest.mark.slow
def test_populations_never_meet_in_the_registry(tracked: Settings, tmp_path: Path):
    """A toy of 80 devices took the demo's place as champion, and a launch was held against it."""
    first = launch(tracked, tmp_path)
    toy = launch(tracked, tmp_path, private_text={"name": "toy"})
    registry = Registry(tracked)
    assert (first["registered_model"], toy["registered_model"]) == (NAME, f"{NAME}-chitchat-toy")
    assert (registry.alias(NAME, "champion"), registry.alias(f"{NAME}-chitchat-toy", "champion")) == (1, 1)
    config = launch_config(private_text={"name": "toy"})
    assert registry.champion_before(registry.names_of(config)["NWP"], toy["run_id"]) is None
    assert registry.champion_before(registry.names_of(launch_config())["NWP"], "another").launch_id == first["run_id"]


@pytest.mark.slow
def test_a_launch_that_users_model_changed_under_is_not_published(tracked: Settings, tmp_path: Path):
    """Compared with version 1 and published a week later, over a version 2 that it was never held against."""
    launch(tracked, tmp_path)
    waits = launch(tracked, tmp_path, until="report", seed=8)
    second = launch(tracked, tmp_path, seed=9)
    with pytest.raises(ReleaseRefused, match=rf"compared with version 1 .* version 2 by now .*{second['run_id']}"):
        launch(tracked, tmp_path, seed=8)
    registry = Registry(tracked)
    assert registry.alias(NAME, "champion") == 2
    assert registry.of_launch(NAME, waits["run_id"]) is None, "nothing was registered"
    # What was champion once is published again for free, and changes nothing.
    assert launch(tracked, tmp_path)["version"] == 1
    assert registry.alias(NAME, "champion") == 2


@pytest.mark.slow
def test_what_was_rolled_back_does_not_come_back(tracked: Settings, tmp_path: Path):
    launch(tracked, tmp_path)
    second = launch(tracked, tmp_path, seed=8)
    rollback("en-US", "NWP", tracked, "worse", "me", POPULATION)
    run = run_folder(tracked, second["run_id"])
    config = LaunchConfig.model_validate_json((run.path / "public" / "launch" / "launch.json").read_bytes())
    with pytest.raises(ReleaseRefused, match=r"is rolled back \(by me at .*: worse\)"):
        publish(StageContext(config, run, tracked, "publish", None))
    registry = Registry(tracked)
    promote(launch_config(), registry, NAME, 2)
    assert registry.alias(NAME, "champion") == 1, "publishing again undoes no rollback"


@pytest.mark.slow
def test_nobody_publishes_without_the_reviewers(tracked: Settings, tmp_path: Path):
    """As `tacit stage publish` did, whatever Airflow's task was set to."""
    with pytest.raises(ReleaseRefused, match=r"is waiting \(for approval by ana\)"):
        launch(tracked, tmp_path, reviewers=("ana",))
    assert Registry(tracked).alias(NAME, "champion") is None
