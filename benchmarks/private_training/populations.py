"""Chat, blogs and SMS: their devices, their start and the held-out people."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.utility.real_users import PublicStart, device_store, public_start
from evaluation.arms.held_out import HeldOut, held_out
from federated.devices import store
from pipeline.config import LaunchConfig
from pretrain.vocabulary import TokenStream

HELD_OUT_WORDS = 20_000


@dataclass(frozen=True)
class Population:
    """Whose text.

    Attributes:
      users: a file in the folder of the real data; None for the demo's packaged chat.
      most: users to draw of it.
    """

    locale: str
    users: str | None = None
    most: int | None = None


POPULATIONS = {
    "chat": Population("en-US"),
    "blogs": Population("en-US", "en_blogs", 3000),
    "SMS": Population("fr-FR", "fr-FR_88milsms"),
}


@dataclass(frozen=True)
class People:
    """What every run of a population shares.

    Attributes:
      validation: held-out people to choose by.
      test: others, for the table alone.
    """

    start: PublicStart
    devices: TokenStream
    validation: HeldOut
    test: HeldOut


def people(name: str, launch: LaunchConfig, folder: Path | None, work: Path) -> People:
    """Read, pretrain and split; what ``work`` holds is taken from there.

    Raises:
      ValueError: real data are needed, and there is no folder of them.
    """
    population = POPULATIONS[name]
    start = public_start(launch, population.locale, work / "start" / population.locale)
    users = _store(population, launch, folder, work / name)
    validation, test = (held_out(users.words, users.devices(split), HELD_OUT_WORDS) for split in ("validation", "test"))
    return People(start, users.encode(start.vocabulary, "train"), validation, test)


def _store(population: Population, launch: LaunchConfig, folder: Path | None, work: Path) -> store.DeviceStore:
    if population.users is None:
        if not (work / "store" / "store.json").exists():
            work.mkdir(parents=True, exist_ok=True)
            store.build_store(launch.private_text, population.locale, launch.seed, work / "store")
        return store.open_store(work / "store")
    if folder is None:
        raise ValueError(f"FOLDER: {population.users}.parquet is needed; give the folder that holds it")
    path = folder / f"{population.users}.parquet"
    return device_store(path, population.locale, work, launch.seed, population.most)
