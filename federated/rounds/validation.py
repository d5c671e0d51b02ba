"""Evaluation of the model on validation devices during a run."""

import numpy as np

from federated.rounds.privatize import PrivacyState
from pretrain.config import Config
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import UNK, TokenStream
from pretrain.training.train import evaluate


class CurvePoint(Config):
    """The model on validation devices after ``round`` rounds; round 0 is the start.

    Sums over held-out devices whose data trains nothing. They carry no noise, so they are outside
    the guarantee of the training devices; reports say so.

    Attributes:
      validation_loss: nats per target, including sentence ends and OOV words.
      validation_top1: accuracy over words that the vocabulary holds.
      validation_recall: the same hits over all words; an OOV word is a miss.
      clip_norm: in use in the last of those rounds; public, also when it is estimated.
      clip_estimate: estimate of adaptive clipping; the clip norm itself without it.
    """

    round: int
    validation_loss: float
    validation_top1: float
    validation_recall: float
    clip_norm: float
    clip_estimate: float


def measure(
    model: KeyboardLM, validation: TokenStream, sequence_words: int, done: int, privacy: PrivacyState
) -> CurvePoint:
    """Loss, accuracy and clip norm after ``done`` rounds, on validation devices."""
    loss, top1 = evaluate(model, validation, sequence_words)
    words = int(np.sum(validation.tokens_N > UNK))
    unknown = int(np.sum(validation.tokens_N == UNK))
    return CurvePoint(
        round=done,
        validation_loss=loss,
        validation_top1=top1,
        validation_recall=top1 * words / max(words + unknown, 1),
        clip_norm=privacy.clip_norm,
        clip_estimate=privacy.estimate,
    )
