"""The rank of a canary as the paper finds it: by scoring every reference.

Shape legend: B secrets at a time, V vocabulary.
"""

import numpy as np
import torch
from torch import Tensor

from evaluation.audit.canaries import Canary
from evaluation.inference import NUM_SPECIALS, float64_copy, read, rows_of, step
from pretrain.model.keyboard_lm import KeyboardLM


def rank_by_sampling(model: KeyboardLM, canary: Canary, random_continuations: int, seed: int) -> int:
    """Score every one of ``random_continuations`` secrets (Ramaswamy et al. 2020, section IV)."""
    model, rng = float64_copy(model), np.random.default_rng(seed)
    log_probs_1V, state = read(model, list(canary.prefix))

    def scores(secrets_B3: Tensor) -> Tensor:
        state_B = rows_of(state, torch.zeros(len(secrets_B3), dtype=torch.long))
        log_prob_B = log_probs_1V[0, secrets_B3[:, 0]]
        for place in range(2):
            next_BV, state_B = step(model, secrets_B3[:, place], state_B)
            log_prob_B = log_prob_B + next_BV.gather(1, secrets_B3[:, place + 1, None])[:, 0]
        return log_prob_B

    secret_13 = torch.tensor([canary.secret])
    threshold, better = float(scores(secret_13)), 0
    for done in range(0, random_continuations, 4096):
        size = (min(4096, random_continuations - done), 3)
        secrets_B3 = torch.as_tensor(rng.integers(NUM_SPECIALS, model.vocabulary_size, size=size))
        own_B = (secrets_B3 == secret_13).all(dim=1)
        better += int(((scores(secrets_B3) >= threshold) & ~own_B).sum())
    return 1 + better
