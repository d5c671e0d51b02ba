"""Public results of a discovery, and the state that it keeps between layers."""

from pydantic import Field

from pretrain.config import Config

# Standard errors from an estimate to the upper end of its 95% interval.
_UPPER = 1.96


class FoundWord(Config):
    """A finished word and the share of messages that hold it, with a 95% interval (``selection.share_interval``).

    For a central discovery, it is the share of the total contribution (``central.select``).

    ``word`` is lower-cased, as in the model, and ``form`` is its typed form, one of ``pretrain.writing.case.FORMS``.
    Words are selected for many votes, so those just above the threshold are on average rarer than their
    estimate; the interval corrects for this.
    """

    word: str
    layer: int
    share: float
    low: float
    high: float
    form: str = "lower"

    @property
    def shrunk(self) -> float:
        """The share, shrunk for the effect of selection under noise: ``s^3 / (s^2 + e^2)`` for standard error e.

        Shrinkage toward 0 by the estimated mean squared error (Thompson 1968, *Some Shrinkage Techniques for
        Estimating the Mean*, section 2): a word that stands out keeps its share, one at the threshold has half of it
        or less, and none is 0 or below. The error is that of the interval's upper end, which selection does not change.
        """
        error = (self.high - self.share) / _UPPER
        return self.share**3 / (self.share**2 + error**2)


def by_share(word: FoundWord) -> tuple[float, str]:
    """Sort key: most frequent first, equals by spelling."""
    return -word.share, word.word


class LayerRow(Config):
    """One layer in full. Everything follows from noisy votes and public numbers.

    Attributes:
      asked, messages: messages expected from all queried devices, and messages received: exact, so private. All
        dependent figures are computed from whole tens of devices.
      domain, size: items to choose from, None included, and items in a message.
      message_bytes: length of a message as it travels.
      noise: standard deviation of the estimate, in messages, for an item that nobody holds.
      word_votes: least votes that publish a word.
      one_holder_chance: bound on the probability of publishing a word of one device.
      anonymity: k, so that a word in fewer than k messages is published with probability at most one in a million.
      lemma_1: the bound of Sun & Sun 2024 on the same for that k, if there were no threshold but ``max_prefixes``;
        1 if the lemma gives no bound.
      kept, finished: surviving prefixes, words found.
      clones, blanket: central epsilon from the honest messages among those received, by two certificates; both hold.
      attack: epsilon that an explicit attack reaches; no certificate can be below it.
      closed_2023: the paper's closed form. Its theorem has an erratum: not certified. None outside its range.
      device: central epsilon of all messages of one device together (``certificates.group``).
    """

    layer: int
    asked: int
    messages: int
    domain: int
    size: int
    message_bytes: int
    noise: float
    word_votes: int
    one_holder_chance: float
    anonymity: int
    lemma_1: float
    kept: int
    finished: int
    clones: float
    blanket: float
    attack: float
    closed_2023: float | None
    device: float


class LayerState(Config):
    """A finished layer. Votes are noisy, so all of it may be kept; the words are not reviewed yet."""

    row: LayerRow
    prefixes: tuple[str, ...]
    words: tuple[FoundWord, ...]
    forms: dict[str, str] = Field(default_factory=dict, description="of words that earlier layers found")


class DiscoveryResult(Config):
    """Public result: words are outputs of the private mechanism, and no other field depends on a device.

    Guarantee: item-level ``epsilon0``-LDP under swap adjacency; ``messages_per_device * epsilon0``
    for a whole device; (epsilon_central, delta) for the item after shuffling, at the worst layer, since a device
    answers in one layer only; (device_epsilon_central, delta) for all of a device's messages after shuffling, at the
    worst layer. None of these adds to the rho of training.

    Attributes:
      epsilon_central: by ``certificate``.
      epsilon_blanket: the same statement by the privacy blanket, never larger.
      epsilon_attack: epsilon that an explicit attack reaches at some layer; a lower bound.
      device_epsilon_central: of a whole device after shuffling.
      honest_share: share of the other devices of a layer that the certificates assume to be honest.
    """

    words: tuple[FoundWord, ...]
    rows: tuple[LayerRow, ...]
    epsilon0: float
    messages_per_device: int
    device_level_epsilon0: float
    epsilon_central: float
    epsilon_blanket: float
    epsilon_attack: float
    device_epsilon_central: float
    honest_share: float
    delta: float


class CentralResult(Config):
    """Words of a central discovery, their least noisy weight, and the shares of rho of its other releases.

    Guarantee: ``central.select.select``.
    """

    words: tuple[FoundWord, ...]
    threshold: float
    forms_share: float
    filled_share: float
