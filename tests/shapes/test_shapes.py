"""Every launch file that ships, in small: launched, its loss, approval, publication, proof, erasure, and what is left.

``make shapes`` runs it, and shows each step as it ends. Commands are those of a user, in processes of their own. A
file of people's text is rehearsed, with a second launch and a rollback.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from federated import mechanisms
from federated.accounting.gaussian import epsilon_of_rho
from pipeline.ground import keys
from pipeline.ground.errors import DONE
from pipeline.ground.settings import account
from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.answers import Review
from pipeline.publication.approvals import review
from pipeline.rehearsal import page
from pipeline.rehearsal.rehearse import Prepared, Report, rehearse
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RunDir
from pretrain.files import sha256
from reports.disclosure.document import Disclosure
from reports.disclosure.releases import Training
from reports.losses import up
from tests.helpers.launches.answering import signed
from tests.helpers.launches.command import AIRFLOW, environment, tacit
from tests.helpers.launches.installed import at, installed, keyed
from tests.helpers.launches.tracking_database import prepared, put
from tests.helpers.processes.forked import Forked
from tests.shapes.small import small

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
FILES = sorted((ROOT / "dags" / "launches").glob("*.yaml"))
OF_PEOPLE = [path for path in FILES if not load_launch(path).private_text.simulated]
# As many as find a word, in rounds that teach more than chance.
PEOPLE, SCALE = 2_000, 0.0005
NAMES = {"tree": "tree aggregation", "blt": "Toeplitz", "banded": "banded", "independent": "DP-FedAvg"}
Step = Callable[[str], AbstractContextManager[None]]

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Home:
    """An installation of its own, and what runs as ``tacit``."""

    folder: Path
    program: Path

    def tacit(self, *arguments: str, code: int = DONE) -> dict:
        """Answer of a command, which must end with ``code``."""
        done = tacit(self.folder, *arguments, "--json", program=self.program)
        ended = f"tacit {' '.join(arguments)}: {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert done.returncode == code, ended
        return json.loads(done.stdout)

    def public(self, run_id: str) -> Path:
        return self.folder / "runs" / run_id / "public"


@pytest.fixture
def step(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Step:
    """Show a step of a shape when it has ended, with its seconds."""

    @contextmanager
    def shown(name: str) -> Iterator[None]:
        started, how = time.monotonic(), "FAILED"
        try:
            yield
            how = "ok"
        finally:
            with capfd.disabled():
                seconds = time.monotonic() - started
                sys.stderr.write(f"{request.node.callspec.id:20} {name:24} {seconds:6.1f} s  {how}\n")
                sys.stderr.flush()

    return shown


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Home:
    put(prepared(tmp_path_factory), tmp_path)
    return Home(tmp_path, forked.tacit)


def launched(home: Home, file: Path) -> dict:
    """Launch a file up to its publication or its reviewers; the answer."""
    keyed(home.folder / "runs", file)
    answer = home.tacit("launch", str(file))
    assert answer["decision"] == "launch"
    return answer


def accounted(home: Home, config: LaunchConfig, answer: dict, times: int = 1) -> None:
    """Compare the guarantee of report, ledger and answer with what the file's mechanisms cost by the accountants.

    Args:
      times: launches that spent as much.
    """
    public = home.public(answer["launch_id"])
    disclosure = Disclosure.model_validate_json((public / "report" / "disclosure.json").read_bytes())
    rounds = json.loads((public / "fine_tune" / "result.json").read_bytes())["result"]
    strategy = mechanisms.build(config.mechanism)
    squared = strategy.sensitivity_squared(
        config.mechanism.rounds,
        rounds["observed_min_sep"] or config.mechanism.min_sep,
        max(rounds["observed_max_participations"], 1),
    )
    # By the clock the floor and the cap are what was reserved, and what came out is what is paid.
    assert squared <= mechanisms.sensitivity_squared(config.mechanism)
    trained, noised, total = disclosure.release(Training), disclosure.accounting.rho, disclosure.accounting.total
    assert (trained is not None) == config.trains
    assert trained is None or (trained.participation.timetable is None) == (config.mechanism.timer_days is None)
    # What secure aggregation's rounding may add to a norm counts too.
    rounding = 1e-3 if config.mechanism.secagg else None
    training = squared / (2 * strategy.noise_multiplier**2) if config.trains else 0.0
    trains, held_out = sum(config.beside_training.values()) + training, config.evaluation
    # A device trains or is held out; the larger of the two losses is the launch's.
    assert noised == pytest.approx(max(trains, held_out.rho if held_out else 0.0), rel=rounding)
    uncovered = [access for access in disclosure.data_accesses if access.data == "private" and not access.covered]
    assert (not uncovered) == (held_out is not None)
    assert home.tacit("ledger", "show")["totals"][config.population] == pytest.approx(times * noised)
    assert answer["epsilon"] == float(up(total.epsilon))
    failure = config.central_discovery.failure if config.central_discovery else 0.0
    beside_noise = {name for part in total.parts if part.how != "noise" for name in part.releases}
    assert ("local_words" in beside_noise) == (failure == 0)
    for part in (part for part in total.parts if part.rho is not None):
        failed = failure if part.split == "train" else 0.0
        assert part.epsilon == pytest.approx(epsilon_of_rho(part.rho, part.delta - failed))
    assert max(part.rho or 0.0 for part in total.parts) == pytest.approx(noised)
    # Where words have no rho, none covers the launch.
    assert total.rho == (None if total.words else noised)
    assert answer["rho"] == (None if total.rho is None else float(up(total.rho, 4)))
    again = home.tacit("account", answer["launch_id"])
    assert again["rho"] == (None if total.rho is None else pytest.approx(total.rho))
    norms = {point["clip_norm"] for point in disclosure.curves.fine_tuning}
    assert (len(norms) > 1) == (config.mechanism.adaptive_clipping is not None)
    tuned_here = any("on this population before this launch" in each for each in disclosure.limitations)
    assert tuned_here == (config.tuning == "this population")


def reported(home: Home, config: LaunchConfig, run_id: str) -> None:
    """Look for what is only of such a file in its report, and in its bundle."""
    public = home.public(run_id)
    html = (public / "report" / "report.html").read_text(encoding="utf-8")
    assert (NAMES[config.mechanism.kind] in html) == config.trains
    for told, so in (
        ("Under secure aggregation (", config.mechanism.secagg is not None),
        ("Votes are added by secure aggregation", config.mechanism.secagg is not None),
        ("This trusts the server", config.trust == "server"),
        ("population is synthetic", config.private_text.source != "files"),
        ("trained without privacy, simulation only", config.ab_test.non_private_upper_bound),
        ("With sampling counted", config.mechanism.kind == "independent"),
    ):
        assert (told in html) == so, told
    bundle = public / "publish" / "bundle"
    # Counts that only moved the start are not shipped.
    shipped = config.counts is not None and not config.counts.moves_start
    assert (bundle / "counts.npz").exists() == shipped
    assert (bundle / "model.onnx").exists() == (config.ships != "counts")


def published(home: Home, file: Path, run_id: str) -> None:
    """Approve a launch where its file says so."""
    config = load_launch(file)
    if config.reviewers:
        approved(home, config, run_id)
        home.tacit("launch", str(file))
    stated = json.loads((home.public(run_id) / "publish" / "result.json").read_bytes())["result"]
    assert stated["published"], stated["reason"]


def tried(home: Home, file: Path, run_id: str) -> None:
    """Let the DAG of a launch's experiment begin it and, once it has simulated logs, wait for them and decide."""
    places = {"AIRFLOW_HOME": home.folder / "airflow", "TACIT_LAUNCHES": file, "TACIT_BIN": home.program}
    places |= {"AIRFLOW__CORE__DAGS_FOLDER": ROOT / "dags", "AIRFLOW__CORE__PLUGINS_FOLDER": ROOT / "dags" / "plugins"}
    told = environment(home.folder, **{name: str(place) for name, place in places.items()})

    def airflow(*words: str) -> None:
        command = ["bash", "-c", 'set -a; . dags/airflow.env; exec "$@"', "airflow", AIRFLOW, *words]
        done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
        assert not done.returncode, f"airflow {' '.join(words)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"

    run = ("dags", "test", f"experiment-{file.stem}", "--conf", json.dumps({"launch": run_id}))
    airflow("db", "migrate")
    airflow(*run, "--mark-success-pattern", "logs|settle")
    begun = home.tacit("experiment", "status", run_id)
    # Days of a simulated population are those before it.
    assert (begun["over"], begun["arrived"], begun["ended"]) == (True, False, None)
    home.tacit("experiment", "simulate", run_id)
    airflow(*run)
    assert home.tacit("experiment", "status", run_id)["ended"] == "promote"
    assert home.tacit("status", run_id)["state"] == "published"


def approved(home: Home, config: LaunchConfig, run_id: str) -> None:
    """Approve a launch as this account by the command line; further reviewers are accounts that this machine lacks."""
    own, *others = config.reviewers[: config.policy.approvals]
    home.tacit("ledger", "reviewer", config.population, own)
    concerns = home.tacit("review", run_id)["concerns"]
    accepted = [word for number in range(1, len(concerns) + 1) for word in ("--accept", str(number))]
    home.tacit("review", run_id, "--answer", "approve", "--reason", "read", *accepted)
    here, run = at(home.folder), RunDir(home.folder / "runs", run_id, as_it_lies)
    report = run.result("report")["disclosure_sha256"]
    for name in others:
        given = Review(account=f"os:{name}", answer="approve", reason="read", report=report)
        review(config, run, PrivacyLedger.of(here), signed(here, config.population, run_id, given))


def proved(home: Home, run_id: str) -> None:
    """Check a copy of the public folder by others' tools, and by ours without anything private."""
    got = home.folder / "got"
    trusted = {role: home.folder / f"{role}.pub" for role in ("launch", "model")}
    shutil.rmtree(got, ignore_errors=True)
    shutil.copytree(home.public(run_id), got)
    for role, path in trusted.items():
        path.write_bytes(keys.pem(keys.public_keys(at(home.folder), role)[-1]))
    layout = ("--layout", "proof/root.layout", "--link-dir", "proof", "--verification-keys", trusted["launch"])
    model = ("publish/bundle", "--signature", "proof/model.sig", "--public_key", trusted["model"])
    for command in (
        (BIN / "in-toto-verify", *layout),
        (BIN / "model_signing", "verify", "key", *model),
        (sys.executable, "-I", "-S", ROOT / "docs" / "check_proof.py", ".", sha256(trusted["launch"])),
    ):
        done = subprocess.run([*map(str, command)], cwd=got, capture_output=True, text=True, check=False)
        assert not done.returncode, f"{command[0]}: {done.stdout}{done.stderr}"
        (got / "public.link").unlink(missing_ok=True)  # of in-toto's inspection
    home.tacit("verify", "--public", str(got), "--key", sha256(trusted["launch"]))


@pytest.mark.timeout(2_400)  # some four minutes alone on two cores, two launches and their erasure
@pytest.mark.parametrize("path", OF_PEOPLE, ids=lambda path: path.stem)
def test_a_launch_of_people_is_rehearsed(path: Path, home: Home, step: Step) -> None:
    rehearsal = partial(rehearse, path, home.folder, people=PEOPLE, scale=SCALE, program=(str(home.program),))
    with step("made-up people"):
        begun = rehearsal(prepare=True)
        assert isinstance(begun, Prepared)
        for each in (begun.launch_file, home.folder / "second" / begun.launch_file.name):
            keyed(home.folder / "runs", each)
    with step("rehearsal"):
        done = rehearsal()
    assert isinstance(done, Report)
    config = load_launch(home.folder / f"rehearsal-{path.name}")
    first, second = done.launches
    with step(f"not exercised: {', '.join(done.not_exercised)}"):
        assert all(gate.passed for gate in done.gates)
    with step("accounts"):
        decided = json.loads((home.public(first) / "decide" / "result.json").read_bytes())["result"]["headline"]
        accounted(home, config, {"launch_id": first, "rho": None, **decided}, times=2)
        reported(home, config, first)
    with step("rolled back and erased"):
        assert home.tacit("status", first)["state"] == "published"
        assert home.tacit("status", second)["state"] == "rolled back"
        assert not (home.folder / "runs" / first / "private").exists()
    with step("report"):
        written = page.write(done, home.folder).read_text(encoding="utf-8")
        assert all(f"| {each.field} |" in written for each in done.stand_ins)


@pytest.mark.parametrize("path", [path for path in FILES if path not in OF_PEOPLE], ids=lambda path: path.stem)
def test_a_shape_that_ships_runs_to_its_end(path: Path, home: Home, step: Step) -> None:
    made = small(path, home.folder)
    config = load_launch(made.file)
    with step(f"not exercised: {', '.join(made.not_exercised)}"):
        pass
    installed(home.folder, *([] if config.private_text.registers_itself else [config.population]), by=account())
    with step("launch"):
        answer = launched(home, made.file)
        first = answer["launch_id"]
    with step("accounts"):
        accounted(home, config, answer)
    with step("publish"):
        published(home, made.file, first)
        reported(home, config, first)
    if config.experiment:
        with step("experiment in Airflow"):
            tried(home, made.file, first)
    with step("erase"):  # which refuses a launch that does not verify
        home.tacit("erase", first)
        assert not (home.folder / "runs" / first / "private").exists()
    with step("verify what is left"):
        assert home.tacit("verify", first)["ok"]
    with step("proof"):
        proved(home, first)
