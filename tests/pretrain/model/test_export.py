"""Exported graphs are the model, and parity notices when they are not."""

import os
import resource
import signal
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from pretrain.config import ModelConfig
from pretrain.files import remove_leavings
from pretrain.model.export import export_onnx, load_graph, load_model, parity, quantise, save_model
from pretrain.model.keyboard_lm import KeyboardLM, build_model, sentence_rows
from tests.helpers.text.pretrain_streams import TINY, chain_stream, trained_on_chains


@pytest.fixture
def rows() -> np.ndarray:
    return sentence_rows(chain_stream(20, 9).tokens_N, 10)[0]


@pytest.mark.parametrize("tied", [True, False])
def test_weights_round_trip(tmp_path: Path, tied: bool) -> None:
    config = ModelConfig(embedding_dim=8, hidden_dim=12, tied=tied)
    model = build_model(config, 31, seed=1)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors", config)
    assert again.vocabulary_size == 31
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_killed_writer_of_weights_leaves_nothing_that_is_not_taken_away(tmp_path: Path, tiny_model: KeyboardLM):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # the kernel ends who writes more
        save_model(tiny_model, tmp_path / "model.safetensors")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGXFSZ
    (left,) = tmp_path.iterdir()
    assert remove_leavings(tmp_path) == [left.name]


def test_weights_of_another_shape_are_refused(tmp_path: Path, tiny_model: KeyboardLM) -> None:
    save_model(tiny_model, tmp_path / "model.safetensors")
    for changed in ({"hidden_dim": 13}, {"embedding_dim": 9}, {"tied": False}):
        with pytest.raises(ValueError, match=r"model: model.safetensors has"):
            load_model(tmp_path / "model.safetensors", TINY.model_copy(update=changed))
    (tmp_path / "text.safetensors").write_text("no weights", encoding="utf-8")
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_model(tmp_path / "text.safetensors", TINY)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_graph_equals_model_over_real_rows(tmp_path: Path, rows: np.ndarray, tied: bool) -> None:
    model = trained_on_chains(tied, tmp_path)
    export_onnx(model, tmp_path / "model.onnx")
    found = parity(model, tmp_path / "model.onnx", rows)
    assert found.max_abs_logit_diff < 1e-5
    assert (found.top1_agreement, found.top3_agreement) == (1.0, 1.0)
    assert found.steps == int((rows != 0).sum())


def test_graph_has_the_promised_names_and_shapes(tmp_path: Path, tiny_model: KeyboardLM) -> None:
    export_onnx(tiny_model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert [(value.name, value.shape) for value in session.get_inputs()] == [
        ("token", ["B"]),
        ("cell", ["B", 12]),
        ("out", ["B", 8]),
    ]
    assert [(value.name, value.shape) for value in session.get_outputs()] == [
        ("logits", ["B", 24]),
        ("next_cell", ["B", 12]),
        ("next_out", ["B", 8]),
    ]
    stored = {tensor.name: tuple(tensor.dims) for tensor in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert stored["output_EV"] == (8, 24)
    assert not any(name.endswith("embedding") for name in stored)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["embedding", "gates_x", "gates_r", "gates_b", "projection", "output", "output_bias"])
def test_parity_fails_on_any_wrong_weight(tmp_path: Path, rows: np.ndarray, name: str) -> None:
    model = trained_on_chains(tied=False, directory=tmp_path)
    export_onnx(model, tmp_path / "model.onnx")
    parameter = model.get_parameter(name)
    # gates_r acts on the carried state only: the first step of a row cannot see it.
    parameter.data += 1e-2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    with pytest.raises(ArithmeticError, match=r"model.onnx: logits differ from the model by .* allowed is 0.001"):
        parity(model, tmp_path / "model.onnx", rows)


def test_parity_allows_large_logits_their_low_digits_and_no_more(
    tmp_path: Path, tiny_model: KeyboardLM, rows: np.ndarray
) -> None:
    tiny_model.output_bias.data += 2000.0
    export_onnx(tiny_model, tmp_path / "model.onnx")
    tiny_model.output_bias.data += 0.01
    assert 1e-4 < parity(tiny_model, tmp_path / "model.onnx", rows).max_abs_logit_diff < 0.1
    tiny_model.output_bias.data += 1.0
    with pytest.raises(ArithmeticError, match=r"allowed is 0\.2"):
        parity(tiny_model, tmp_path / "model.onnx", rows)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_parity_fails_on_logits_that_are_no_numbers(
    tmp_path: Path, tiny_model: KeyboardLM, rows: np.ndarray, value: float
) -> None:
    tiny_model.output_bias.data[7] = value
    export_onnx(tiny_model, tmp_path / "model.onnx")
    with pytest.raises(ArithmeticError):
        parity(tiny_model, tmp_path / "model.onnx", rows)


def test_parity_needs_tokens(tmp_path: Path, tiny_model: KeyboardLM) -> None:
    export_onnx(tiny_model, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="holds no token"):
        parity(tiny_model, tmp_path / "model.onnx", np.zeros((2, 3), dtype=np.int32))


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_int8_is_smaller_and_close(tmp_path: Path, rows: np.ndarray, tied: bool) -> None:
    model = trained_on_chains(tied, tmp_path, vocabulary_size=2000)
    export_onnx(model, tmp_path / "model.onnx")
    quantise(tmp_path / "model.onnx", tmp_path / "int8.onnx")
    assert (tmp_path / "int8.onnx").stat().st_size < 0.5 * (tmp_path / "model.onnx").stat().st_size
    found = parity(model, tmp_path / "int8.onnx", rows, tolerance=None)
    assert found.top1_agreement > 0.8
    assert 1e-4 < found.max_abs_logit_diff < 1.0
    with pytest.raises(ArithmeticError):
        parity(model, tmp_path / "int8.onnx", rows)


def test_top3_agreement_counts_words_of_the_strip(tmp_path: Path, tiny_model: KeyboardLM) -> None:
    # Words 4 to 8 in order of their scores; special tokens outrank them all and do not count.
    with torch.no_grad():
        for weights in (tiny_model.gates_x, tiny_model.gates_r, tiny_model.projection):
            weights.zero_()
        tiny_model.output_bias.copy_(torch.arange(24.0).neg())
    export_onnx(tiny_model, tmp_path / "model.onnx")
    rows = np.array([[1, 7, 9], [1, 5, 0]])
    assert parity(tiny_model, tmp_path / "model.onnx", rows).top3_agreement == 1.0
    # The model now offers 4, 5 and 9, the graph 4, 5 and 6: two of three.
    tiny_model.output_bias.data[9] = -4.5
    found = parity(tiny_model, tmp_path / "model.onnx", rows, tolerance=None)
    assert (found.top3_agreement, found.top1_agreement) == (pytest.approx(2 / 3), 1.0)


@pytest.mark.slow
def test_rows_at_once_change_nothing_in_float(tmp_path: Path, rows: np.ndarray) -> None:
    model = trained_on_chains(True, tmp_path)
    export_onnx(model, tmp_path / "model.onnx")
    model.output_bias.data += 0.05 * torch.randn(24, generator=torch.Generator().manual_seed(1))
    together, alone, some = (
        parity(model, tmp_path / "model.onnx", rows, tolerance=None, rows_at_once=count) for count in (999, 1, 7)
    )
    assert together.top1_agreement == alone.top1_agreement == some.top1_agreement < 1
    assert together.top3_agreement == alone.top3_agreement == some.top3_agreement < 1
    assert together.max_abs_logit_diff == pytest.approx(alone.max_abs_logit_diff, rel=1e-3)


@pytest.mark.parametrize("tied", [True, False])
def test_graph_becomes_the_model_again(tmp_path: Path, tied: bool) -> None:
    model = build_model(ModelConfig(embedding_dim=6, hidden_dim=10, tied=tied), 23, 3)
    export_onnx(model, tmp_path / "model.onnx")
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
    export_onnx(model, tmp_path / "model.onnx")
    quantise(tmp_path / "model.onnx", tmp_path / "small.onnx")
    with pytest.raises(ValueError, match=r"lacks .*float32 model\.onnx"):
        load_graph(tmp_path / "small.onnx")
