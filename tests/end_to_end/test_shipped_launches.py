"""Every kind of shipped launch file launches in small, and its report says what its mechanism is worth."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from matplotlib.figure import Figure

from federated import mechanisms
from federated.accounting.gaussian import epsilon_of_rho
from pipeline.ground.errors import PERMANENT
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.answers import Review
from pipeline.publication.approvals import review
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RunDir
from reports.disclosure.document import Disclosure
from reports.disclosure.releases import Training
from tests.helpers.audits.made_once import made_once
from tests.helpers.launches.answering import signed
from tests.helpers.launches.command import LAUNCHED, answered
from tests.helpers.launches.installed import at, installed
from tests.helpers.launches.small import in_small, keep_every_word
from tests.helpers.launches.tiny_launch import write_launch

ROOT = Path(__file__).resolve().parents[2]
# In small, these three are es-ES without its review of words: the fields that they set beside it are sizes and workers.
LIKE_ANOTHER = {"de-DE", "en-US", "fr-FR"}
FILES = [path for path in sorted((ROOT / "dags" / "launches").glob("*.yaml")) if path.stem not in LIKE_ANOTHER]
NAMES = {"tree": "tree aggregation", "blt": "Toeplitz", "banded": "banded", "independent": "DP-FedAvg"}

# Sizes alone: what a file says beside them is launched as it stands.
_SIZES = {
    "mechanism": {"noise_multiplier": 4.0, "rounds": 6, "report_goal": 10},
    "planning": {"population_estimate": 60, "max_report_goal": 12, "target_rho": 4.0},
    "policy": {
        "max_rho": 20.0,
        "max_total_epsilon": 150.0,
        "population_max_rho": 40.0,
        "population_max_words_epsilon": 1e4,
        "budget": {"rho": 60.0, "days": 60},
        "min_canary_rank": 1,
        "min_top1_gain": -1.0,
        "max_top3_loss": 1.0,
        "min_variety": 0.0,
        "min_ngram_gain": -1.0,
    },
    "audit": {"examples": [1, 200]},
    "ab_test": {"session_words": 100},
    "evaluation": {"noise_multiplier": 0.5},
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("forked_python"),
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    with made_once():
        yield


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw every curve of a report, and leave it to the tests of figures what picture matplotlib makes of it."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, buffer, **settings: buffer.write("<svg></svg>"))


def small(path: Path, folder: Path) -> Path:
    """The launch file with every field that it sets, at a size for a test, on made-up text."""
    tiny = yaml.safe_load(write_launch(folder).read_text(encoding="utf-8"))
    clients = Path(tiny["private_text"]["paths"][0])
    typed = pq.read_table(clients).drop_columns("locale")
    # Text is kept for the days of the budget, so it says when it was typed.
    typed_at = pa.array([datetime.now(UTC) - timedelta(days=1)] * len(typed))
    pq.write_table(typed.append_column("ts", typed_at), clients)
    ours = {block: tiny[block] for block in ("vocabulary", "model", "pretrain", "adapt", "local_training")}
    launch = in_small(path, folder, _SIZES | ours)
    launch["public_text"] = tiny["public_text"]
    if launch["private_text"]["source"] == "synthetic":
        launch["private_text"] |= {"devices": 80, "max_words_per_device": 60}
    else:
        launch["private_text"] = tiny["private_text"] | {"name": launch["private_text"]["name"]}
        launch["ab_test"]["non_private_upper_bound"] = False
    written = folder / path.name
    written.write_text(yaml.safe_dump(launch), encoding="utf-8")
    return written


def approved(home: Path, config: LaunchConfig, run_id: str) -> None:
    """Let as many reviewers as the policy asks for approve a launch, each under an account of their own."""
    here, run = at(home), RunDir(home / "runs", run_id, as_it_lies)
    report = run.result("report")["disclosure_sha256"]
    for name in config.reviewers[: config.policy.approvals]:
        given = Review(account=f"airflow:{name}", answer="approve", reason="read", report=report)
        review(config, run, PrivacyLedger.of(here), signed(here, config.population, run_id, given))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_file_launches_and_its_report_states_the_guarantee(path: Path, tmp_path: Path) -> None:
    file = small(path, tmp_path)
    config = load_launch(file)
    installed(tmp_path, config.population)
    if config.vocabulary.review:
        assert "wait for a decision" in answered(tmp_path, "launch", str(file), code=PERMANENT)["error"]
        keep_every_word(
            tmp_path / "runs" / launch_id(config) / "private" / "build_vocabulary" / "review" / "review.csv"
        )
    answer = answered(tmp_path, "launch", str(file), code=LAUNCHED)
    if config.reviewers:
        assert answer["state"] in ("waiting", "held")
        if answer["state"] == "waiting":
            approved(tmp_path, config, answer["launch_id"])
        answered(tmp_path, "stage", "publish", str(file), "--id", answer["launch_id"])
        if answer["state"] == "waiting" and config.experiment:
            assert answered(tmp_path, "experiment", "begin", answer["launch_id"])["ended"] is None
    public = tmp_path / "runs" / answer["launch_id"] / "public"
    disclosure = Disclosure.model_validate_json((public / "report" / "disclosure.json").read_bytes())
    rounds = json.loads((public / "fine_tune" / "result.json").read_bytes())["result"]
    strategy = mechanisms.build(config.mechanism)
    squared = strategy.sensitivity_squared(
        6, rounds["observed_min_sep"] or config.mechanism.min_sep, max(rounds["observed_max_participations"], 1)
    )
    # By the clock the floor and the cap are what was reserved, and what came out is what is paid.
    assert squared <= mechanisms.sensitivity_squared(config.mechanism)
    trained = disclosure.release(Training)
    assert (trained is not None) == config.trains
    assert trained is None or (trained.participation.timetable is None) == (config.mechanism.timer_days is None)
    noised = disclosure.accounting.rho
    # What secure aggregation's rounding may add to a norm counts too.
    rounding = 1e-3 if config.mechanism.secagg else None
    beside = sum(config.beside_training.values())
    training = squared / (2 * strategy.noise_multiplier**2) if config.trains else 0.0
    trains, held_out = beside + training, config.evaluation
    # A device trains or is held out; the larger of the two losses is the launch's.
    assert noised == pytest.approx(max(trains, held_out.rho if held_out else 0.0), rel=rounding)
    uncovered = [access for access in disclosure.data_accesses if access.data == "private" and not access.covered]
    assert (not uncovered) == (held_out is not None)
    if answer["decision"] == "launch":
        # Counts that only moved the start are not shipped.
        shipped = config.counts is not None and not config.counts.moves_start
        assert (public / "publish" / "bundle" / "counts.npz").exists() == shipped
        assert (public / "publish" / "bundle" / "model.onnx").exists() == (config.ships != "counts")
    failure = config.central_discovery.failure if config.central_discovery else 0.0
    committed = answered(tmp_path, "ledger", "show")["totals"][config.population]
    assert committed == pytest.approx(noised)
    total = disclosure.accounting.total
    assert answer["epsilon"] == total.epsilon
    assert ("local_words" in {name for part in total.parts if part.how != "noise" for name in part.releases}) == (
        failure == 0
    )
    for part in (part for part in total.parts if part.rho is not None):
        failed = failure if part.split == "train" else 0.0
        assert part.epsilon == pytest.approx(epsilon_of_rho(part.rho, part.delta - failed))
    assert max(part.rho or 0.0 for part in total.parts) == pytest.approx(noised)
    # Where words have no rho, none covers the launch.
    assert answer["rho"] == total.rho == (None if total.words else noised)
    norms = {point["clip_norm"] for point in disclosure.curves.fine_tuning}
    assert (len(norms) > 1) == (config.mechanism.adaptive_clipping is not None)
    html = (public / "report" / "report.html").read_text(encoding="utf-8")
    assert (NAMES[config.mechanism.kind] in html) == config.trains
    assert ("Under secure aggregation (32-bit sums" in html) == (config.mechanism.secagg is not None)
    assert ("Votes are added by secure aggregation" in html) == (config.mechanism.secagg is not None)
    assert ("population is synthetic" in html) == (config.private_text.source == "synthetic")
    assert ("trained without privacy, simulation only" in html) == config.ab_test.non_private_upper_bound
    assert ("With sampling counted" in html) == (config.mechanism.kind == "independent")
    assert answered(tmp_path, "verify", answer["launch_id"])["ok"]
    again = answered(tmp_path, "account", answer["launch_id"])
    assert again["rho"] == (None if answer["rho"] is None else pytest.approx(answer["rho"]))
