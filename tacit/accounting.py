"""The guarantee of a mechanism, and the mechanism of least noise for a run. They read no data."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.answers import Answer, Plot, Table, drawn

if TYPE_CHECKING:
    from federated.accounting.guarantees import Guarantee
    from federated.mechanisms.optimise_banded import OptimisedBanded
    from federated.mechanisms.optimise_blt import OptimisedBlt
    from reports.disclosure.total import Total

# Deltas of a drawn curve, and prefix sums of a drawn strategy.
_DELTAS, _PREFIXES = tuple(10.0**-exponent for exponent in range(3, 13)), 60


@dataclass(frozen=True, repr=False)
class Account(Table[Any]):
    """Guarantee of one device, under zero-out adjacency: of training, and of all releases of a launch or its file.

    Attributes:
      value: ``federated.accounting.guarantees.Guarantee`` of the mechanism.
      losses: delta -> ``reports.disclosure.total.Total`` of all releases of a launch or its file; else empty.
    """

    value: "Guarantee"
    losses: "Mapping[float, Total]" = field(default_factory=dict)

    @property
    def rho(self) -> float | None:
        """Loss as zero-concentrated DP; None if a release of the launch has none, as words found locally."""
        return next(iter(self.losses.values())).rho if self.losses else self.value.rho

    @property
    def mu(self) -> float | None:
        """Loss as Gaussian DP, ``sqrt(2 rho)``."""
        return None if self.rho is None else math.sqrt(2 * self.rho)

    @property
    def epsilon(self) -> Mapping[float, float]:
        """Delta -> epsilon, by the exact Gaussian curve (Balle and Wang 2018), words found locally added."""
        return {delta: loss.epsilon for delta, loss in self.losses.items()} or self.value.epsilon

    def rows(self) -> list[dict[str, float]]:
        """Epsilon of each delta."""
        return [{"delta": delta, "epsilon": epsilon} for delta, epsilon in self.epsilon.items()]

    def plot(self) -> Plot:
        """Draw epsilon against delta; the first delta asked for is marked.

        Raises:
          ValueError: the launch has a release without a rho, which has no such curve.
        """
        if self.rho is None:
            raise ValueError("plot: words found locally have no curve; plot the account of the mechanism block alone")
        from federated.accounting.gaussian import curve
        from reports.figures.training import draw_epsilon

        stated = next(iter(self.epsilon.items()))
        return drawn(partial(draw_epsilon, curve=curve(self.rho, _DELTAS), stated=stated), height=3.2)


def account(
    mechanism: str | Path | Mapping[str, object],
    deltas: Iterable[float] = (),
    *,
    twice: bool = False,
    **changes: object,
) -> Account:
    """Compute the guarantee of a mechanism, of a launch file or of a trained launch (``tacit account``).

    Xu et al. 2023, section 3 and table 1; McMahan et al. 2024, theorem 3.1; the curve: Balle and Wang 2018, theorem 8.

    Args:
      mechanism: the path of a launch file, for all its releases at the enforced limits; a trained launch, by its name
        or id, for all its releases at the observed participation; a published setting, as in ``"NWP de-DE"``; or a
        mechanism block, as a mapping or in one line:
        ``"kind: tree, noise_multiplier: 7, rounds: 1280, min_sep: 181, max_participations: 5"``.
        ``min_sep`` is the papers' MinS + 1, in rounds; the noise multiplier is per clip norm.
      deltas: at which to state epsilon; none for the block's own, or 1e-10.
      twice: also ask the second accountant (privacy loss distributions of dp_accounting), which takes seconds.
      changes: fields of the block to replace, as in ``noise_multiplier=8``.

    Raises:
      ValueError: no such file, launch or setting, or an invalid field, named with its value and the fix.
      ArithmeticError: two accountants disagree.
    """
    from federated.accounting.published_rows import SETTINGS
    from pipeline.cli.account import account_text, launch_text
    from pipeline.cli.support import check_delta
    from pipeline.preflight import block
    from pipeline.run.named import is_file

    asked = tuple(deltas)
    for delta in asked:
        check_delta(delta)
    set_fields = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
    named = json.dumps(dict(mechanism)) if isinstance(mechanism, Mapping) else str(mechanism)
    if named in SETTINGS:
        config = block.block(preset=named, changes=set_fields)
    elif ":" in named:
        config = block.block(mechanism=named, changes=set_fields)
    elif is_file(named):
        guarantee, losses = block.of_file(named, set_fields, asked, twice=twice)
        return Account(guarantee, launch_text(losses, guarantee), losses)
    else:
        if changes:
            raise ValueError(f"{next(iter(changes))}: launch {named} is trained; name its launch file to change fields")
        return _of_launch(named, asked)
    guarantee = block.guarantee(config, asked, twice=twice)
    return Account(guarantee, account_text(guarantee))


def _of_launch(name: str, deltas: tuple[float, ...]) -> Account:
    """Guarantee of a trained launch, all its releases included, from its participation records."""
    from pipeline.cli.account import launch_text
    from pipeline.cli.support import open_existing
    from pipeline.verify.guarantee import guarantee_again, losses_again

    config, folder, _ = open_existing(name)
    trained = guarantee_again(config, folder, deltas)
    losses = losses_again(config, trained, folder.result)
    return Account(value=trained, text=launch_text(losses, trained), losses=losses)


@dataclass(frozen=True, repr=False)
class Strategy(Answer[Any]):
    """A strategy matrix of least noise for one run.

    Attributes:
      value: its parameters, losses and sensitivity.
      kind: ``blt`` or ``banded``.
      limits: rounds, ``min_sep`` and ``max_participations`` of the run.
    """

    value: "OptimisedBlt | OptimisedBanded"
    kind: str
    limits: tuple[int, int, int]

    def line(self, noise_multiplier: float) -> str:
        """Return the mechanism block in one line, for ``account`` and for a launch file.

        Args:
          noise_multiplier: per clip norm, before the sensitivity.
        """
        from federated.mechanisms.optimise_blt import OptimisedBlt

        rounds, min_sep, max_participations = self.limits
        run = f"rounds: {rounds}, min_sep: {min_sep}, max_participations: {max_participations}"
        if isinstance(self.value, OptimisedBlt):
            own = f"kind: blt, theta: {list(self.value.theta)}, omega: {list(self.value.omega)}"
        else:
            own = f"kind: banded, bands: {self.value.strategy.bands}"
        return f"{own}, noise_multiplier: {noise_multiplier!r}, {run}"

    def prefix_noise(self) -> dict[str, list[tuple[int, float]]]:
        """Noise in the sum of the first rounds, for this strategy, for tree aggregation and for independent noise.

        Returns:
          name -> points (rounds summed, standard deviation in clip norms), each at the noise multiplier that gives
          ``mu = 1`` for the run, so all have one guarantee. Independent noise is not amplified by sampling.
        """
        from federated.mechanisms.blt import Blt
        from federated.mechanisms.optimise_blt import OptimisedBlt
        from federated.mechanisms.tree import Tree

        value, (rounds, min_sep, joins) = self.value, self.limits
        own = Blt(1.0, value.theta, value.omega) if isinstance(value, OptimisedBlt) else value.strategy
        tree = Tree(1.0)
        sums = np.unique(np.linspace(1, rounds, _PREFIXES, dtype=int)).tolist()

        def points(deviation: Callable[[int], float], squared: float) -> list[tuple[int, float]]:
            return [(summed, deviation(summed) * math.sqrt(squared)) for summed in sums]

        return {
            "BLT" if self.kind == "blt" else "banded": points(
                lambda summed: own.noise_std(np.ones(summed)), value.sensitivity_squared
            ),
            "tree aggregation": points(
                lambda summed: tree.noise_std(np.ones(summed)), tree.sensitivity_squared(rounds, min_sep, joins)
            ),
            "independent noise": points(math.sqrt, float(joins)),
        }

    def plot(self) -> Plot:
        """Draw ``prefix_noise``: what the model of each round carries, up to the server's optimizer."""
        from reports.figures.training import draw_prefix_noise

        return drawn(partial(draw_prefix_noise, curves=self.prefix_noise()), height=3.2)


def optimize(
    kind: Literal["blt", "banded"],
    rounds: int,
    min_sep: int,
    max_participations: int,
    *,
    size: int | None = None,
    loss: Literal["max", "rms"] = "max",
) -> Strategy:
    """Find the strategy of least loss for a run (``tacit optimize``).

    BLT: McMahan et al. 2024, section 3.3. Banded: Choquette-Choo et al. 2023, *(Amplified) Banded Matrix
    Factorization*, section 4, which minimises the RMS loss.

    Args:
      kind: a buffered linear Toeplitz mechanism, or a banded one as a launch builds it: BandMF, with a column for each
        round, and for runs of many rounds BandToep, with one column for all.
      rounds: of training.
      min_sep: least number of rounds between participations (MinS + 1).
      max_participations: most rounds that one device may join (MaxP).
      size: of the noise state, in model copies: buffers of a BLT (default 3), or bands (default ``min_sep``).
      loss: of a BLT, the worst prefix sum or the root mean square over all.

    Raises:
      ValueError: limits that cannot happen, or a size out of range.
      ArithmeticError: the search ended without a finite loss.
    """
    from federated.config.mechanism import MATRIX_ROUNDS
    from federated.mechanisms.optimise_banded import optimise_banded
    from federated.mechanisms.optimise_blt import optimise_blt
    from pipeline.cli.optimize import losses_text

    limits = (rounds, min_sep, max_participations)
    if kind == "blt":
        blt = optimise_blt(*limits, 3 if size is None else size, loss)
        parameters = f"theta: {list(blt.theta)}\nomega: {list(blt.omega)}\n"
        return Strategy(blt, parameters + losses_text(blt.max_loss, blt.rms_loss, blt), kind, limits)
    if kind != "banded":
        raise ValueError(f"kind: got {kind!r}; give blt or banded")
    form: Literal["matrix", "toeplitz"] = "matrix" if rounds <= MATRIX_ROUNDS else "toeplitz"
    banded = optimise_banded(*limits, min_sep if size is None else size, form)
    text = f"bands: {banded.strategy.bands}\n{losses_text(banded.losses.max_loss, banded.losses.rms_loss, banded)}"
    return Strategy(banded, text, kind, limits)
