"""The memorisation audit: every canary's rank, exposure, DP ceiling and whether beam search finds it.

Canaries are synthetic and their words are uniform draws, so the whole result is public.
"""

import math
from collections import Counter
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from evaluation import exposure
from evaluation.canaries import SECRET_WORDS, CanarySet
from evaluation.config import AuditConfig
from evaluation.inference import float64_copy
from pretrain.model import KeyboardLM
from pretrain.vocabulary import Vocabulary


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CanaryRow(_Result):
    """One canary, after Ramaswamy et al. 2020, table 3.

    Attributes:
      n_u, n_e: synthetic devices that share it, copies on each.
      participations: rounds its devices joined, added up; None if not given.
      loss: nats of the secret after its prefix.
      rank, rank_standard_error: among ``random_continuations``; see ``exposure.Rank``.
      exposure_bits: ``log2 |R| - log2 rank``.
      ceiling_bits: exposure above this has probability at most ``alpha / (canaries with this n_u)``
        under the guarantee; None without a guarantee.
      within_ceiling: None without a ceiling.
      vacuous: the ceiling is above anything that could be measured, so it says nothing.
    """

    words: tuple[str, ...]
    n_u: int
    n_e: int
    participations: int | None
    loss: float
    rank: int
    rank_standard_error: float
    method: Literal["counted", "estimated"]
    exposure_bits: float
    ceiling_bits: float | None
    within_ceiling: bool | None
    vacuous: bool | None
    found_by_beam: bool


class AuditResult(_Result):
    """The table and what the gates read.

    Attributes:
      worst_rank_single_user: best-remembered canary of those on one device (the smallest rank);
        None if there are none, which a gate must treat as missing evidence.
      found_by_beam: canaries of any n_u that beam search found.
      found_by_beam_single_user: of these, the ones on one device.
      mu: of the guarantee that the ceilings follow from.
    """

    canaries: tuple[CanaryRow, ...]
    worst_rank_single_user: int | None
    max_exposure_bits: float
    max_exposure_bits_single_user: float | None
    found_by_beam: int
    found_by_beam_single_user: int
    random_continuations: int
    beam_width: int
    mu: float | None
    alpha: float
    vocabulary_digest: str


def audit(
    model: KeyboardLM,
    canaries: CanarySet,
    config: AuditConfig,
    vocabulary: Vocabulary,
    seed: int,
    *,
    mu: float | None = None,
    participations_D: np.ndarray | None = None,
    alpha: float = 0.05,
    nodes: int = 2000,
) -> AuditResult:
    """Attack ``model`` with every canary.

    Args:
      mu: GDP of the training for one compliant device, for the ceilings.
      participations_D: rounds that each synthetic device joined.
      alpha: chance that any of the canaries with the same n_u breaks its ceiling although the guarantee holds.
      nodes: accuracy of estimated ranks, see ``exposure.rank``.

    Raises:
      ValueError: model, canaries and vocabulary are not of one vocabulary snapshot, or the
        participations are not those of the synthetic devices.
    """
    if canaries.vocabulary_digest != vocabulary.digest:
        raise ValueError(
            f"canaries: made for vocabulary {canaries.vocabulary_digest[:12]}, audited with {vocabulary.digest[:12]}; "
            "make the canaries from the vocabulary that the model is trained with"
        )
    if model.vocabulary_size != len(vocabulary):
        raise ValueError(f"model: {model.vocabulary_size} output rows, but the vocabulary has {len(vocabulary)} words")
    if participations_D is not None and len(participations_D) != len(canaries.devices):
        raise ValueError(
            f"participations_D: {len(participations_D)} entries for {len(canaries.devices)} synthetic devices; "
            "give one for each"
        )
    model = float64_copy(model)
    alike = Counter(canary.n_u for canary in canaries.canaries)
    rows = []
    for number, canary in enumerate(canaries.canaries):
        place = exposure.rank(model, canary, config.random_continuations, _seed(seed, number), nodes=nodes)
        beams = exposure.beam_search(model, canary.prefix, SECRET_WORDS, config.beam_width)
        bits = exposure.exposure_bits(place.rank, config.random_continuations)
        ceiling = None if mu is None else exposure.ceiling_bits(mu, canary.n_u, alpha / alike[canary.n_u])
        mine_D = canaries.canary_of_device_D == number
        rows.append(
            CanaryRow(
                words=canary.words,
                n_u=canary.n_u,
                n_e=canary.n_e,
                participations=None if participations_D is None else int(np.sum(participations_D[mine_D])),
                loss=place.loss,
                rank=round(place.rank),
                rank_standard_error=place.standard_error,
                method="counted" if place.exact else "estimated",
                exposure_bits=bits,
                ceiling_bits=ceiling,
                within_ceiling=None if ceiling is None else bits <= ceiling,
                vacuous=None if ceiling is None else ceiling >= math.log2(config.random_continuations),
                found_by_beam=canary.secret in beams,
            )
        )
    single = [row for row in rows if row.n_u == 1]
    return AuditResult(
        canaries=tuple(rows),
        worst_rank_single_user=min((row.rank for row in single), default=None),
        max_exposure_bits=max(row.exposure_bits for row in rows),
        max_exposure_bits_single_user=max((row.exposure_bits for row in single), default=None),
        found_by_beam=sum(row.found_by_beam for row in rows),
        found_by_beam_single_user=sum(row.found_by_beam for row in single),
        random_continuations=config.random_continuations,
        beam_width=config.beam_width,
        mu=mu,
        alpha=alpha,
        vocabulary_digest=vocabulary.digest,
    )


def _seed(seed: int, number: int) -> int:
    """A seed of its own for each canary, of which nothing else that starts from the same seed knows."""
    return int(np.random.SeedSequence([seed, number, *b"canary rank"]).generate_state(1)[0])
