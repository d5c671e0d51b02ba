"""The release of evaluation: noisy sums over test devices, made once and saved for every retry.

The baseline may change between two attempts at a stage, and the last digit of a score between two machines. The same
noise on other sums would reveal their difference, so the released sums and the compared versions are saved beside the
noise key before any of them is shown. The devices' vectors are saved too, for the audit, as they cannot be computed
again to the last digit.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from evaluation.noisy.compare import Release
from federated.counts.bounded_sum import released_sum, require_few_enough
from pipeline.launch.config import LaunchConfig
from pipeline.publication.registry import Champions, PublishedModel
from pipeline.releases.evaluation import VECTORS, clip_norm
from pretrain.files import PRIVATE, write_array, write_text

STREAM = "evaluation"
Vectors = Iterator[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class ReleaseFile:
    """The file that stores the release of a launch.

    Attributes:
      path: path of the file; None if a finished launch is derived again.
    """

    path: Path | None

    def _content(self) -> dict | None:
        return None if self.path is None or not self.path.is_file() else json.loads(self.path.read_text("utf-8"))

    def champions(self, feature: str) -> Champions | None:
        """Published versions at the time of the release; None before the release.

        Args:
          feature: main feature of the launch.
        """
        content = self._content()
        if content is None:
            return None
        stated = {feature: content["champion"], **content.get("others", {})}
        return {name: PublishedModel(**each) for name, each in stated.items() if each is not None}

    def release(self, config: LaunchConfig, key: bytes, had: Champions, devices: int) -> Release:
        """Return a function that releases the sums, once.

        Guarantee: that of ``released_sum`` at the launch file's noise multiplier and its clip norm, under
        the stage's key, whose noise is drawn for one set of sums only.

        Raises:
          ValueError: more devices than a sum holds.
        """
        require_few_enough(devices)
        asked = config.evaluation
        assert asked is not None, "the launch file has no block evaluation"
        bound = clip_norm(config)

        def release(size: int, vectors: Callable[[], Vectors]) -> np.ndarray:
            content = self._content()
            if content is None:
                kept: list[np.ndarray] = []
                sums = released_sum(_noted(vectors, kept), size, asked.noise_multiplier, key, STREAM, bound)
                users_had = {feature: asdict(published) for feature, published in had.items()}
                champion = users_had.pop(config.feature, None)
                content = {"champion": champion, "others": users_had, "sums": sums.tolist()}
                if self.path is not None:
                    _save(np.array(kept), self.path.with_name(VECTORS))
                    write_text(self.path, json.dumps(content), PRIVATE)
            return np.array(content["sums"])

        return release


def _noted(vectors: Callable[[], Vectors], kept: list[np.ndarray]) -> Vectors:
    """Yield the devices' vectors lazily, and append each to ``kept`` for the audit."""
    for cells, values in vectors():
        kept.append(values)
        yield cells, values


def _save(vectors_DM: np.ndarray, path: Path) -> None:
    write_array(path, vectors_DM, PRIVATE)
