"""Edits of a finished launch, as whoever tampers with it would make them."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save_file

from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.note import Inclusion, Signed
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, receipt_digest, record_text
from pretrain.files import sha256

Edit = Callable[["Launch"], None]
SPENT = "public/proof/fine_tune.commit.tlog-proof"


@dataclass(frozen=True)
class Launch:
    """A finished launch to tamper with."""

    settings: Settings
    run: RunDir

    def file(self, place: str) -> Path:
        return self.run.path / place

    def result(self, stage: str) -> dict:
        return json.loads(self.file(f"public/{stage}/{RESULT}").read_text(encoding="utf-8"))

    def along(self, stage: str, ledger_too: bool) -> None:
        """Change the digests that a stage's record names, and with ``ledger_too`` what the ledger holds of it."""
        path = self.file(f"public/{stage}/{RESULT}")
        if not path.is_file():
            return
        record = self.result(stage)
        record["outputs"] = {
            name: sha256(path.parent / name) for name in record["outputs"] if (path.parent / name).is_file()
        }
        seal = self.file(f"private/{stage}/.manifest.json")
        if seal.is_file():
            sealed = json.loads(seal.read_text(encoding="utf-8"))
            sealed["files"] = {
                name: sha256(seal.parent / name) for name in sealed["files"] if (seal.parent / name).is_file()
            }
            seal.write_text(json.dumps(sealed, sort_keys=True), encoding="utf-8")
            record["private_digest"] = sha256(seal)
        if ledger_too:
            ledger, made = PrivacyLedger.of(self.settings), StageRecord.model_validate(record)
            record["ledger"]["result"] = ledger.bind_result(self.run.launch_id, stage, receipt_digest(made))
        path.write_text(record_text(StageRecord.model_validate(record)), encoding="utf-8")


def _digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: sha256(folder / name) for name in names if (folder / name).is_file()}


def at(content: dict, path: str) -> tuple[dict | list, str | int]:
    """The block that holds a dotted place, and its key there."""
    *steps, last = (int(part) if part.isdigit() else part for part in path.split("."))
    for step in steps:
        content = content[step]
    return content, last


def stated(stage: str, path: str, change: object) -> Edit:
    """Replace a place of a stage's result by a value, or by what a function makes of it."""

    def edit(launch: Launch) -> None:
        record = launch.result(stage)
        block, key = at(record["result"], path)
        block[key] = change(block[key]) if callable(change) else change
        launch.file(f"public/{stage}/{RESULT}").write_text(json.dumps(record), encoding="utf-8")

    return edit


def in_json(place: str, path: str, change: object) -> Edit:
    """Replace a place of a JSON file."""

    def edit(launch: Launch) -> None:
        file = launch.file(place)
        content = json.loads(file.read_text(encoding="utf-8"))
        block, key = at(content, path)
        block[key] = change(block[key]) if callable(change) else change
        file.write_text(json.dumps(content), encoding="utf-8")

    return edit


def in_text(place: str, old: str, new: str) -> Edit:
    def edit(launch: Launch) -> None:
        file = launch.file(place)
        content = file.read_text(encoding="utf-8")
        assert old in content, f"{place} no longer holds {old!r}"
        file.write_text(content.replace(old, new, 1), encoding="utf-8")

    return edit


def copied(source: str, destination: str) -> Edit:
    return lambda launch: shutil.copy(launch.file(source), launch.file(destination))


def written(place: str, content: str = "more") -> Edit:
    def edit(launch: Launch) -> None:
        launch.file(place).parent.mkdir(parents=True, exist_ok=True)
        launch.file(place).write_text(content, encoding="utf-8")

    return edit


def removed(place: str) -> Edit:
    def edit(launch: Launch) -> None:
        path = launch.file(place)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return edit


def weights(stage: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """Change the first matrix of a stage's model."""

    def edit(launch: Launch) -> None:
        path = launch.file(f"public/{stage}/model.safetensors")
        tensors = load_file(path)
        name = sorted(tensors)[0]
        save_file({**tensors, name: change(tensors[name]).astype(np.float32)}, path)

    return edit


def one_weight(values: np.ndarray) -> np.ndarray:
    changed = values.copy()
    changed.flat[0] += 1.0
    return changed


def receipt(change: Callable[[Inclusion], Inclusion]) -> Edit:
    """Change the proof that the log has the spend of training."""

    def edit(launch: Launch) -> None:
        file = launch.file(SPENT)
        file.write_text(change(Inclusion.parsed(file.read_text(encoding="utf-8"))).text, encoding="utf-8")

    return edit


def another_place(found: Inclusion) -> Inclusion:
    return replace(found, path=(bytes(32), *found.path[1:]))


def half_spent(found: Inclusion) -> Inclusion:
    shown = json.loads(found.extra)
    return replace(found, extra=json.dumps(shown | {"rho": shown["rho"] / 2}).encode())


def unwitnessed(found: Inclusion) -> Inclusion:
    return replace(found, signed=Signed(found.signed.checkpoint, found.signed.lines[:1]))


def receipt_of_another(launch: Launch) -> None:
    """A spend of another launch that stands in the witnessed log, as that of this one."""
    ledger = PrivacyLedger.of(launch.settings)
    spent = next(entry for entry in ledger.spends() if (entry.stage, entry.kind) == ("fine_tune", "reserve"))
    made = ledger.note("attempt", spent.population, "another", "fine_tune", {})
    launch.file(SPENT).write_text(ledger.inclusions("another", {made.hash})[made.hash].text, encoding="utf-8")


def participation(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Edit:
    """Change who took part in which round, in the last file of records."""

    def edit(launch: Launch) -> None:
        path = sorted(launch.file("private/fine_tune/rounds/participation.parquet").iterdir())[-1]
        table = pq.read_table(path)
        rounds_N, devices_N = change(*(table[name].to_numpy().copy() for name in ("round", "device")))
        pq.write_table(pa.table({"round": rounds_N, "device": devices_N}), path)

    return edit


def another_device(rounds_N: np.ndarray, devices_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return rounds_N, np.append(devices_N[:-1], devices_N[-1] + 1)


def arrays(place: str, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def edit(launch: Launch) -> None:
        with np.load(launch.file(place)) as file:
            content = {key: file[key] for key in file.files}
        np.savez(launch.file(place), **{**content, name: change(content[name])})

    return edit


def disclosed(*changes: tuple[str, object]) -> Edit:
    """Change the disclosure and render every page again from it."""

    def edit(launch: Launch) -> None:
        from reports import render
        from reports.disclosure.document import Disclosure

        folder = launch.file("public/report")
        for path, change in changes:
            in_json("public/report/disclosure.json", path, change)(launch)
        pages = render.render(Disclosure.model_validate_json((folder / "disclosure.json").read_bytes()), folder)
        # Another disclosure may have another page; whoever forges one names it.
        record = launch.result("report")
        record["outputs"] |= {page.relative_to(folder).as_posix(): sha256(page) for page in pages}
        (folder / RESULT).write_text(json.dumps(record), encoding="utf-8")
        stated("report", "disclosure_sha256", sha256(folder / "disclosure.json"))(launch)

    return edit


def in_bundle(edit: Edit) -> Edit:
    """Change a bundle's file, and its digest in ``bundle.json``."""

    def both(launch: Launch) -> None:
        edit(launch)
        folder = launch.file("public/publish/bundle")
        about = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
        about["files"] = {name: sha256(folder / name) for name in about["files"]}
        (folder / "bundle.json").write_text(json.dumps(about, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    return both


def start_as_bundle(launch: Launch) -> None:
    """The model before private training, exported in place of the launch's."""
    from pipeline.launch.config import LaunchConfig
    from pretrain.model import export

    config = LaunchConfig.model_validate_json(launch.file("public/launch/launch.json").read_bytes())
    model = export.load_model(launch.file("public/adapt/model.safetensors"), config.model)
    export.export_onnx(model, launch.file("public/publish/bundle/model.onnx"))


def half(value: float) -> float:
    return value / 2


def more(value: float) -> float:
    return value + 1


def other(decision: str) -> str:
    return "hold" if decision == "launch" else "launch"


def flipped(value: bool) -> bool:
    return not value


def registered_file(name: str) -> Edit:
    """Overwrite a file of the registered model."""

    def edit(launch: Launch) -> None:
        (path,) = (launch.settings.runs_dir / "mlflow-artifacts").glob(f"*/models/*/artifacts/{name}")
        path.write_bytes(b"# changed\n" + path.read_bytes())

    return edit


def logged_file(name: str, content: bytes) -> Edit:
    """Write a file of a stage's run."""

    def edit(launch: Launch) -> None:
        (path,) = (launch.settings.runs_dir / "mlflow-artifacts").rglob("comparison.json")
        (path.parent / name).write_bytes(content)

    return edit


def in_tracking(statement: str, *values: object) -> Edit:
    def edit(launch: Launch) -> None:
        with sqlite3.connect(launch.settings.runs_dir / "mlflow.db") as database:
            assert database.execute(statement, values).rowcount, statement

    return edit
