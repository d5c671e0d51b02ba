"""New words: upsampling of public text with them, and the quality of their predictions.

Shape legend: S sentences, N tokens, B rows of a batch, T steps, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from pretrain.config import MOST_COPIES, NEW_WORD_SHARE
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.batches import find_rows
from pretrain.text.vocabulary import EOS, PAD, TokenStream, join_owners, join_streams

_ROWS_AT_ONCE = 64
# One in this many public sentences with a new word is held out for early stopping of adaptation.
_KEPT_BACK = 5


@dataclass(frozen=True)
class EnrichedText:
    """A stream with more of the sentences that hold a new word.

    Attributes:
      words: distinct new words that occur in it at all; the others learn from similar words only.
      sentences: that hold one, each counted once.
      copies: number of copies of each of them in the stream.
    """

    stream: TokenStream
    words: int
    sentences: int
    copies: int


def hold_back(train: TokenStream, first_new: int) -> tuple[TokenStream, TokenStream]:
    """Text without every fifth of the sentences that hold a new word, and those sentences alone."""
    ends = np.flatnonzero(train.tokens_N == EOS) + 1
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    holding = np.flatnonzero(np.add.reduceat(train.tokens_N >= first_new, starts)) if len(starts) else starts
    kept_back = holding[_KEPT_BACK - 1 :: _KEPT_BACK]
    taken_N = np.zeros(len(train.tokens_N) + 1, dtype=np.int64)
    taken_N[starts[kept_back]] = 1
    taken_N[ends[kept_back]] -= 1
    back_N = np.cumsum(taken_N)[:-1] > 0
    before_N = np.concatenate([[0], np.cumsum(~back_N)])
    rest = TokenStream(train.tokens_N[~back_N], before_N[train.offsets_D1])
    return rest, join_owners([train.tokens_N[starts[place] : ends[place]] for place in kept_back])


def enrich(
    train: TokenStream, first_new: int, share: float = NEW_WORD_SHARE, most_copies: int = MOST_COPIES
) -> EnrichedText:
    """Repeat sentences with a new word until they are ``share`` of all, but none more than ``most_copies`` times.

    New words are rare in public text, or discovery would not have had to find them: of a hundred
    batches most would hold none. The cap keeps a handful of sentences from being learnt by heart.

    Args:
      first_new: ids from here on are new words.
    """
    ends = np.flatnonzero(train.tokens_N == EOS) + 1
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    new_N = train.tokens_N >= first_new
    holding_S = np.add.reduceat(new_N, starts) > 0 if len(starts) else np.zeros(0, dtype=bool)
    words, sentences = len(np.unique(train.tokens_N[new_N])), int(holding_S.sum())
    if not sentences or not share:
        return EnrichedText(train, words, sentences, 1)
    wanted = share / (1 - share) * (len(starts) - sentences) / sentences
    copies = int(min(max(np.ceil(wanted), 1), most_copies))
    repeated = [train.tokens_N[first:end] for first, end in zip(starts[holding_S], ends[holding_S], strict=True)]
    return EnrichedText(join_streams([train, join_owners(repeated * (copies - 1))]), words, sentences, copies)


@torch.no_grad()
def new_word_loss(model: KeyboardLM, held_out: TokenStream, first_new: int, sequence_words: int) -> float | None:
    """Nats per new word of held-out text; None where it holds none."""
    rows = find_rows(held_out.tokens_N, sequence_words)
    new_N = np.concatenate([[0], np.cumsum(held_out.tokens_N >= first_new)])
    holding = np.flatnonzero(new_N[rows.start_R + rows.length_R] > new_N[rows.start_R])
    loss, count = 0.0, 0
    for first in range(0, len(holding), _ROWS_AT_ONCE):
        batch = rows.batch(holding[first : first + _ROWS_AT_ONCE])
        inputs_BT, targets_BT = (part.to(model.embedding.device) for part in batch)
        asked_BT = torch.where(targets_BT >= first_new, targets_BT, PAD)
        logits_BTV, _ = model(inputs_BT)
        loss += functional.cross_entropy(
            logits_BTV.flatten(0, 1), asked_BT.flatten(), ignore_index=PAD, reduction="sum"
        ).item()
        count += int((asked_BT != PAD).sum())
    return loss / count if count else None
