"""Prices of a launch under each choice of ``trust``, and with no trust in anybody, which no launch offers."""

from collections.abc import Iterator
from dataclasses import dataclass

from federated.accounting.gaussian import epsilon_of_rho
from federated.secagg.bounds import plan_encoding
from pipeline.launch.config import SECURE, LaunchConfig
from pipeline.preflight.shortfalls import most_parameters
from pipeline.preflight.words import CentralWords, LocalWords
from reports.disclosure.total import Total
from reports.losses import up

_SEEN = {
    "server": "it sees each update before noise",
    "secure sum": "of updates and votes the server sees sums alone",
    "nobody": "each device adds all the noise of a sum itself; no launch does so",
}


@dataclass(frozen=True)
class Trust:
    """Losses of one device under a choice of trust, for the same noise in each sum and the same reach of words.

    Attributes:
      trust: as the launch file's field, or ``nobody``.
      own: whether it is the launch file's.
      training: epsilon of training.
      words: epsilon of words of the kind ``found``.
      megabytes: that a device sends in a round.
    """

    trust: str
    own: bool
    training: float
    found: str
    words: float
    megabytes: float

    def __str__(self) -> str:
        return (
            f"{self.trust}{', this file' * self.own}: {_SEEN[self.trust]}; training {up(self.training)}, {self.found} "
            f"words {up(self.words)} a device, which sends {self.megabytes:.3g} MB a round"
        )


def prices(
    config: LaunchConfig, whole: Total, training_rho: float, words: tuple[LocalWords | CentralWords, ...]
) -> tuple[Trust, ...]:
    """Price each choice of trust, the launch file's first; empty where nothing is trained.

    Noise that each device adds alone is that of a sum: its rho is ``report_goal`` times as large (local Gaussian noise
    of std z sqrt(n) in a sum of n devices).

    Args:
      whole: loss to all releases, which has training's part of delta.
      training_rho: of the launch file.
      words: the file's own kind of discovery, then the other kind where it reaches as far (``words.both_ways``).
    """
    if not config.trains:
        return ()
    mechanism, weights = config.mechanism, most_parameters(config)
    delta = next(part.delta for part in whole.parts if part.rho is not None and part.split == "train")
    encoding = plan_encoding(weights, mechanism.report_goal, (mechanism.secagg or SECURE).bits)
    grown = encoding.inflated_norm**2
    plain = training_rho / grown if mechanism.secagg else training_rho
    found = {each.kind: each for each in reversed(words[:2])}
    central = next(each for each in found.values() if isinstance(each, CentralWords))
    local = next(each for each in found.values() if isinstance(each, LocalWords))

    shown = (local.kind, local.shuffled)
    seen = shown if config.trust == "server" and words[0] is local else (central.kind, central.epsilon)

    def priced() -> Iterator[Trust]:
        for trust, rho, (kind, loss), sent in (
            ("server", plain, seen, 4 * weights),
            ("secure sum", plain * grown, shown, encoding.order * encoding.bits / 8),
            ("nobody", plain * mechanism.report_goal, (local.kind, local.local), 4 * weights),
        ):
            yield Trust(trust, trust == config.trust, epsilon_of_rho(rho, delta), kind, loss, sent / 1e6)

    return tuple(sorted(priced(), key=lambda each: not each.own))
