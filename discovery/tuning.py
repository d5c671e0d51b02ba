"""What a server would see, drawn from a public histogram: for tuning only, with no privacy at all.

Choosing prefixes, layers and thresholds takes many trials. Here a trial costs as much for ten
million messages as for ten, since it starts from the true counts, which no server of a local
mechanism ever holds. So only public counts are taken.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from discovery.device.randomizer import SubsetSelection

_MOST = 10**9  # numpy's multivariate hypergeometric law takes no more


@dataclass(frozen=True)
class PublicHistogram:
    """Public counts of items: of a published word list or corpus, never of devices.

    Attributes:
      source: where everybody can get them, with the licence.
      counts_d: int64 ``[d]``, messages that hold each item, None last.

    Raises:
      ValueError: no source, or counts that are not whole numbers of at least 0.
    """

    source: str
    counts_d: np.ndarray

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("source: it is empty; say where these counts are published, or do not simulate with them")
        counts = self.counts_d
        if not (isinstance(counts, np.ndarray) and counts.ndim == 1 and np.issubdtype(counts.dtype, np.integer)):
            raise ValueError("counts_d: expected one row of whole numbers; words of devices cannot be simulated with")
        if np.any(counts < 0) or not 0 < counts.sum() < _MOST:
            raise ValueError(f"counts_d: the counts must be at least 0 and add up to between 1 and {_MOST - 1}")


def votes_for_tuning_only(
    histogram: PublicHistogram,
    randomizer: SubsetSelection,
    seed: int | tuple[int, ...],
    exact: Literal["marginal", "joint"],
) -> np.ndarray:
    """Votes as honest messages would add up to, int64 ``[d]``, from a public seed. Not a private mechanism.

    Args:
      exact: 'marginal' draws each item's votes by itself, from its true law, in no time; their sum
        is not k for every message. 'joint' draws all of them from their true joint law, item by item.

    Raises:
      ValueError: anything but a public histogram of the randomiser's domain.
    """
    if not isinstance(histogram, PublicHistogram):
        raise ValueError(f"histogram: got {type(histogram).__name__}; only a PublicHistogram may be simulated with")
    if len(histogram.counts_d) != randomizer.domain:
        raise ValueError(f"histogram: {len(histogram.counts_d)} items, but the domain has {randomizer.domain}")
    rng, counts_d = np.random.default_rng(seed), histogram.counts_d
    if exact == "joint":
        return _joint(counts_d, randomizer, rng)
    messages = int(counts_d.sum())
    return rng.binomial(counts_d, randomizer.inclusion) + rng.binomial(messages - counts_d, randomizer.background)


def _joint(counts_d: np.ndarray, randomizer: SubsetSelection, rng: np.random.Generator) -> np.ndarray:
    """One walk over the items with messages grouped by what they still have to place.

    Messages whose own item lies ahead are alike, whatever it is: ``ahead[s, r]`` of them have
    included it (s = 1) or not and have r other items to place; ``passed[r]`` are those whose own
    item lies behind. At an item the messages of which it is the own one are a random draw from those ahead.
    """
    domain, size, messages = randomizer.domain, randomizer.size, int(counts_d.sum())
    ahead = np.zeros((2, size + 1), dtype=np.int64)
    ahead[1, size - 1] = rng.binomial(messages, randomizer.inclusion)
    ahead[0, size] = messages - ahead[1, size - 1]
    passed = np.zeros(size + 1, dtype=np.int64)
    left = np.arange(size + 1)
    votes_d = np.zeros(domain, dtype=np.int64)
    for item, held in enumerate(counts_d.tolist()):
        own = rng.multivariate_hypergeometric(ahead.ravel(), held, method="marginals").reshape(2, -1) if held else 0
        if held:
            ahead -= own
            votes_d[item] = own[1].sum()
        # Places left for other items: this one and those after it, without the own one if it is ahead.
        if domain - item > 1:
            placed = rng.binomial(ahead, np.minimum(left / (domain - item - 1), 1.0))
            ahead -= placed
            ahead[:, :-1] += placed[:, 1:]
            votes_d[item] += placed.sum()
        placed = rng.binomial(passed, np.minimum(left / (domain - item), 1.0))
        passed -= placed
        passed[:-1] += placed[1:]
        votes_d[item] += placed.sum()
        if held:
            passed += own.sum(axis=0)
    return votes_d
