"""``load_graph``: a published ONNX graph as a ``KeyboardLM`` again, whatever its size."""

from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from pretrain.model import KeyboardLM


def load_graph(path: Path) -> KeyboardLM:
    """The model that ``export.export_onnx`` wrote as a graph; every size comes from the file.

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
