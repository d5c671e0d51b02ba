"""A cell of the tables: one population, so many people of it, one way to spend rho on them."""

from dataclasses import dataclass, fields
from typing import Literal

Arm = Literal["start", "ngram", "start+ngram", "start+counts", "train", "counts-train", "central"]
# What a name says first, and in a word; the rest only where it is not the default.
_FIRST = ("population", "people", "arm")


@dataclass(frozen=True)
class Cell:
    """One way on one population.

    Attributes:
      people: number that may train; 0 for all who are not held out.
      arm: ``counts-train`` trains from the start that counts moved.
      rho: of training; of ``start+counts``, of counts.
      counts_rho: of the counts that move the start, beside ``rho``.
      contexts, counts_clip: of counts, the words whose next word is counted and the clip norm.
      rounds, participations: T and k; the cohort is ``people k / T``.
      step_noise: sets the server rate, see ``federated.planning.law``.
      noise: False trains without, at the rate that the noise of ``rho`` would allow.
      loss: of training, see ``LocalTrainingConfig``; 0 is the cross entropy of every target.
      public: packaged text of the start; the forecast is fitted to cells of ``sample``.
      hidden, words: of the start's network and vocabulary, in place of the demo's; a word outside is a miss.
      draw: repetition, with other noise and other cohorts.
      fold: of five, which fifth of a small population is held out.
    """

    population: str
    people: int
    arm: Arm
    rho: float = 0.5
    counts_rho: float = 0.05
    contexts: int = 500
    counts_clip: float = 5.0
    rounds: int = 64
    participations: int = 4
    mechanism: Literal["banded", "blt", "tree"] = "banded"
    step_noise: float = 0.045
    noise: bool = True
    clip: float = 0.3
    clipping: Literal["flat", "per-layer"] = "flat"
    optimizer: Literal["momentum", "nesterov", "sgd"] = "momentum"
    epochs: int = 1
    device_rate: float = 0.5
    loss: float = 0.2
    batch: int = 8
    max_words: int = 200
    public: Literal["sample", "sample-with-chat"] = "sample"
    hidden: int = 256
    words: int = 4_000
    draw: int = 0
    fold: int = 0

    @property
    def name(self) -> str:
        """Every field that is not the default, so that a cell is named by what it is."""
        first = [str(getattr(self, each)) for each in _FIRST]
        return "-".join([*first, *self.changes([each.name for each in fields(self) if each.name not in _FIRST])])

    @property
    def start(self) -> list[str]:
        """Fields of the start that are not the default."""
        return self.changes(["public", "hidden", "words"])

    def changes(self, names: list[str]) -> list[str]:
        """Field and value, of those of ``names`` that are not the default."""
        default = {each.name: each.default for each in fields(self)}
        values = ((name, getattr(self, name)) for name in names)
        return [f"{name.replace('_', '')}{value}" for name, value in values if value != default[name]]
