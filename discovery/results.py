"""Public results of a discovery, and the state that it keeps between layers."""

from pydantic import Field

from pretrain.config import Config

# Standard errors from an estimate to the upper end of its 95% interval.
_UPPER = 1.96


class FoundWord(Config):
    """A finished word and the share of messages that hold it, with a 95% interval (``selection.share_interval``).

    Of a central discovery, the share of what devices contributed (``central.select``).

    ``word`` is lower-cased, as the model has it, and ``form`` how it is typed, of ``pretrain.writing.case.FORMS``.
    Words are chosen for having many votes, so those just above the threshold are on average rarer than
    their estimate; the interval allows for it.
    """

    word: str
    layer: int
    share: float
    low: float
    high: float
    form: str = "lower"

    @property
    def shrunk(self) -> float:
        """The share less what its noise may have lifted it by: ``s^3 / (s^2 + e^2)`` for standard error e.

        Shrinkage toward 0 by the estimated mean squared error (Thompson 1968, *Some Shrinkage Techniques for
        Estimating the Mean*, section 2): a word that stands out keeps its share, one at the threshold has half of it
        or less, and none is 0 or below. The error is that of the interval's upper end, which choosing does not move.
        """
        error = (self.high - self.share) / _UPPER
        return self.share**3 / (self.share**2 + error**2)


def by_share(word: FoundWord) -> tuple[float, str]:
    """Sort key: most frequent first, equals by spelling."""
    return -word.share, word.word


class LayerRow(Config):
    """One layer in full. Everything follows from noisy votes and public numbers.

    Attributes:
      asked, messages: messages that would have come from all devices asked, and those received: exact, so private.
        All else that depends on them is computed from whole tens of devices.
      domain, size: items to choose from, None included, and items in a message.
      message_bytes: length of a message as it travels.
      noise: standard deviation of the estimate, in messages, for an item that nobody holds.
      word_votes: least votes that publish a word.
      one_holder_chance: at most this probable is a word published that one device typed.
      anonymity: k, so that a word in fewer than k messages is published with at most one chance in a million.
      lemma_1: the bound of Sun & Sun 2024 on the same for that k, if there were no threshold but ``max_prefixes``;
        1 where it says nothing.
      kept, finished: prefixes that go on, words found.
      clones, blanket: central epsilon from the honest ones of the messages received, by two certificates; both hold.
      attack: what an explicit attack reaches; no certificate can be below it.
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


class ProjectedCoverage(Config):
    """Projected coverage: a discovery's yield among pretended new words, in a simulation on public text.

    Attributes:
      coverage: of the words held out of the public vocabulary, as they run in text, the share that was found.
      words, false_words: found, and of those the ones that nobody types.
    """

    epsilon0: float
    coverage: float
    words: int
    false_words: int


class DiscoveryResult(Config):
    """Public: words are outputs of the private mechanism, and nothing else here depends on a device.

    Guarantee: item-level ``epsilon0``-LDP under swap adjacency; ``messages_per_device * epsilon0``
    for a whole device; (epsilon_central, delta) for the item after shuffling, at the worst layer, since a device
    answers in one layer only; (device_epsilon_central, delta) for all of a device's messages after shuffling, at the
    worst layer. None of these adds to the rho of training.

    Attributes:
      epsilon_central: by ``certificate``.
      epsilon_blanket: the same statement by the privacy blanket, never larger.
      epsilon_attack: what an explicit attack reaches at some layer; the truth is not below.
      device_epsilon_central: of a whole device after shuffling.
      honest_share: of the other devices of a layer, on whose answers the certificates count.
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
    """Words of a central discovery, the least noisy weight of one, and of rho what its other releases took.

    Guarantee: ``central.select.select``.
    """

    words: tuple[FoundWord, ...]
    threshold: float
    forms_share: float
    filled_share: float
