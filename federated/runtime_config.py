"""Configuration of speed: what neither the guarantee nor the launch id depends on."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pretrain.config import Config


class RuntimeConfig(Config):
    """Speed and safety nets; changing these changes neither the guarantee nor the launch id."""

    # Weights, updates and products of local training: fewer bits would lose percents of an update to rounding.
    retired: ClassVar[Mapping[str, Any]] = {
        "precision": "float32",
        "keep_checkpoints": 2,
        "discovery_processes": 1,  # as 0.1 wrote it; discovery's processes are ``workers``
    }

    workers: PositiveInt = Field(
        default=1,
        description="processes of one machine that share the devices of a round, or of a layer of discovery; on a GPU "
        "one for each GPU",
    )
    device: Literal["cpu", "cuda"] = "cpu"
    chunk_devices: PositiveInt | None = Field(
        default=None,
        description="devices trained side by side; changes low bits of the result. None: measured as the run begins",
    )
    checkpoint_every_rounds: PositiveInt = 5
    evaluate_every_rounds: PositiveInt = 5
    stage_timeout_minutes: PositiveFloat = 720.0
