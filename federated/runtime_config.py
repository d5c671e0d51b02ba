"""Configuration of speed: what neither the guarantee nor the launch id depends on."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from pretrain.config import Config


class RuntimeConfig(Config):
    """Speed and safety nets; changing these changes neither the guarantee nor the launch id."""

    # Weights, updates and products of local training: fewer bits would lose percents of an update to rounding.
    retired: ClassVar[Mapping[str, Any]] = {"precision": "float32"}

    workers: PositiveInt = Field(
        default=1, description="processes of one machine that share each round's devices; on a GPU one for each GPU"
    )
    device: Literal["cpu", "cuda"] = "cpu"
    chunk_devices: PositiveInt | None = Field(
        default=None,
        description="devices trained side by side; changes low bits of the result. None: measured as the run begins",
    )
    checkpoint_every_rounds: PositiveInt = 5
    evaluate_every_rounds: PositiveInt = 5
    keep_checkpoints: PositiveInt = 2
    discovery_processes: PositiveInt = Field(
        default=1, description="processes that share the devices of each discovery layer; the votes are the same"
    )
    stage_timeout_minutes: PositiveFloat = 720.0
