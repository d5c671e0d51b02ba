"""Records of the queried devices of each layer and pass, and checks of the layers' claims against them.

Groups are disjoint, so a device's losses do not add up over layers. The records are
private: they name devices.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from discovery.config import TrieConfig
from discovery.device.answer import END
from discovery.device.keystream import Keystream
from discovery.results import LayerRow
from pretrain.files import PRIVATE, atomic, private_directory

_FOLDER = "participation"
# The devices of a layer are proportional to this root of its surviving candidates.
_ALIVE_POWER = 0.25


def group_sizes(devices: int, config: TrieConfig, known_words: Collection[str]) -> list[int]:
    """Devices of one pass in each layer, at least one; they depend on the layer's surviving candidates.

    A layer with few candidates needs few devices to distinguish them, and a layer that few words reach has few
    candidates. Candidates are estimated from public words, up to the cap on prefixes; devices are proportional
    to their fourth root, the exponent that found most words among 0, 1/4, 1/2, 3/4 and 1 on public word lists
    (LOG, "Discovery"). The sizes depend on public numbers only.

    Guarantee: they are the same for all numbers of devices in one ten, so up to nine devices are not asked. Sizes of
    every device, each of them published in tens, would often meet in one number of devices.
    """
    return sizes(_asked(devices), alive(config, known_words))


def _asked(devices: int) -> int:
    return devices // 10 * 10 or devices


def alive(config: TrieConfig, known_words: Collection[str]) -> np.ndarray:
    """Candidates of each layer that public words would have, float64."""
    return np.array(
        [
            min(len({(word + END)[:layer] for word in known_words if len(word) >= layer - 1}), config.max_prefixes)
            for layer in range(1, config.layers + 1)
        ],
        dtype=np.float64,
    )


def fewest(devices: int, alive_L: np.ndarray) -> int:
    """Lower bound on the devices of a pass's smallest layer, also for any larger number of devices."""
    weight_L = np.maximum(alive_L, 1.0) ** 0.25
    spare = max(_asked(devices) - len(alive_L), 0)
    return 1 + int(np.floor(spare * weight_L.min() / weight_L.sum() - 1e-9))


def fewest_in_a_layer(devices: int, config: TrieConfig) -> int:
    """Lower bound on the devices of each layer of a pass, for any public words.

    A layer has the least share where one candidate is alive in it and ``max_prefixes`` in all others.
    """
    others = (config.layers - 1) * config.max_prefixes**_ALIVE_POWER
    return 1 + int(max(_asked(devices) - config.layers, 0) / (1 + others))


def sizes(devices: int, alive_L: np.ndarray) -> list[int]:
    """Devices of each layer, ``devices`` in total, by its surviving candidates."""
    weight_L = np.maximum(alive_L, 1.0) ** _ALIVE_POWER
    spare = max(devices - len(alive_L), 0)
    ends_L = np.floor(spare * np.cumsum(weight_L) / weight_L.sum() + 1e-9).astype(np.int64)
    return (1 + np.diff(ends_L, prepend=0)).tolist()


def assign(devices: int, config: TrieConfig, key: bytes, known_words: Collection[str]) -> dict[int, np.ndarray]:
    """Disjoint groups of device numbers, int64 and ascending, by layer from 1, by a secret permutation."""
    *ends, whole = np.cumsum(group_sizes(devices, config, known_words)).tolist()
    shares = np.split(Keystream(key, "layers").permutation(devices)[:whole], ends)
    return {layer: np.sort(share) for layer, share in enumerate(shares, start=1)}


def record(directory: Path, layer: int, asked: np.ndarray) -> None:
    """Record a group before its votes are used; a queried device counts as queried, even without an answer.

    Columns: ``device`` int64, ``layer`` int16, ``answered`` bool (all true: simulated devices do not drop out).
    """
    table = pa.table(
        {
            "device": pa.array(asked, pa.int64()),
            "layer": pa.array(np.full(len(asked), layer), pa.int16()),
            "answered": pa.array(np.ones(len(asked), dtype=bool), pa.bool_()),
        }
    )
    folder = private_directory(directory / _FOLDER)
    with atomic(folder / f"layer-{layer:02d}.parquet", PRIVATE) as temporary:
        pq.write_table(table, temporary)


def read(directory: Path) -> pa.Table:
    """All records, in the order of layers."""
    paths = sorted((directory / _FOLDER).glob("*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in paths])


def check(directory: Path, rows: tuple[LayerRow, ...], messages_per_device: int) -> None:
    """Compare the records with what the layers claim to have received.

    Raises:
      ArithmeticError: a device was asked twice, or a layer counts a number of messages other than its devices sent.
    """
    table = read(directory)
    devices = table["device"].to_numpy()
    if len(np.unique(devices)) != len(devices):
        raise ArithmeticError("participation: a device was asked in two layers, so losses of layers add up")
    layers, answered = table["layer"].to_numpy(), table["answered"].to_numpy()
    for row in rows:
        sent = int(answered[layers == row.layer].sum()) * messages_per_device
        if sent != row.messages:
            raise ArithmeticError(
                f"participation: layer {row.layer} counts {row.messages} messages, its devices sent {sent}; its "
                "certificate is not true"
            )
