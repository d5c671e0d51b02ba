"""Small public text and devices for the tests of private counts."""

import numpy as np

from pretrain.vocabulary import EOS, SPECIALS, UNK, TokenStream, Vocabulary, join_owners

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
