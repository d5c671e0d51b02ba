"""A launch runs with each mechanism by exchanging one block of its file, and its report says what that is worth."""

import json
from pathlib import Path

import pytest

from federated import mechanisms
from federated.accounting.gaussian import epsilon_of_rho
from federated.accounting.guarantees import guarantee_of
from federated.participation.observed import Observed
from pipeline.config import launch_id, load_launch
from pipeline.verify import observed
from reports.disclosure.document import Disclosure
from tests.helpers.command import tacit
from tests.helpers.tiny_launch import write_launch

pytestmark = pytest.mark.slow

BASE = {"clip_norm": 0.3, "rounds": 6, "report_goal": 10, "delta": 1e-6, "randomness": "secure"}
SPACED = BASE | {"noise_multiplier": 4.0, "min_sep": 2, "max_participations": 2}
ADAPTIVE = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 5.0}
BLOCKS = {
    "tree": SPACED | {"kind": "tree", "restarts": [3], "adaptive_clipping": ADAPTIVE},
    "blt": SPACED | {"kind": "blt", "preset": "min-sep-100", "secagg": {"bits": 32}},
    "banded": SPACED | {"kind": "banded", "bands": 2, "form": "matrix"},
    "independent": BASE | {"kind": "independent", "noise_multiplier": 2.0, "sampling": "poisson", "population": 30},
}
NAMES = {"tree": "tree aggregation", "blt": "Toeplitz", "banded": "banded", "independent": "DP-FedAvg"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mechanisms")


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_report_states_the_guarantee_of_its_mechanism(home: Path, kind: str) -> None:
    file = write_launch(home, name=f"tiny-{kind}", mechanism=BLOCKS[kind])
    done = tacit(home, "launch", str(file), "--json")
    assert done.returncode == 0, done.stderr
    answer, config = json.loads(done.stdout), load_launch(file)
    public = home / "runs" / launch_id(config) / "public"
    said = Disclosure.model_validate_json((public / "report" / "disclosure.json").read_text(encoding="utf-8"))
    seen: Observed = observed(json.loads((public / "fine_tune" / "result.json").read_text(encoding="utf-8"))["result"])
    mechanism = mechanisms.build(config.mechanism)
    squared = mechanism.sensitivity_squared(6, seen.min_sep or 2, max(seen.max_participations, 1))
    assert said.accounting.rho == pytest.approx(squared / (2 * config.mechanism.noise_multiplier**2))
    assert said.accounting.rho == answer["rho"]
    assert said.accounting.epsilon == pytest.approx(epsilon_of_rho(said.accounting.rho, 1e-6))
    html = (public / "report" / "report.html").read_text(encoding="utf-8")
    assert NAMES[kind] in html
    assert ("Under secure aggregation (32-bit sums, 4 neighbours" in html) == (kind == "blt")
    assert ("With sampling counted" in html) == (kind == "independent")
    if kind == "independent":
        amplified = said.accounting.amplified
        again = guarantee_of(mechanism, 6, 1, 6, (1e-6,)).amplified
        assert amplified.epsilon == pytest.approx(again.epsilon[1e-6])
        assert amplified.epsilon <= amplified.epsilon_second
    if kind == "tree":
        norms = {point["clip_norm"] for point in said.curves.fine_tuning}
        assert len(norms) == 2, "the clip norm moved at the restart"
    verified = tacit(home, "verify", answer["launch_id"], "--json")
    assert verified.returncode == 0, verified.stdout
    redone = tacit(home, "account", kind, "--run", answer["launch_id"], "--json")
    assert redone.returncode == 0, redone.stderr
    assert json.loads(redone.stdout)["rho"] == pytest.approx(answer["rho"])
