"""A home as `tacit ledger init` and `tacit ledger register` leave it."""

import hashlib
from pathlib import Path
from unittest import mock

from federated.config.population import population_key
from pipeline.ground import settings as settings_module
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id, load_launch
from pipeline.ledger.budget import Budget
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.run_dir import RunDir
from pipeline.stages.graph import SPENDING

AMPLE = 1e3


def at(home: Path, ledger_url: str = "") -> Settings:
    """Settings of a home, whose ledger may be elsewhere."""
    home.mkdir(exist_ok=True)
    given = {"TACIT_HOME": str(home), "TACIT_GIT_COMMIT": "tests"}
    return settings_module.load(given | ({"TACIT_LEDGER_URL": ledger_url} if ledger_url else {}))


def installed(home: Path, *populations: str, budget: float = AMPLE, by: str = "tests") -> PrivacyLedger:
    """The ledger of a home with these populations in it."""
    ledger = PrivacyLedger.create(at(home))
    registered(ledger, *populations, budget=budget, by=by)
    return ledger


def registered(
    ledger: PrivacyLedger, *populations: str, budget: float | Budget = AMPLE, by: str = "tests"
) -> PrivacyLedger:
    """The same ledger with populations of these keys in it, whose devices are split alike in every run of the tests.

    One split in thousands leaves none of eighty devices for training to be watched on, and a launch is refused.

    Args:
      budget: all of it, or how much rho.
      by: the account that registers and may change it.
    """
    granted = budget if isinstance(budget, Budget) else Budget(max_rho=budget, max_words_epsilon=1e6, delta=0.1)
    for key in map(population_key, populations):
        secret = hashlib.sha256(key.encode()).digest()
        # In that module alone: what else draws meanwhile, as the salt of an entry, draws anew.
        with mock.patch("pipeline.ledger.ledger.fresh_bytes", return_value=secret):
            ledger.register(key, granted, by)
    return ledger


def keyed(runs: Path, file: Path) -> None:
    """Draw the keys of a launch that another process will make, where its stages would: alike in every run of tests.

    By one key in a hundred an audit holds the launch, as audits must.
    """
    run = RunDir(runs, launch_id(load_launch(file)))
    for stage in (*SPENDING, "audit"):
        run.secret(stage)
