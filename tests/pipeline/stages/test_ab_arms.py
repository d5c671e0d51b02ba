"""Arms of a launch: what users have comes from the registry, whole; training without privacy is for simulations."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from evaluation.arms.arm import neural
from evaluation.comparison.compare import Entrants
from federated import mechanisms
from federated.devices import store as population
from federated.train import Workplace
from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.publication.registry import Champions, Registry, published_before
from pipeline.run import artifacts as load
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from pipeline.stages import ab_arms as entrants
from pipeline.stages import public_model
from pipeline.stages.ab_inputs import Baseline, open_inputs
from pretrain.files import sha256
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.text import vocabulary
from pretrain.text.vocabulary import BOS, SPECIALS, TokenStream, Vocabulary
from pretrain.text.words import write_words
from tests.helpers.launches.pipeline_launch import RAW, launch_config
from tests.helpers.launches.published import THEIRS, model_of, publish

pytestmark = [
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]
NAME = "simulated-keyboard-en-US-NWP"
BASE = Vocabulary((*SPECIALS, "see", "you", "soon"))
GROWN = vocabulary.extend(BASE, ["lol"], 1)
MADE_UP = {"source": "synthetic", "name": "made-up", "devices": 40, "max_words_per_device": 30}


def context(settings: Settings, monkeypatch: pytest.MonkeyPatch, **changes: object) -> StageContext:
    """A launch that has come as far as its comparison, without training."""
    config = launch_config(**changes)
    run = run_folder(settings, "trial-of-the-tests")
    words = {"ingest_public": BASE, "build_vocabulary": GROWN}
    models = {"pretrain": BASE, "adapt": GROWN, "fine_tune": GROWN}
    public = write_words(settings.home / "public", [[["see", "you", "soon"], ["see", "you"]]] * 30)
    stream: TokenStream = public.encode(GROWN)
    monkeypatch.setattr(load, "vocabulary", lambda ctx, stage: words[stage])
    monkeypatch.setattr(load, "model", lambda ctx, stage: model_of(models[stage], 1))
    monkeypatch.setattr(load, "public_streams", lambda ctx, given: (stream, stream))
    monkeypatch.setattr(load, "validation_text", lambda ctx: public)
    monkeypatch.setattr(load, "mechanism", lambda run: mechanisms.build(config.mechanism))
    monkeypatch.setattr(RunDir, "result", lambda run, stage: {"population": "people", "split_rule": "ours"})
    devices = settings.home / "devices"
    if not devices.exists():
        population.build_store(launch_config(private_text=MADE_UP).private_text, "en-US", 1, devices)
    store = population.open_store(devices)
    monkeypatch.setattr(load, "store", lambda ctx: store)
    return StageContext(config, run, settings, "ab_test", None)


def gathered(
    ctx: StageContext, before: Callable[[StageContext], Champions] = published_before
) -> tuple[Entrants, tuple[Baseline, ...]]:
    """Arms of a launch, and what its users have."""
    inputs = open_inputs(ctx, before)
    return entrants.gather(inputs, ctx.config, workplace(ctx)), inputs.baselines


def workplace(ctx: StageContext) -> Workplace:
    return Workplace(ctx.private, ctx.config.runtime)


@pytest.mark.slow
def test_champion_is_what_users_have_without_this_launch(tracked: Settings, tmp_path: Path):
    registry = Registry(tracked)
    assert registry.champion_before(NAME, "second") is None
    publish(tracked, tmp_path, "first")
    found = registry.champion_before(NAME, "second")
    assert (found.version, found.launch_id) == (1, "first")
    assert registry.champion_before(NAME, "first") is None, "a launch is never compared with itself"
    publish(tracked, tmp_path, "second", GROWN)
    assert registry.champion_before(NAME, "second") == found, "the same answer again once it is published"
    assert registry.champion_before(NAME, "third").version == 2
    bundle = registry.fetch(found, tmp_path)
    assert vocabulary.load(bundle / "vocabulary.json") == THEIRS
    for kept in (tracked.runs_dir / "mlflow-artifacts").rglob("bundle.json"):
        if sha256(kept) == found.bundle_sha256:
            kept.with_name("model.onnx").write_bytes(b"another model")
    with pytest.raises(PermanentError, match=r"version 1: model\.onnx differs from the registered file"):
        registry.fetch(found, tmp_path / "again")


@pytest.mark.slow
def test_arms_speak_one_vocabulary_and_the_champion_keeps_its_own(
    tracked: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ctx = context(tracked, monkeypatch)
    alone, had = gathered(ctx)
    assert had == ()
    assert "champion" not in alone.arms
    assert alone.vocabulary == GROWN
    publish(tracked, tmp_path, "earlier")
    both, (had,) = gathered(ctx)
    assert (had.feature, had.arm, had.left_out) == ("NWP", "champion", "")
    assert had.published.launch_id == "earlier"
    assert ("private", "champion") in both.pairs
    assert both.vocabulary.words == (*GROWN.words, "later")
    assert both.launch_size == len(GROWN)
    assert {arm.vocabulary_size for arm in both.arms.values()} == {len(both.vocabulary)}
    nothing = [np.array([], dtype=np.int64)]
    for name, arm in alone.arms.items():
        before, after = arm.start(nothing)[0][0], both.arms[name].start(nothing)[0][0]
        np.testing.assert_array_equal(before, after[: len(GROWN)])
        assert after[len(GROWN)] == -np.inf, "a word that only users' model knows"
    own, _ = neural(model_of(THEIRS, len("earlier"))).start(nothing)
    theirs, _ = both.arms["champion"].start(nothing)
    for word in ("see", "you", "later"):
        assert theirs[0, both.vocabulary.index[word]] == own[0, THEIRS.index[word]]
    assert theirs[0, both.vocabulary.index["lol"]] == -np.inf
    assert not any(ctx.private.iterdir()), "the champion is not kept"


@pytest.mark.slow
def test_each_feature_meets_what_its_own_users_have(tracked: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Users of two features have one launch's model, those of the third an older one: two arms, not three."""
    ctx = context(tracked, monkeypatch, features=["NWP", "SC", "OTF"])
    publish(tracked, tmp_path, "older", features=("SC",))
    publish(tracked, tmp_path, "newer", GROWN, features=("NWP", "OTF"))
    compared, had = gathered(ctx)
    assert [(each.feature, each.published.launch_id, each.arm) for each in had] == [
        ("NWP", "newer", "champion"),
        ("SC", "older", "champion_SC"),
        ("OTF", "newer", "champion"),
    ]
    assert compared.only == {"champion": ("NWP", "OTF"), "champion_SC": ("SC",)}
    assert compared.also_decisive == (("private", "champion"), ("private", "champion_SC"))
    assert compared.pairs[-2:] == compared.also_decisive
    assert {arm.vocabulary_size for arm in compared.arms.values()} == {len(compared.vocabulary)}
    assert compared.vocabulary.words == (*GROWN.words, "later")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trained_on", "why"),
    [
        ({"name": "people", "split_rule": "ours"}, ""),
        ({"name": "others", "split_rule": "theirs"}, ""),
        ({"name": "people", "split_rule": "theirs"}, "another split"),
        ({"name": "people"}, "does not say"),
        ({"name": "others"}, "does not say"),
    ],
)
def test_a_champion_that_may_have_trained_on_held_out_devices_is_no_arm(
    tracked: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained_on: dict, why: str
):
    ctx = context(tracked, monkeypatch)
    publish(tracked, tmp_path, "earlier", trained_on=trained_on)
    compared, (had,) = gathered(ctx)
    assert had.published.launch_id == "earlier"
    assert (why in had.left_out) if why else not had.left_out
    assert ("champion" in compared.arms) == (not why) == (("private", "champion") in compared.pairs)


@pytest.mark.slow
def test_without_privacy_only_in_a_simulation(tracked: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    files = {"source": "files", "name": "people", "paths": ["people.parquet"], "max_words_per_device": 30}
    wanted = {**RAW, "private_text": files, "ab_test": {"non_private_upper_bound": True}}
    with pytest.raises(ValidationError, match="is a release without any guarantee"):
        LaunchConfig.model_validate(wanted)
    for source in ({"source": "chitchat", "name": "people", "max_words_per_device": 30}, MADE_UP):
        assert LaunchConfig.model_validate({**wanted, "private_text": source}).ab_test.non_private_upper_bound
    LaunchConfig.model_validate({**wanted, "ab_test": {}})
    # A configuration that never went through validation is refused by the arm itself.
    ctx = context(tracked, monkeypatch)
    people = LaunchConfig.model_validate({**RAW, "private_text": files})
    with pytest.raises(PermanentError, match="not for source 'files'"):
        entrants.without_privacy(open_inputs(ctx, lambda ctx: {}), people, workplace(ctx))


@pytest.mark.slow
def test_without_privacy_is_the_same_training_and_leaves_nothing(
    tracked: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    ctx = context(tracked, monkeypatch, private_text=MADE_UP, ab_test={"non_private_upper_bound": True})
    compared, *_ = gathered(ctx)
    assert ("private", "non_private") in compared.pairs
    assert not any(ctx.private.iterdir()), "no checkpoint of it stays"
    inputs, work = open_inputs(ctx, lambda ctx: {}), workplace(ctx)
    start = load.model(ctx, "adapt")
    trained, again = (entrants.without_privacy(inputs, ctx.config, work) for _ in range(2))
    assert all(bool((inputs.start.state_dict()[name] == kept).all()) for name, kept in start.state_dict().items())
    moved = {name: (new - start.state_dict()[name]).norm() for name, new in trained.state_dict().items()}
    assert max(moved.values()) > 1e-4
    assert all(bool((new == again.state_dict()[name]).all()) for name, new in trained.state_dict().items())
    mechanism = ctx.config.mechanism
    loose = entrants.loosened(mechanism)
    assert loose.noise_multiplier * loose.clip_norm < 1e-8
    assert loose.clip_norm > mechanism.clip_norm
    kept = ("rounds", "report_goal", "min_sep", "max_participations")
    assert all(getattr(loose, name) == getattr(mechanism, name) for name in kept)


@pytest.mark.parametrize(
    ("ships", "others"),
    [
        ("mixture", ("network", "counts", "start_and_counts")),
        ("network", ("counts", "mixture", "start_and_counts")),
        ("start-mixture", ("counts",)),
    ],
)
def test_private_is_what_would_ship_and_the_rest_is_compared(
    tracked: Settings, monkeypatch: pytest.MonkeyPatch, ships: str, others: tuple[str, ...]
):
    ctx = context(
        tracked,
        monkeypatch,
        counts={"noise_multiplier": 2.0, "model": ships},
        policy={"max_rho": 1.0, "population_max_rho": 4.0},
    )
    public, _ = load.public_streams(ctx, GROWN)
    row_V = np.full(len(GROWN), -1)
    row_V[BOS] = 0
    counts = CountedNGram(
        NGram.fit(public, GROWN, 3), np.ones(len(GROWN)), row_V, np.array([GROWN.index["lol"]]), np.ones(1), np.ones(1)
    )
    monkeypatch.setattr(load, "counts", lambda ctx: counts)
    monkeypatch.setattr(load, "training_start", lambda ctx: load.model(ctx, "adapt"))
    compared, *_ = gathered(ctx)
    assert {("private", other) for other in others} <= set(compared.pairs)
    nothing = [np.array([], dtype=np.int64)]

    def lol(name: str) -> float:
        return float(np.exp(compared.arms[name].start(nothing)[0][0, GROWN.index["lol"]]))

    network = lol({"mixture": "network", "network": "private", "start-mixture": "start"}[ships])
    mixture = lol("mixture" if ships == "network" else "private")
    assert {"network", "counts", "mixture", "start_and_counts"} & compared.arms.keys() == set(others)
    if ships != "start-mixture":
        assert lol("start_and_counts") == pytest.approx((1 + lol("start")) / 2)
    assert lol("counts") == pytest.approx(1)
    assert mixture == pytest.approx((1 + network) / 2)
    assert network < 0.9
    assert lol("public_mixture") == pytest.approx((lol("start") + lol("ngram")) / 2), (
        "what public text gives for nothing"
    )
    assert ("private", "public_mixture") in compared.pairs
    assert ("private", "constant") in compared.pairs
    typed = np.bincount(load.store(ctx).encode(GROWN, "validation").tokens_N, minlength=len(GROWN))
    first, _ = compared.arms["constant"].start([np.array([], dtype=np.int64)])
    later, _ = compared.arms["constant"].step(np.array([GROWN.index["you"]]), None)
    np.testing.assert_array_equal(first, later)
    assert np.argmax(first[0]) == len(SPECIALS) + np.argmax(typed[len(SPECIALS) :])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_infrastructure(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """Arms, public training and the scoring of canaries are where ``runtime.device`` says, or nowhere."""
    ctx = context(settings, monkeypatch, runtime={"device": "cuda"})
    network = model_of(GROWN, 1)
    for act in (
        lambda: gathered(ctx, lambda ctx: {}),
        lambda: public_model.pretrain(ctx),
        lambda: load.on_device(ctx, network),
    ):
        with pytest.raises(OSError, match=r"runtime\.device: 'cuda', but no GPU"):
            act()
    assert load.on_device(context(settings, monkeypatch), network) is network
