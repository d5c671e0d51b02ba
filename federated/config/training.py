"""Configuration of a device's training, of the server's step, and of speed.

Neither the guarantee nor the launch id depends on the runtime.
"""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from pretrain.config import Batch, Config, Rate, RowWords, Steps

# Coefficient of momentum (Xu et al. 2023, algorithm 1) and Nesterov, and Adam's beta1.
MOMENTUM = 0.9
# Adam's beta2, and the epsilon added to the root of the mean square.
SECOND_MOMENTUM, ADAPTIVITY = 0.99, 1e-4
# Time limit of a stage in Airflow, and of a worker's wait for the others.
STAGE_TIMEOUT_MINUTES = 720.0


class LocalTrainingConfig(Config):
    """Local training of one device in one round: epochs of plain SGD."""

    learning_rate: Rate = Field(description="of a device's own steps; 'tacit plan' proposes the server's")
    loss: Annotated[float, Field(ge=0.0, le=0.5)] = Field(
        default=0.2,
        description="q of the generalised cross entropy (Zhang & Sabuncu 2018) of words: improbable ones count less; "
        "0: cross entropy of every target, sentence ends and OOV words too",
    )
    batch_sentences: Batch = Field(description="sentences in one step of a device")
    sequence_words: RowWords = Field(description="longest row in words; longer sentences are cut into rows")
    epochs: PositiveInt = Field(default=1, le=1_000, description="passes over a device's words in one round")
    max_words: PositiveInt = Field(
        le=10_000_000, description="words of one device used in one round, from a per-round offset"
    )


class ServerConfig(Config):
    """The server's step on the noisy mean update."""

    optimizer: Literal["momentum", "nesterov", "sgd", "adam"] = Field(
        default="momentum", description="optimiser for the noisy mean update"
    )
    learning_rate: Rate = Field(description="learning rate of the server's step; 'tacit plan' shows its step noise")


class RuntimeConfig(Config):
    """Speed and fault tolerance; these fields change neither the guarantee nor the launch id."""

    workers: PositiveInt = Field(
        default=1,
        le=1_024,
        description="processes of one machine that share the devices of an ingest of files, of a layer of discovery or "
        "of a round; on GPUs one for each",
    )
    hosts: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1,
        description="machines that share the devices of a round, each with `workers` processes; TACIT_GANG starts them",
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="device of training and scoring, and Airflow's queue"
    )
    chunk_devices: Batch | None = Field(
        default=None,
        description="number of devices trained side by side; changes low bits of the result, and above 1 a device "
        "changes those of others. None: measured at the start of a run, 1 unless more are faster by a tenth",
    )
    checkpoint_every_rounds: Steps = Field(default=5, description="largest number of rounds that a crash loses")
    evaluate_every_rounds: Steps = Field(default=5, description="rounds between two points of the training curve")
