"""Small public text and devices for the tests of private counts."""

import numpy as np

from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, EOS, SPECIALS, UNK, TokenStream, Vocabulary, join_owners

VOCABULARY = Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(40)))


def typed(owners: int, seed: int, habit: float = 0.5) -> TokenStream:
    """Owners of a few sentences each; after word i comes i + 1 with chance ``habit``."""
    rng = np.random.default_rng(seed)
    words = len(VOCABULARY) - UNK
    chance = 1 / np.arange(2, words + 2)
    chance /= chance.sum()
    owned = []
    for _ in range(owners):
        tokens: list[int] = []
        for _ in range(rng.integers(1, 8)):
            word = int(rng.choice(words, p=chance))
            for _ in range(rng.integers(1, 9)):
                word = (word + 1) % words if rng.random() < habit else int(rng.choice(words, p=chance))
                tokens.append(UNK + word)
            tokens.append(EOS)
        owned.append(np.array(tokens))
    return join_owners(owned)


def moved(stream: TokenStream, vocabulary: Vocabulary, order: int = 3) -> CountedNGram:
    """An n-gram of a text with drawn factors, and drawn pairs after a sentence's start and every fourth word."""
    size, rng = len(vocabulary), np.random.default_rng(5)
    contexts = [BOS, *range(len(SPECIALS), size, 4)]
    row_V = np.full(size, -1)
    row_V[contexts] = np.arange(len(contexts))
    followers = np.sort(rng.choice(np.arange(len(SPECIALS), size), (len(contexts), 3)), axis=1)
    key_G = np.unique(np.arange(len(contexts))[:, None] * size + followers)
    return CountedNGram(
        NGram.fit(stream, vocabulary, order),
        np.exp(rng.standard_normal(size)),
        row_V,
        key_G,
        rng.uniform(0.05, 0.3, len(key_G)),
        rng.uniform(0.2, 0.9, len(contexts)),
    )
