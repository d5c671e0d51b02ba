"""Bundles that somebody damaged, for the cases of ``bundles.yaml``."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from pretrain.model import export
from pretrain.model.keyboard_lm import build_model
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.text import vocabulary
from pretrain.text.vocabulary import SPECIALS, Vocabulary, join_owners
from pretrain.writing import truecasing
from pretrain.writing.truecasing import TypicalForm
from tests.bad_inputs.cases import PERMANENT, Case, read
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.published import list_files

ABOUT = {"locale": "en-US", "feature": "NWP"}
WORDS = Vocabulary((*SPECIALS, "you", "see", "later", "paris"))


def of_bundles() -> list[Case]:
    """``tacit predict`` from a bundle of which one file was changed."""
    return [
        Case(
            row["name"],
            lambda folder, row=row: _command(folder, row),
            0 if row.get("ok") else PERMANENT,
            tuple(row.get("says", ())),
        )
        for row in read("bundles")
    ]


def good_bundle(bundle: Path) -> Path:
    """A whole bundle of an untrained model."""
    bundle.mkdir()
    _graph(WORDS, bundle / "model.onnx")
    vocabulary.save(WORDS, bundle / "vocabulary.json")
    truecasing.save({"paris": TypicalForm("Paris", 9, 1.0)}, bundle / "truecase.json")
    counted.save(_counts(), bundle / "counts.npz")
    list_files(bundle, **ABOUT)
    return bundle


def _command(folder: Path, row: dict) -> list[str]:
    bundle = good_bundle(folder / "bundle")
    path = bundle / row["file"]
    content = bytearray(path.read_bytes())
    changes: dict[str, Callable[[], object]] = {
        "gone": path.unlink,
        "pipe": lambda: (path.unlink(), os.mkfifo(path)),
        "folder": lambda: (path.unlink(), path.mkdir()),
        "hex": lambda: path.write_bytes(bytes.fromhex(row["hex"])),
        "text": lambda: path.write_text(row["text"], encoding="utf-8"),
        "json": lambda: path.write_text(json.dumps(row["json"]), encoding="utf-8"),
        "deep": lambda: path.write_text("[" * 100_000, encoding="utf-8"),
        "cut": lambda: path.write_bytes(content[: int(len(content) * row["cut"])]),
        "flip": lambda: path.write_bytes(_flipped(content, row["flip"])),
        "graph": lambda: _other_graph(row["graph"], path),
        "counts": lambda: _other_counts(row["counts"], path),
    }
    for name, change in changes.items():
        if name in row:
            change()
    if not row.get("signed") and row["file"] != "bundle.json":
        list_files(bundle, **ABOUT)
    return ["predict", str(bundle), "you see"]


def _flipped(content: bytearray, places: list[int]) -> bytes:
    for place in places:
        content[place] ^= 0xFF
    return bytes(content)


def _graph(words: Vocabulary, path: Path) -> None:
    export.export_onnx(build_model(launch_config().model, len(words), 1), path)


def _other_graph(kind: str, path: Path) -> None:
    if kind in ("small", "large"):
        _graph(Vocabulary(WORDS.words[:-1] if kind == "small" else (*WORDS.words, "more")), path)
        return
    model = onnx.load(path)
    graph = model.graph
    if kind == "identity":
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
        other = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
        node = helper.make_node("Identity", ["x"], ["y"])
        model = helper.make_model(
            helper.make_graph([node], "other", [value], [other]),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )
    elif kind == "nan":
        bias = next(tensor for tensor in graph.initializer if tensor.name == "model.output_bias")
        bias.CopyFrom(onnx.numpy_helper.from_array(np.full(len(WORDS), np.nan, np.float32), "model.output_bias"))
    elif kind == "operator":
        graph.node[0].op_type = "Nothing"
    elif kind == "opset":
        model.opset_import[0].version = 9_999
    elif kind == "external":
        tensor = graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../../etc/passwd")
    elif kind in ("symbolic", "huge"):
        dimension = next(value for value in graph.input if value.name == "cell").type.tensor_type.shape.dim[-1]
        if kind == "symbolic":
            dimension.dim_param = "H"
        else:
            dimension.dim_value = 1 << 40
    path.write_bytes(model.SerializeToString())


def _counts() -> CountedNGram:
    """Counts of two sentences."""
    stream = join_owners([np.array([4, 5, 6, 2, 4, 5, 7, 2])])
    words = len(WORDS)
    row_V = np.full(words, -1)
    row_V[4] = 0
    return CountedNGram(
        NGram.fit(stream, WORDS, 3), np.ones(words), row_V, np.array([5]), np.array([0.5]), np.array([0.5])
    )


def _other_counts(changes: dict[str, object], path: Path) -> None:
    with np.load(path) as stored:
        arrays = dict(stored)
    for name, value in changes.items():
        if value == "gone":
            del arrays[name]
        elif value == "nan":
            arrays[name] = np.full_like(arrays[name], np.nan)
        elif value == "pickled":
            arrays[name] = np.array([{"a": 1}], dtype=object)
        elif value == "bomb":
            arrays[name] = np.zeros(50_000_000)
        else:
            arrays[name] = np.array(value)
    np.savez_compressed(path, **arrays)
