"""People whose text is kept in a window: their rows, a launch on them and its stages."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipeline.launch.config import LaunchConfig
from pipeline.run.stage import Stage
from pipeline.stages import graph, ingest
from tests.helpers.launches.pipeline_launch import Counted, launch_config, spend
from tests.helpers.launches.stages import stages_of

NOW = datetime(2026, 3, 15, 12, tzinfo=UTC)
POLICY = {
    "budget": {"rho": 1.0, "days": 60},
    "population_max_rho": None,
}
# A launch that reads their text, spends and ends.
STAGES = stages_of(
    {
        "ingest_private": ingest.ingest_private,
        "fine_tune": lambda ctx: Counted(value=1, spend=spend(0.4)),
        "decide": lambda ctx: Counted(value=1),
    },
    graph.STAGES["ingest_private"],
    Stage(
        "fine_tune",
        "",
        needs=("ingest_private",),
        private=("ingest_private/store",),
        planned=lambda config, run: spend(0.4),
    ),
)
# In the text of everybody.
WORD = "typed"


def people(folder: Path, **policy: object) -> LaunchConfig:
    """Twenty devices with a row of each of the last hundred days, oldest first."""
    path = folder / "typed.jsonl"
    if not path.exists():
        rows = [
            {
                "client_id": f"device {device}",
                "text": f"typed {'abcdefghij'[day % 10]}",
                "ts": f"{at:%Y-%m-%dT12:00:00Z}",
            }
            for device in range(20)
            for day, at in ((day, NOW - timedelta(days=99 - day)) for day in range(100))
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    text = {"source": "files", "paths": [str(path)], "name": "real", "max_words_per_device": 1000}
    return launch_config(private_text=text, policy=POLICY | policy)
