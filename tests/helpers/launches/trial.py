"""A launch in its live experiment, and logs of its buckets."""

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa

from pipeline.experiments import decide as live
from pipeline.experiments import logs
from pipeline.experiments.entries import Experiment
from pipeline.ground import settings as settings_module
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import Standing, standing
from pipeline.publication.registry import Registry
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RunDir
from tests.helpers.launches import publishable
from tests.helpers.launches.installed import installed
from tests.helpers.launches.publishable import NAME
from tests.helpers.launches.published import publish as published_before
from tests.helpers.launches.tracking_database import put

BLOCK = {"share": 0.25, "days": 2, "min_gain": -0.02}
TREATED, CONTROL = 25, 75


@dataclass(frozen=True)
class Trial:
    """A launch in its experiment."""

    settings: Settings
    run_id: str

    @property
    def run(self) -> RunDir:
        return run_folder(self.settings, self.run_id)

    @property
    def config(self) -> LaunchConfig:
        path = self.run.path / "public" / "launch" / "launch.json"
        return LaunchConfig.model_validate_json(path.read_text(encoding="utf-8"))

    @property
    def ledger(self) -> PrivacyLedger:
        return PrivacyLedger.of(self.settings)

    @property
    def now(self) -> Standing:
        return standing(self.config, self.run, self.ledger)

    @property
    def tried(self) -> Experiment:
        return live.begun(self.config, self.run, self.ledger)

    def alias(self, name: str) -> int | None:
        return Registry(self.settings).alias(NAME, name)

    def logged(self, picks: float = 1.0, treated: int = TREATED, **changes: float) -> list[str]:
        """Logs of its days, in which those with the model pick so many times as often."""
        rows = []
        for number in range(treated + CONTROL):
            with_it = number < treated
            for day in range(BLOCK["days"]):
                size = 1000 + 37 * (number * 7 % 11) + day
                counts = {"shown": size, "picked": 0.1 * size * (picks if with_it else 1), "correct": 0.5 * size}
                counts |= {"triggered": 0, "accepted": 0, "committed": size, "modified": 0.05 * size}
                counts |= {name: counts[name] * value for name, value in changes.items() if with_it}
                rows.append(
                    {
                        "arm": "treatment" if with_it else "control",
                        "bucket": str(number),
                        "day": self.tried.first + timedelta(days=day),
                        "seconds": 3.0 * size,
                    }
                    | {name: int(value) for name, value in counts.items()}
                )
        folder = self.settings.device_logs / self.run_id
        folder.mkdir(parents=True, exist_ok=True)
        logs.write(pa.Table.from_pylist(rows, logs.SCHEMA), folder / "logs.parquet", simulated=True)
        return [str(folder / "logs.parquet")]

    def decide(self, files: list[str], by: str = "ana", **more: date) -> live.DecisionResult:
        return live.decide(self.config, self.run, self.settings, files, by, **more)


def second_launch(tracking_database: Path, home: Path, **changes: object) -> Trial:
    """A published launch that may begin its experiment, after a first one that users have."""
    put(tracking_database, home)
    installed(home)
    here = settings_module.load({"TACIT_HOME": str(home)})
    published_before(here, home, "before-00000001")
    return Trial(here, publishable.launch(here, home, **changes)["run_id"])
