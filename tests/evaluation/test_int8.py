"""The int8 form ships only where it was measured to be as good, smaller and no slower."""

from pathlib import Path

import numpy as np
import pytest

from evaluation import int8
from evaluation.int8 import measure
from pretrain.config import ModelConfig
from pretrain.model.export import export_onnx, parity, quantise
from pretrain.model.keyboard_lm import KeyboardLM, build_model, sentence_rows
from tests.helpers.text.pretrain_streams import chain_stream, trained_on_chains


@pytest.fixture
def rows() -> np.ndarray:
    return sentence_rows(chain_stream(20, 9).tokens_N, 10)[0]


def forms(model: KeyboardLM, folder: Path) -> tuple[Path, Path]:
    export_onnx(model, folder / "model.onnx")
    quantise(folder / "model.onnx", folder / "int8.onnx")
    return folder / "model.onnx", folder / "int8.onnx"


@pytest.mark.slow
def test_what_misses_no_threshold_ships(tmp_path: Path, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    # A step of so small a model is all overhead; its time says nothing.
    monkeypatch.setattr(int8, "MAX_LATENCY_RATIO", 100.0)
    model = trained_on_chains(True, tmp_path, vocabulary_size=2000)
    path, small = forms(model, tmp_path)
    found = measure(model, path, small, rows)
    alone = [parity(model, small, row[None], tolerance=None) for row in rows]
    assert found.words == sum(part.steps for part in alone) == int((rows != 0).sum())
    expected = np.average([part.top1_agreement for part in alone], weights=[part.steps for part in alone])
    assert found.top1_agreement == pytest.approx(expected), "compared one word at a time, as a keyboard runs it"
    assert (found.float_bytes, found.int8_bytes) == (path.stat().st_size, small.stat().st_size)
    assert 0 < found.int8_seconds < 1
    monkeypatch.setattr(int8, "MIN_TOP1_AGREEMENT", found.top1_agreement)
    monkeypatch.setattr(int8, "MIN_TOP3_AGREEMENT", found.top3_agreement)
    found = measure(model, path, small, rows)
    assert (found.shipped, found.reasons) == (True, ())


def test_each_threshold_holds_int8_back(tmp_path: Path, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    loose = {"MIN_TOP1_AGREEMENT": 0.0, "MIN_TOP3_AGREEMENT": 0.0, "MAX_SIZE_RATIO": 9.0, "MAX_LATENCY_RATIO": 100.0}
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=True), 24, seed=3)
    paths = forms(model, tmp_path)
    for name, value, reason in (
        ("MIN_TOP1_AGREEMENT", 1.01, "top-1 agreement"),
        ("MIN_TOP3_AGREEMENT", 1.01, "top-3 agreement"),
        ("MAX_SIZE_RATIO", 0.01, "size "),
        ("MAX_LATENCY_RATIO", 1e-9, "time "),
    ):
        for other, limit in (loose | {name: value}).items():
            monkeypatch.setattr(int8, other, limit)
        found = measure(model, *paths, rows)
        assert not found.shipped
        (said,) = found.reasons
        assert said.startswith(reason)


@pytest.mark.slow
def test_times_and_sizes_are_of_the_form_that_they_are_said_to_be_of(tmp_path: Path, rows: np.ndarray) -> None:
    paths, models = [], []
    for width, size in ((8, 24), (128, 20_000)):
        model = build_model(ModelConfig(embedding_dim=width, hidden_dim=width, tied=True), size, seed=3)
        export_onnx(model, tmp_path / f"{size}.onnx")
        models.append(model)
        paths.append(tmp_path / f"{size}.onnx")
    quicker = measure(models[0], paths[1], paths[0], rows[:5])
    assert (quicker.shipped, quicker.int8_seconds < quicker.float_seconds) == (True, True)
    slower = measure(models[1], paths[0], paths[1], rows[:5])
    assert not slower.shipped
    assert [reason.split()[0] for reason in slower.reasons] == ["size", "time"]
