"""Model files: safetensors weights, the ONNX graph a keyboard runs, its int8 form, and parity.

Shape legend: B rows, V vocabulary, E embedding and projection, H hidden, R rows, T steps.
"""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pretrain.config import ModelConfig
from pretrain.files import atomic, write_bytes
from pretrain.model import KeyboardLM
from pretrain.predictor import open_graph, step
from pretrain.vocabulary import PAD, SPECIALS

_OPSET = 17
_IR_VERSION = 8
EXACT_TOLERANCE = 1e-4
_ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class Parity:
    """How far an exported graph is from the model, over all steps of all rows.

    Attributes:
      top1_agreement: share of steps at which both put the same entry first.
      top3_agreement: share of the model's three best words that are also among the graph's; special tokens,
        which no keyboard offers, are left out.
    """

    max_abs_logit_diff: float
    top1_agreement: float
    top3_agreement: float
    steps: int


def save_model(model: KeyboardLM, path: Path) -> None:
    """Write a model's weights as float32 safetensors."""
    weights = {name: tensor.detach().cpu().float().contiguous() for name, tensor in model.state_dict().items()}
    with atomic(path) as temporary:
        save_file(weights, temporary)


def load_model(path: Path, config: ModelConfig) -> KeyboardLM:
    """Read what ``save_model`` wrote; the vocabulary size comes from the file.

    Raises:
      ValueError: not a weights file, or of another shape than the configuration.
    """
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path.name}: not a safetensors file: {error}") from error
    if "embedding" not in weights:
        raise ValueError(f"{path.name}: no tensor 'embedding'; these are not KeyboardLM weights")
    model = KeyboardLM(weights["embedding"].shape[0], config.embedding_dim, config.hidden_dim, tied=config.tied)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if shapes != expected:
        differs = sorted(name for name in expected | shapes if expected.get(name) != shapes.get(name))[0]
        raise ValueError(
            f"model: {path.name} has {differs!r} of shape {shapes.get(differs)}, the configuration means "
            f"{expected.get(differs)}; use the weights' own model settings"
        )
    model.load_state_dict(weights)
    return model


def export_onnx(model: KeyboardLM, path: Path) -> None:
    """One step of the model as a graph.

    Inputs: ``token`` int64 ``[B]``, ``cell`` ``[B, H]``, ``out`` ``[B, E]`` (zeros at a sentence's
    start). Outputs: ``logits`` ``[B, V]`` for the next word, ``next_cell``, ``next_out``. Built node
    by node, so the file holds the equations of ``model.py`` and nothing a tracer added.
    """
    weights = {name: tensor.detach().cpu().float().numpy() for name, tensor in model.state_dict().items()}
    # A tied model stores one matrix, [E, V]: columns are looked up for input, all of it multiplies for output.
    output_EV = np.ascontiguousarray(weights.get("output", weights["embedding"]).T)
    stored = {name: weights[name] for name in ("gates_x", "gates_r", "gates_b", "projection", "output_bias")}
    stored |= {"output_EV": output_EV, "one": np.float32(1.0)}
    if model.tied:
        look_up = [
            helper.make_node("Gather", ["output_EV", "token"], ["embedded_EB"], axis=1),
            helper.make_node("Transpose", ["embedded_EB"], ["embedded"], perm=[1, 0]),
        ]
    else:
        stored["embedding"] = weights["embedding"]
        look_up = [helper.make_node("Gather", ["embedding", "token"], ["embedded"], axis=0)]
    nodes = [
        *look_up,
        helper.make_node("MatMul", ["embedded", "gates_x"], ["from_input"]),
        helper.make_node("MatMul", ["out", "gates_r"], ["from_out"]),
        helper.make_node("Add", ["from_input", "gates_b"], ["biased"]),
        helper.make_node("Add", ["biased", "from_out"], ["gates"]),
        helper.make_node("Split", ["gates"], ["forget_raw", "candidate_raw", "output_raw"], axis=1),
        helper.make_node("Sigmoid", ["forget_raw"], ["forget"]),
        helper.make_node("Tanh", ["candidate_raw"], ["candidate"]),
        helper.make_node("Sigmoid", ["output_raw"], ["output_gate"]),
        # Coupled gates: the input gate is what the forget gate leaves.
        helper.make_node("Sub", ["one", "forget"], ["input_gate"]),
        helper.make_node("Mul", ["forget", "cell"], ["kept"]),
        helper.make_node("Mul", ["input_gate", "candidate"], ["added"]),
        helper.make_node("Add", ["kept", "added"], ["next_cell"]),
        helper.make_node("Tanh", ["next_cell"], ["squashed"]),
        helper.make_node("Mul", ["output_gate", "squashed"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "projection"], ["next_out"]),
        helper.make_node("MatMul", ["next_out", "output_EV"], ["scores"]),
        helper.make_node("Add", ["scores", "output_bias"], ["logits"]),
    ]

    def value(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    hidden, embedding = model.hidden_dim, model.embedding_dim
    graph = helper.make_graph(
        nodes,
        "keyboard_lm_step",
        inputs=[
            value("token", TensorProto.INT64, "B"),
            value("cell", TensorProto.FLOAT, "B", hidden),
            value("out", TensorProto.FLOAT, "B", embedding),
        ],
        outputs=[
            value("logits", TensorProto.FLOAT, "B", model.vocabulary_size),
            value("next_cell", TensorProto.FLOAT, "B", hidden),
            value("next_out", TensorProto.FLOAT, "B", embedding),
        ],
        initializer=[numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    proto = helper.make_model(
        graph, producer_name="tacit", opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
    onnx.checker.check_model(proto, full_check=True)
    write_bytes(path, proto.SerializeToString())


def load_graph(path: Path) -> KeyboardLM:
    """The model that ``export_onnx`` wrote as a graph; every size comes from the file.

    Raises:
      ValueError: not such a graph; the int8 form is none, as its weights are no longer the model's.
    """
    try:
        graph = onnx.load(path).graph
    except DecodeError as error:
        raise ValueError(f"{path.name}: not an ONNX file; give the model.onnx of a bundle") from error
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    missing = {"output_EV", "projection", "gates_x", "gates_r", "gates_b", "output_bias"} - stored.keys()
    if missing:
        raise ValueError(f"{path.name}: lacks {', '.join(sorted(missing))}; give the float32 model.onnx of a bundle")
    tied = "embedding" not in stored
    hidden, embedding = stored["projection"].shape
    model = KeyboardLM(stored["output_EV"].shape[1], embedding, hidden, tied=tied)
    weights = {name: stored[name] for name in ("gates_x", "gates_r", "gates_b", "projection", "output_bias")}
    output_VE = np.ascontiguousarray(stored["output_EV"].T)
    weights |= {"embedding": output_VE} if tied else {"embedding": stored["embedding"], "output": output_VE}
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    return model


def quantise(path: Path, out_path: Path) -> None:
    """Write the graph with int8 weights; activations are quantised as they come (``onnxruntime``)."""
    # Slow to import, and needed here only.
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as directory, atomic(out_path) as temporary:
        shaped = Path(directory) / "shaped.onnx"
        # Shapes only: the graph is already as small as it gets.
        quant_pre_process(path, shaped, skip_optimization=True, skip_symbolic_shape=True)
        quantize_dynamic(shaped, temporary, weight_type=QuantType.QInt8)


def parity(
    model: KeyboardLM,
    path: Path,
    tokens_RT: np.ndarray,
    tolerance: float | None = EXACT_TOLERANCE,
    rows_at_once: int = _ROWS_AT_ONCE,
) -> Parity:
    """Run graph and model side by side over real token rows and compare the logits of every step.

    Both run step by step from a zero state and each carries its own, so an error in the state
    shows too. Positions after a row's first ``PAD`` do not count.

    Args:
      tokens_RT: input rows as of ``model.sentence_rows``.
      tolerance: largest logit difference allowed, for logits up to 1 in size and in proportion to larger ones; None
        only measures (int8 differs by design).
      rows_at_once: 1 to compare as a keyboard runs it: int8 rounds by the range of all rows together.

    Raises:
      ValueError: no token to compare.
      ArithmeticError: the graph is further from the model than ``tolerance``.
    """
    real_RT = np.cumsum(tokens_RT == PAD, axis=1) == 0
    if not real_RT.any():
        raise ValueError("tokens_RT: holds no token; give rows of real sentences")
    session, start = open_graph(path, len(tokens_RT))
    worst, largest, first, strip, shown = 0.0, 1.0, 0, 0, 0
    for begin in range(0, len(tokens_RT), rows_at_once):
        rows = slice(begin, begin + rows_at_once)
        state, model_state = {name: zeros[rows] for name, zeros in start.items()}, None
        for token_B, real_B in zip(tokens_RT[rows].T, real_RT[rows].T, strict=True):
            if not real_B.any():
                break
            logits_BV, state = step(session, token_B, state)
            token_B1 = torch.from_numpy(token_B.astype(np.int64))[:, None].to(model.embedding.device)
            with torch.no_grad():
                model_B1V, model_state = model(token_B1, model_state)
            model_BV = model_B1V[:, 0].cpu().numpy()
            # max keeps NaN, so a broken graph cannot pass.
            with np.errstate(invalid="ignore"):  # infinity minus infinity
                worst = float(np.maximum(worst, np.abs(logits_BV - model_BV)[real_B].max()))
            largest = max(largest, float(np.abs(model_BV[real_B]).max()))
            first += int((logits_BV.argmax(1) == model_BV.argmax(1))[real_B].sum())
            graphs_B3, models_B3 = _best_words(logits_BV[real_B]), _best_words(model_BV[real_B])
            strip += int((graphs_B3[:, :, None] == models_B3[:, None, :]).sum())
            shown += models_B3.size
    steps = int(real_RT.sum())
    measured = Parity(worst, first / steps, strip / max(shown, 1), steps)
    # Single precision: how far two orders of summation lie apart grows with what is summed.
    allowed = None if tolerance is None else tolerance * (largest if math.isfinite(largest) else 1.0)
    if allowed is not None and not worst <= allowed:
        raise ArithmeticError(
            f"{path.name}: logits differ from the model by {worst:.3g}, allowed is {allowed:.3g}; export it again"
        )
    return measured


def _best_words(logits_BV: np.ndarray) -> np.ndarray:
    """``[B, 3]``: the three best words of each row, without the special tokens, which no keyboard offers."""
    words_BV = logits_BV[:, len(SPECIALS) :]
    return np.argpartition(-words_BV, min(3, words_BV.shape[1]) - 1, axis=1)[:, :3]
