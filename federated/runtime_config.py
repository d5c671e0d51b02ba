"""Configuration of speed: what neither the guarantee nor the launch id depends on."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from pretrain.config import Config

Precision = Literal["float32", "tf32", "bfloat16"]


class RuntimeConfig(Config):
    """Speed and safety nets; changing these changes neither the guarantee nor the launch id."""

    workers: PositiveInt = Field(
        default=1, description="processes of one machine that share each round's devices; on a GPU one for each GPU"
    )
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Precision = Field(
        default="float32",
        description="factors of local training's matrix products: float32; tf32 (GPU only); bfloat16. Weights, updates "
        "and sums of products are float32 in all three. It changes low digits, so a run goes on only with its own",
    )
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

    @field_validator("precision", mode="before")
    @classmethod
    def _weights_stay_in_float32(cls, precision: object) -> object:
        if isinstance(precision, str) and precision not in ("float32", "tf32", "bfloat16"):
            raise ValueError(
                f"{precision!r} is not offered: weights in 16 bits lose several percent of an update to rounding; "
                "'bfloat16' keeps them in float32 and rounds only the factors of products, 'tf32' rounds less"
            )
        return precision

    @model_validator(mode="after")
    def _tf32_is_of_a_gpu(self) -> "RuntimeConfig":
        if self.precision == "tf32" and self.device == "cpu":
            raise ValueError("precision: 'tf32' is a GPU's; set device to 'cuda', or precision to 'float32'")
        return self
