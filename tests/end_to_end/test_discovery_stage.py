"""Discovery as a stage: the processes it is given change nothing, and nothing raw is left behind."""

import json
from pathlib import Path

import pytest
import yaml

from discovery.device import votes as shards
from pipeline.ground import settings
from pipeline.launch.config import launch_id, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import runner
from pipeline.stages.graph import STAGES
from tests.helpers.launches.installed import installed
from tests.helpers.launches.tiny_launch import write_launch

BEFORE = ("ingest_public", "ingest_private", "plan")


def discover(folder: Path, processes: int) -> tuple[dict, settings.Settings, Path]:
    """The record of the stage, in a folder of its own, with noise that everybody can draw again."""
    runtime = {"chunk_devices": 4, "workers": processes}
    launch = write_launch(folder, runtime=runtime)
    raw = yaml.safe_load(launch.read_text(encoding="utf-8"))
    raw["mechanism"]["randomness"], raw["private_text"]["source"] = "seeded", "made_up_files"
    launch.write_text(yaml.safe_dump(raw), encoding="utf-8")
    config = load_launch(launch)
    here = settings.load({"TACIT_HOME": str(folder)})
    installed(folder, config.population)
    for name in (*BEFORE, "discover"):
        outcome = runner.run_stage(name, config, launch_id(config), here, STAGES)
    return outcome.record.model_dump(), here, here.runs_dir / launch_id(config)


@pytest.mark.slow
def test_processes_give_the_stage_the_same_words_and_one_reservation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    handed_out = []
    original = shards.in_processes

    def watched(question, chunks, *rest):
        handed_out.append(len(chunks))
        return original(question, chunks, *rest)

    monkeypatch.setattr(shards, "in_processes", watched)
    monkeypatch.setattr(shards, "WORTH_COMPILING", 4)
    kept = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        record, here, run = discover(folder, processes)
        assert bool(handed_out) is (processes == 2)
        kept[processes] = (record["outputs"], {k: v for k, v in record["result"].items() if k != "spend"})
        entries = [entry for entry in PrivacyLedger.of(here).entries() if entry.stage == "discover"]
        assert [entry.kind for entry in entries] == ["reserve", "commit"]
        left = sorted(path.name for path in (run / "private" / "discover" / "layers").rglob("*") if path.is_file())
        # Summed and noisy, or who was asked; no message, and votes of whole layers alone.
        assert {name.partition(".")[2] for name in left} == {"", "json", "npy", "parquet"}
        assert sum(name.endswith(".npy") for name in left) == sum(name.endswith(".json") for name in left)
        assert {name for name in left if "." not in name} == {"fingerprint"}
        layer = json.loads((run / "private/discover/layers/layer-01.json").read_text(encoding="utf-8"))
        assert set(layer) == {"row", "prefixes", "words", "forms"}
    assert max(handed_out) == 2
    assert kept[1] == kept[2]
    assert kept[1][1]["words_found"] > 0
    layers = kept[1][1]["curve"]
    assert [point["step"] for point in layers] == list(range(1, len(layers) + 1))
    assert {"domain", "noise", "finished", "kept"} <= set(layers[0]), "what MLflow draws by layer"
