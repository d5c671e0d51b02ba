"""A published graph becomes the model again that it was made from."""

from pathlib import Path

import pytest
import torch

from pretrain import export
from pretrain.config import ModelConfig
from pretrain.graph import load_graph
from pretrain.model import build_model


@pytest.mark.parametrize("tied", [True, False])
def test_graph_becomes_the_model_again(tmp_path: Path, tied: bool) -> None:
    model = build_model(ModelConfig(embedding_dim=6, hidden_dim=10, tied=tied), 23, 3)
    export.export_onnx(model, tmp_path / "model.onnx")
    again = load_graph(tmp_path / "model.onnx")
    assert (again.tied, again.vocabulary_size, again.hidden_dim) == (tied, 23, 10)
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\xff" * 50)
    with pytest.raises(ValueError, match="not an ONNX file"):
        load_graph(tmp_path / "model.onnx")
    model = build_model(ModelConfig(embedding_dim=6, hidden_dim=10, tied=True), 23, 3)
    export.export_onnx(model, tmp_path / "model.onnx")
    export.quantise(tmp_path / "model.onnx", tmp_path / "small.onnx")
    with pytest.raises(ValueError, match=r"lacks .*float32 model\.onnx"):
        load_graph(tmp_path / "small.onnx")
