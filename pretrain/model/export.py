"""Model files: safetensors weights, the ONNX graph a keyboard runs, its int8 form, and parity.

Shape legend: B rows, V vocabulary, E embedding and projection, H hidden, R rows, T steps.
"""

import copy
import math
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import numpy_helper
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from pretrain.config import ModelConfig
from pretrain.files import atomic, write_bytes
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.model.predictor import open_graph, step
from pretrain.text.vocabulary import PAD, SPECIALS

_OPSET = 17
EXACT_TOLERANCE = 1e-4
_ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class Parity:
    """Distance of an exported graph from the model, over all steps of all rows.

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
    """Write a model's weights as float32 safetensors.

    Raises:
      OSError: the file cannot be written, as on a full disk.
    """
    weights = {name: tensor.detach().cpu().float().contiguous() for name, tensor in model.state_dict().items()}
    write_bytes(path, save(weights))  # ``save_file`` writes a temporary file of its own, which a crash would leave


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
    model = build_model(config, len(weights["embedding"]), seed=0)
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


class _Step(nn.Module):
    """One word of ``KeyboardLM`` as a keyboard runs it.

    The output layer is stored ``[E, V]``, and a tied model stores nothing else: its columns are the input embedding.
    """

    def __init__(self, model: KeyboardLM) -> None:
        super().__init__()
        self.model = model
        self.output_EV = nn.Parameter(model.output_VE.detach().T.contiguous())

    def forward(self, token_B: Tensor, cell_BH: Tensor, out_BE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        model = self.model
        embedded_BE = self.output_EV[:, token_B].T if model.tied else model.embedding[token_B]
        cell_BH, out_BE = model.recur(embedded_BE @ model.gates_x + model.gates_b, (cell_BH, out_BE))
        return out_BE @ self.output_EV + model.output_bias, cell_BH, out_BE


def export_onnx(model: KeyboardLM, path: Path) -> None:
    """One step of the model as a graph, in float32, by ``torch.onnx``.

    Inputs: ``token`` int64 ``[B]``, ``cell`` ``[B, H]``, ``out`` ``[B, E]`` (zeros at a sentence's
    start). Outputs: ``logits`` ``[B, V]`` for the next word, ``next_cell``, ``next_out``. Weights are named as
    parameters of ``_Step``.
    """
    step = _Step(copy.deepcopy(model).cpu().float()).eval()
    inputs, outputs = ["token", "cell", "out"], ["logits", "next_cell", "next_out"]
    with atomic(path) as temporary, warnings.catch_warnings():
        # The exporter's successor takes seconds for each graph, and packages that nothing else here needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        # H becomes a constant, as it should.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        torch.onnx.export(
            step,
            (torch.zeros(2, dtype=torch.int64), *step.model.initial_state(2)),
            temporary,
            dynamo=False,
            opset_version=_OPSET,
            input_names=inputs,
            output_names=outputs,
            dynamic_axes={name: {0: "B"} for name in inputs + outputs},
        )
        onnx.checker.check_model(onnx.load(temporary), full_check=True)


def load_graph(path: Path) -> KeyboardLM:
    """The model that ``export_onnx`` wrote as a graph; every size comes from the file.

    Raises:
      ValueError: not such a graph; the int8 form is none, as its weights are no longer the model's.
    """
    try:
        graph = onnx.load(path).graph
    except DecodeError as error:
        raise ValueError(f"{path.name}: not an ONNX file; give the model.onnx of a bundle") from error
    stored = {tensor.name.removeprefix("model."): numpy_helper.to_array(tensor) for tensor in graph.initializer}
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


def same_shape(weights: Path, graph: Path) -> KeyboardLM:
    """Read what ``save_model`` wrote of a model that has the shape of another one's graph.

    Raises:
      ValueError: as ``load_graph``.
      RuntimeError: the weights have other shapes than the graph.
    """
    model = load_graph(graph)
    model.load_state_dict(load_file(weights))
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
