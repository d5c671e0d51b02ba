"""Training text of a twin: pieces of public text in place of the launch's devices."""

import itertools

import numpy as np

from federated.planning.rehearsal import pseudo_users
from pretrain.vocabulary import EOS, TokenStream, join_streams

# Two or three sentences: enough for an update as long as the clip norm, at a small part of a real device's cost.
WORDS = 20


def pseudo_people(text: TokenStream, count: int, seed: int) -> TokenStream:
    """Exactly ``count`` owners of whole sentences of ``text``, each of ``WORDS`` words rounded up to a sentence.

    Text that is too short is cut again, in another order.

    Guarantee: the result contains only ``text``, which is public.

    Raises:
      ValueError: the text has no sentence.
    """
    if not np.any(text.tokens_N == EOS):
        raise ValueError(
            "public_text: it holds no sentence, and a twin is trained on public text; give a longer corpus"
        )
    cuts: list[TokenStream] = []
    for order in itertools.count():
        missing = count - sum(map(len, cuts))
        if not missing:
            return join_streams(cuts) if cuts else text.select(np.arange(0))
        cuts.append(pseudo_users(text, missing, "fixed", WORDS, seed + order))
    raise AssertionError("unreachable")
