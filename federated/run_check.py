"""What is looked at before the first round of a run: nothing may raise on data later.

Shape legend: D devices.
"""

import numpy as np
import torch

from federated.config.mechanism import MechanismConfig
from federated.local_training.clipping import check_clip_norm, check_report_goal
from federated.rounds.aggregation import largest_cohort
from federated.runtime_config import RuntimeConfig
from pretrain.model import KeyboardLM
from pretrain.vocabulary import BOS, PAD, TokenStream


def check_run(
    model: KeyboardLM,
    devices: TokenStream,
    synthetic_D: np.ndarray,
    mechanism: MechanismConfig,
    runtime: RuntimeConfig,
) -> None:
    """Arguments of ``train.fine_tune`` fit together.

    Raises:
      ValueError: they do not.
      OSError: a GPU is asked for where there is none.
    """
    check_report_goal(largest_cohort(mechanism, len(devices)))
    check_clip_norm(mechanism.clip_norm)
    if not len(devices):
        raise ValueError("devices: none to train on; check the private store's train split")
    if synthetic_D.shape != (len(devices),) or synthetic_D.dtype != bool:
        raise ValueError(
            f"synthetic_D: {synthetic_D.shape} {synthetic_D.dtype}; give one bool for each of {len(devices)}"
        )
    tokens_N = devices.tokens_N
    if len(tokens_N) and not (tokens_N.min() > BOS > PAD and tokens_N.max() < model.vocabulary_size):
        raise ValueError(
            f"devices: token ids must lie in {BOS + 1} to {model.vocabulary_size - 1}; "
            "encode them with the vocabulary that the model was built for"
        )
    if runtime.device == "cuda" and not torch.cuda.is_available():
        raise OSError("runtime.device: 'cuda', but no GPU is visible here; run on a GPU worker or set 'cpu'")
