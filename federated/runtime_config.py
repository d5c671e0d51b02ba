"""Configuration of speed: what neither the guarantee nor the launch id depends on."""

from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from pretrain.config import Config


class RuntimeConfig(Config):
    """Speed and safety nets; changing these changes neither the guarantee nor the launch id."""

    workers: PositiveInt = 1
    device: Literal["cpu", "cuda"] = "cpu"
    chunk_devices: PositiveInt = 8
    checkpoint_every_rounds: PositiveInt = 5
    evaluate_every_rounds: PositiveInt = 5
    keep_checkpoints: PositiveInt = 2
    stage_timeout_minutes: PositiveFloat = 720.0
