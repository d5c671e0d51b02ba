"""Inputs of a spending stage are there, as earlier stages left them, before it spends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.ground.errors import StageInputMissing
from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import runner
from pipeline.run.bookkeeping import SEAL
from tests.helpers.launches.private_stages import FIRST, A, Private

STORE = Path("store") / "words.txt"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (STORE, lambda path: path.write_text("what people", encoding="utf-8")),
        (STORE, lambda path: path.unlink()),
        (Path(SEAL), lambda path: path.write_text("{", encoding="utf-8")),
    ],
)
def test_a_damaged_store_is_found_before_anything_is_reserved(
    private: Private, settings: Settings, file: Path, damage: Callable[[Path], object]
):
    runner.run_stage("ingest_private", FIRST, A, settings, private.stages)
    folder = settings.runs_dir / A / "private" / "ingest_private"
    damage(folder / file)
    with pytest.raises(StageInputMissing, match=rf"{file.name}: damaged or gone.*delete {folder} and run stage 'ing"):
        runner.run_stage("discover", FIRST, A, settings, private.stages)
    assert PrivacyLedger.of(settings).spends() == []
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    for stage in ("ingest_private", "discover"):
        runner.run_stage(stage, FIRST, A, settings, private.stages)
    assert private.made == ["ingest_private", "ingest_private", "discover"], "as the message says"


def test_what_was_reserved_goes_on_without_them(private: Private, settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """What was computed before a crash is finished, whatever became of the store since."""
    runner.run_stage("ingest_private", FIRST, A, settings, private.stages)
    with monkeypatch.context() as patched:
        patched.setattr(PrivacyLedger, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            runner.run_stage("discover", FIRST, A, settings, private.stages)
    (settings.runs_dir / A / "private" / "ingest_private" / STORE).unlink()
    runner.run_stage("discover", FIRST, A, settings, private.stages)
    assert private.made == ["ingest_private", "discover"]
    assert [entry.kind for entry in PrivacyLedger.of(settings).spends()] == ["reserve", "commit"]
