"""What a stage is given, what it gives back, and what it may spend."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from federated.config.population import PopulationKey
from pipeline.config import LaunchConfig, config_digest
from pipeline.errors import PermanentError, RefusedUntouched
from pipeline.run_dir import RESULT, RunDir
from pipeline.settings import Settings
from pretrain.config import Config

Split = Literal["train", "validation", "test"]
_UNSTATED = PopulationKey("")
# Fields of a spend that an entry of the ledger keeps in its binding.
BESIDE = ("failure", "split", "messages", "device_epsilon", "device_delta")


class Spend(BaseModel):
    """Privacy loss of one release, to its unit; of messages about items, what their device loses beside it.

    Guarantee: but for an event of probability ``failure`` the release is ``rho``-zCDP for one device of ``split``
    (approximate zCDP, Bun & Steinke 2016, definition 8.1), and for one of another split nothing at all. Epsilon at a
    delta is then the Gaussian curve at that delta less the failures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Literal["device", "item"]
    adjacency: str = Field(description="'zero-out' for training, 'swap' for discovery")
    rho: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = Field(description="zCDP; unit device only")
    epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    delta: Annotated[float, Field(ge=0.0, lt=1.0)]
    note: str = ""
    failure: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.0, description="probability with which rho or epsilon does not hold; it adds up over releases"
    )
    split: Split = Field(default="train", description="whose devices lose")
    messages: Annotated[int, Field(ge=0)] = Field(default=0, description="about items, that a device sends")
    device_epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = Field(
        default=0.0, description="of all messages of a device, at device_delta; unit item only"
    )
    device_delta: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0

    def model_post_init(self, _context: object) -> None:
        if (self.unit == "device") != (self.rho is not None):
            raise ValueError(
                f"rho: {self.rho!r} with unit {self.unit!r}; a device-level spend states rho, "
                "an item-level one leaves it None because the two never add up"
            )
        if self.unit == "item" and self.epsilon and not (self.messages and self.device_epsilon):
            raise ValueError(
                f"device_epsilon: {self.device_epsilon} with {self.messages} messages of epsilon {self.epsilon}; state "
                "what a device loses to all of them, as it counts against the budget of the device"
            )


class Dataset(Config):
    """A data set a stage read: its name and digest, never its content."""

    name: str
    digest: str
    context: str = Field(description="'pretraining', 'fine-tuning', ...")


class StageResult(Config):
    """Base of every stage's result. Every field is public or already private: it goes to MLflow and XCom.

    A result that the disclosure shows inherits the disclosure's own block, so that each fact has one schema.
    Top-level numbers become MLflow metrics ``<stage>/<field>`` and rows of the printed table. A
    number that is not finite is refused: a gate could not compare it and JSON cannot hold it.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")

    headline: dict[str, float | str] = Field(default={}, description="scalars to show on the launch's parent run")
    datasets: tuple[Dataset, ...] = ()
    curve: tuple[dict[str, float], ...] = Field(default=(), description="points with a 'step' and other numbers")
    spend: Spend | None = Field(default=None, description="what a spending stage really spent")


@dataclass(frozen=True)
class StageContext:
    """Everything a stage function may use."""

    config: LaunchConfig
    run: RunDir
    settings: Settings
    stage: str
    key: bytes | None  # 256 bits, the same at every retry; only stages that spend have one
    # Tells caches and registered models apart where the configuration leaves it out.
    population: PopulationKey = _UNSTATED
    attempt: int = 0  # a newer one shuts it out (``run.fence``); 0 where nobody else may write

    @property
    def noise_key(self) -> bytes:
        """The key of a stage that spends."""
        assert self.key is not None, f"{self.stage} spends nothing"
        return self.key

    @contextmanager
    def before_devices(self) -> Iterator[None]:
        """Around checks of a spending stage: what they refuse gives its reservation back.

        Guarantee: only where nothing of a device was answered, summed or released by then, at this try or an earlier
        one; the runner sees that the stage left nothing private but its key.
        """
        try:
            yield
        except (ValueError, PermanentError) as error:
            raise RefusedUntouched(str(error)) from error

    @property
    def public(self) -> Path:
        """Folder of this stage's public files."""
        return self.run.public(self.stage)

    @property
    def private(self) -> Path:
        """Folder of this stage's private files."""
        return self.run.private(self.stage)


StageFunction = Callable[[StageContext], StageResult]


@dataclass(frozen=True)
class StageSpend:
    """What a stage reserves before it runs, and the earlier stages that decide what it will release.

    ``planned`` is a worst case from the configuration and what earlier stages planned; it looks at no
    private data, and is None where the configuration asks for no release. The outputs of ``inputs`` are
    written into the reservation together with a commitment to the stage's key, so that a retry is the same
    release or is refused. So are constants of ours that decide it (``says``): a release that was begun before they
    changed goes on as it was begun.
    """

    planned: Callable[[LaunchConfig, RunDir], Spend | None]
    inputs: tuple[str, ...]
    says: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PublicStage:
    """What decides the outputs of a stage that reads public data alone: a later launch may take them over.

    Attributes:
      reads: dotted fields of the launch file; the stage is given no others.
      after: earlier public stages whose outputs it uses.
      given: what it reads from elsewhere, such as files and packages, as JSON values that name its content.
    """

    reads: Callable[[LaunchConfig], tuple[str, ...]]
    after: tuple[str, ...] = ()
    given: Callable[[StageContext], Mapping[str, object]] = lambda ctx: {}


@dataclass(frozen=True)
class PrivateStage:
    """What decides the outputs of a stage that follows private data: a later launch on the same population may take
    them over, on the same machine. What it released is paid for once.

    Attributes:
      reads: dotted fields of the launch file that decide what the stage makes.
      given: what it reads from elsewhere, as JSON values that name its content; None where it is made anew each time.
      code: source files and folders of ours that decide what it makes, from the root of the packages. Of a release, no
        more than the release itself: a change elsewhere must not ask people again.
      libraries: of others, likewise.
      sees: further fields that the stage is given, of which nothing that it makes depends.
      files: its private files and folders that later stages read.
    """

    reads: Callable[[LaunchConfig], tuple[str, ...]]
    given: Callable[[StageContext], Mapping[str, object] | None]
    code: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    sees: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def stage_key(config: LaunchConfig, run: RunDir, name: str) -> bytes:
    """The stage's secret key. In 'seeded' mode, for tests, anyone can compute it from the configuration."""
    if config.mechanism.randomness == "seeded":
        return hashlib.sha256(f"tacit seeded {config.seed} {name}".encode()).digest()
    return run.secret(name)


def binding_of(
    config: LaunchConfig, run: RunDir, key: bytes, spend: StageSpend, begun: Mapping[str, Any] | None
) -> dict[str, str]:
    """What makes a retry the same release: configuration, key (by commitment), inputs and constants.

    Args:
      begun: what the reservation that stands says; None if there is none.
    """
    inputs = {}
    for stage in spend.inputs:
        run.result(stage)
        inputs[stage] = run.used[f"{stage}/{RESULT}"]
    constants = spend.says if begun is None else {name: begun[name] for name in spend.says}
    return {
        **constants,
        "config": config_digest(config),
        "inputs": hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest(),
        "key": hashlib.sha256(b"tacit key commitment" + key).hexdigest(),
    }
