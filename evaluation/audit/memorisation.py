"""The memorisation audit: rank, exposure and DP ceiling of every canary, and the result of beam search.

Canaries are synthetic and their words are uniform draws, so the whole result is public.
"""

import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from evaluation.audit import exposure
from evaluation.audit.canaries import SECRET_WORDS, Canary, CanarySet, Population
from evaluation.audit.search import best_first
from evaluation.audit.whitening import mu_of_pattern
from evaluation.config import ALPHA, BEAM_WIDTH, RANDOM_CONTINUATIONS, AuditConfig
from evaluation.inference import float64_copy
from pretrain import progress
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class CanaryRow:
    """One canary, after Ramaswamy et al. 2020, tables 3 and 4.

    Attributes:
      n_u, n_e: synthetic devices that share it, copies on each.
      population: never mixed: the guarantee covers compliant devices; stress devices serve policy only.
      participations: rounds that its devices joined, summed.
      loss: nats of the secret after its prefix.
      rank, rank_standard_error: among ``random_continuations``; see ``exposure.Rank``.
      exposure_bits: ``log2 |R| - log2 rank``.
      exposure_low_bits, exposure_high_bits: at the rank two standard errors up and down.
      mu: of the rounds that its own devices joined.
      ceiling_bits: exposure above this has probability at most ``ALPHA / (canaries of this population with this
        n_u)`` if the noise is as accounted.
      vacuous: the ceiling exceeds every measurable exposure.
      found_by_beam: among the ``BEAM_WIDTH`` continuations that beam search finds.
      found_by_best_first: among equally many of the likeliest; None if the search exceeded its budget.
    """

    words: tuple[str, ...]
    population: Population
    n_u: int
    n_e: int
    participations: int
    loss: float
    rank: int
    rank_standard_error: float
    method: Literal["counted", "estimated"]
    exposure_bits: float
    exposure_low_bits: float
    exposure_high_bits: float
    mu: float
    ceiling_bits: float
    within_ceiling: bool
    vacuous: bool
    found_by_beam: bool
    found_by_best_first: bool | None


@dataclass(frozen=True)
class StressResult:
    """Canaries on devices outside timer and cap: an over-estimate, which no guarantee covers.

    Attributes:
      canaries: those that trained.
      found, found_single_user: canaries that a search completes, of any n_u and on one device.
    """

    canaries: int
    worst_rank_single_user: int | None
    max_exposure_bits: float
    max_exposure_bits_single_user: float | None
    found: int
    found_single_user: int


@dataclass(frozen=True)
class AuditResult:
    """The table of all canaries, and the figures of the gates over those that trained; compliant ones but ``stress``.

    Attributes:
      worst_rank_single_user: smallest rank of a canary on one device; None if there are none, which a gate must
        treat as missing evidence.
      found_by_beam: canaries of any n_u that beam search found.
      found_single_user: canaries on one device that beam search or exact search completes.
      broken_ceilings: compliant canaries on one device above their ceiling; None if there are none.
      pooled_p_value: probability that compliant single-device canaries are remembered at least this well on average, if
        the guarantee holds: ``sqrt(n) (mean of Phi^-1(1 - F) - mean of mu)`` against a normal; None without any.
    """

    canaries: tuple[CanaryRow, ...]
    worst_rank_single_user: int | None
    max_exposure_bits: float
    found_by_beam: int
    found_single_user: int
    stress: StressResult | None
    broken_ceilings: int | None
    pooled_p_value: float | None


@dataclass(frozen=True)
class Rounds:
    """Participation of the synthetic devices in training.

    Attributes:
      participations_D: rounds that each synthetic device joined.
      mu_N: GDP of the rounds that each canary's own devices joined (``own_mu``), for the ceilings of both
        populations; smaller than the guarantee's mu, which is for the worst allowed device.
    """

    participations_D: np.ndarray
    mu_N: np.ndarray


def attacked(
    model: KeyboardLM,
    planted: CanarySet,
    config: AuditConfig,
    vocabulary: Vocabulary,
    seed: int,
    rounds: Rounds,
    *,
    whose: str = "the launch",
    nodes: int = 2000,
    workers: int = 1,
) -> list[CanaryRow]:
    """A row for every canary planted in ``model``.

    If the guarantee holds, any of the canaries with the same n_u exceeds its ceiling with probability at most
    ``ALPHA``.

    Args:
      whose: model, for progress.
      nodes: accuracy of estimated ranks, see ``exposure.rank``.
      workers: number of canaries attacked in parallel, one per thread; changes the time, not the result.

    Raises:
      ValueError: model, canaries and vocabulary have different vocabulary snapshots, or the
        rounds are not those of the synthetic devices.
    """
    if planted.vocabulary_digest != vocabulary.digest:
        raise ValueError(
            f"canaries: made for vocabulary {planted.vocabulary_digest[:12]}, audited with {vocabulary.digest[:12]}; "
            "make the canaries from the vocabulary that the model is trained with"
        )
    if model.vocabulary_size != len(vocabulary):
        raise ValueError(f"model: {model.vocabulary_size} output rows, but the vocabulary has {len(vocabulary)} words")
    if len(rounds.participations_D) != len(planted.devices):
        raise ValueError(
            f"participations_D: {len(rounds.participations_D)} entries for {len(planted.devices)} synthetic devices; "
            "give one for each"
        )
    if len(rounds.mu_N) != len(planted.canaries):
        raise ValueError(f"mu_N: {len(rounds.mu_N)} entries for {len(planted.canaries)} canaries; give one for each")
    model = float64_copy(model)
    alike = Counter((canary.population, canary.n_u) for canary in planted.canaries)
    advance = progress.along(f"attacking canaries of {whose}", len(planted.canaries))

    def attack(number: int) -> CanaryRow:
        canary = planted.canaries[number]
        alpha = ALPHA / alike[canary.population, canary.n_u]
        place = exposure.rank(model, canary, RANDOM_CONTINUATIONS, _seed(seed, number), nodes=nodes)
        joined = int(np.sum(rounds.participations_D[planted.canary_of_device_D == number]))
        row = _row(model, canary, place, RANDOM_CONTINUATIONS, joined, float(rounds.mu_N[number]), alpha)
        advance(1.0)
        return row

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(attack, range(len(planted.canaries))))


def summed_up(table: Sequence[CanaryRow], random_continuations: int) -> AuditResult:
    """Summary for gates and report, over the canaries in launch and twin whose devices joined a round.

    A canary that never trained is no evidence: no attack could find it. Where none trained there is no figure, which
    a gate treats as missing evidence.
    """
    trained = [row for row in table if row.participations]
    rows = [row for row in trained if row.population == "compliant"]
    single = [row for row in rows if row.n_u == 1]
    return AuditResult(
        canaries=tuple(table),
        worst_rank_single_user=min((row.rank for row in single), default=None),
        max_exposure_bits=max((row.exposure_bits for row in rows), default=0.0),
        found_by_beam=sum(row.found_by_beam for row in rows),
        found_single_user=sum(map(completed, single)),
        stress=_stress([row for row in table if row.population == "stress"]),
        broken_ceilings=sum(not row.within_ceiling for row in single) if single else None,
        pooled_p_value=_pooled(single, random_continuations) if single else None,
    )


def own_mu(planted: CanarySet, joined_TD: np.ndarray, whitener_TT: np.ndarray, noise_multiplier: float) -> np.ndarray:
    """GDP of each canary from the rounds its devices joined, float64 ``[canaries]``.

    Args:
      joined_TD: bool, rounds by synthetic devices.
      whitener_TT: of the mechanism, see ``evaluation.audit.whitening``.
    """
    if joined_TD.shape[1] != len(planted.devices):
        raise ValueError(f"joined_TD: {joined_TD.shape[1]} devices, but {len(planted.devices)} are synthetic")
    together = [joined_TD[:, planted.canary_of_device_D == number] for number in range(len(planted.canaries))]
    return np.array([mu_of_pattern(whitener_TT, part.sum(axis=1), noise_multiplier) for part in together])


def _row(
    model: KeyboardLM,
    canary: Canary,
    place: exposure.Rank,
    references: int,
    joined: int,
    mu: float,
    alpha: float,
) -> CanaryRow:
    """Search for one canary, and compute its rank among ``references`` with exposure and ceiling."""
    beams = exposure.beam_search(model, canary.prefix, SECRET_WORDS, BEAM_WIDTH)
    likeliest = best_first(model, canary.prefix, SECRET_WORDS, BEAM_WIDTH)
    bits, low, high = (
        exposure.exposure_bits(max(1.0, place.rank + errors * place.standard_error), references)
        for errors in (0, 2, -2)
    )
    ceiling = exposure.ceiling_bits(mu, 1, alpha)
    return CanaryRow(
        words=canary.words,
        population=canary.population,
        n_u=canary.n_u,
        n_e=canary.n_e,
        participations=joined,
        loss=place.loss,
        rank=round(place.rank),
        rank_standard_error=place.standard_error,
        method="counted" if place.exact else "estimated",
        exposure_bits=bits,
        exposure_low_bits=low,
        exposure_high_bits=high,
        mu=mu,
        ceiling_bits=ceiling,
        within_ceiling=bits <= ceiling,
        vacuous=ceiling >= math.log2(references),
        found_by_beam=canary.secret in beams,
        found_by_best_first=canary.secret in likeliest.words if likeliest.exact else None,
    )


def completed(row: CanaryRow) -> bool:
    """Return whether a search found the canary."""
    return bool(row.found_by_beam or row.found_by_best_first)


def _stress(planted: list[CanaryRow]) -> StressResult | None:
    if not planted:
        return None
    rows = [row for row in planted if row.participations]
    single = [row for row in rows if row.n_u == 1]
    return StressResult(
        canaries=len(rows),
        worst_rank_single_user=min((row.rank for row in single), default=None),
        max_exposure_bits=max((row.exposure_bits for row in rows), default=0.0),
        max_exposure_bits_single_user=max((row.exposure_bits for row in single), default=None),
        found=sum(map(completed, rows)),
        found_single_user=sum(map(completed, single)),
    )


def _pooled(rows: list[CanaryRow], references: int) -> float:
    """P-value of pooled ranks: small if canaries are remembered too well on average, even if no single one is."""
    # Half a rank off both ends, as a share of 0 or 1 has no finite quantile.
    shares = np.clip([row.rank / (references + 1) for row in rows], 0.5 / references, 1 - 0.5 / references)
    excess = stats.norm.isf(shares) - [row.mu for row in rows]
    return float(stats.norm.sf(math.sqrt(len(rows)) * np.mean(excess)))


def _seed(seed: int, number: int) -> int:
    """Seed of one canary, independent of every other use of ``seed``."""
    return int(np.random.SeedSequence([seed, number, *b"canary rank"]).generate_state(1)[0])
