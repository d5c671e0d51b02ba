"""The memorisation audit: every canary's rank, exposure, DP ceiling and whether beam search finds it.

Canaries are synthetic and their words are uniform draws, so the whole result is public.
"""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict
from scipy import stats

from evaluation.audit import exposure
from evaluation.audit.canaries import SECRET_WORDS, Canary, CanarySet, Population
from evaluation.audit.search import best_first
from evaluation.audit.whitening import mu_of_pattern
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
      population: never to be mixed: the guarantee is about compliant devices, those under stress are policy.
      participations: rounds its devices joined, added up; None if not given.
      loss: nats of the secret after its prefix.
      rank, rank_standard_error: among ``random_continuations``; see ``exposure.Rank``.
      exposure_bits: ``log2 |R| - log2 rank``.
      exposure_low_bits, exposure_high_bits: at the rank two standard errors up and down.
      mu: of the rounds that its own devices joined, or ``n_u`` times the guarantee's; None without either.
      ceiling_bits: exposure above this has probability at most ``alpha / (canaries of this population with this
        n_u)`` if the noise is what was accounted; None without ``mu``.
      within_ceiling: None without a ceiling.
      vacuous: the ceiling is above anything that could be measured, so it says nothing.
      found_by_beam: among the ``beam_width`` continuations that beam search finds.
      found_by_best_first: among as many of the likeliest; None where the search was given up.
    """

    words: tuple[str, ...]
    population: Population
    n_u: int
    n_e: int
    participations: int | None
    loss: float
    rank: int
    rank_standard_error: float
    method: Literal["counted", "estimated"]
    exposure_bits: float
    exposure_low_bits: float
    exposure_high_bits: float
    mu: float | None
    ceiling_bits: float | None
    within_ceiling: bool | None
    vacuous: bool | None
    found_by_beam: bool
    found_by_best_first: bool | None


class StressResult(_Result):
    """Canaries on devices outside timer and cap: an over-estimate that no guarantee is about.

    Attributes:
      found, found_single_user: canaries that a search completes, of any n_u and on one device.
    """

    canaries: int
    worst_rank_single_user: int | None
    max_exposure_bits: float
    max_exposure_bits_single_user: float | None
    found: int
    found_single_user: int


class AuditResult(_Result):
    """The table and what the gates read: every number but those in ``stress`` is about compliant canaries alone.

    Attributes:
      worst_rank_single_user: best-remembered canary of those on one device (the smallest rank);
        None if there are none, which a gate must treat as missing evidence.
      found_by_beam: canaries of any n_u that beam search found.
      found_by_beam_single_user: of these, the ones on one device.
      found_single_user: canaries on one device that beam search or exact search completes.
      broken_ceilings: compliant canaries on one device above their ceiling; None without ceilings.
      pooled_p_value: chance of compliant single-device canaries so well remembered on average, if the guarantee
        holds: ``sqrt(n) (mean of Phi^-1(1 - F) - mean of mu)`` against a normal; None without any.
      mu: of the guarantee that the ceilings follow from.
    """

    canaries: tuple[CanaryRow, ...]
    worst_rank_single_user: int | None
    max_exposure_bits: float
    max_exposure_bits_single_user: float | None
    found_by_beam: int
    found_by_beam_single_user: int
    found_single_user: int
    stress: StressResult | None
    broken_ceilings: int | None
    pooled_p_value: float | None
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
    own_mu_N: np.ndarray | None = None,
    alpha: float = 0.05,
    nodes: int = 2000,
    workers: int = 1,
) -> AuditResult:
    """Attack ``model`` with every canary.

    Args:
      mu: GDP of the training for one compliant device, for the ceilings of compliant canaries.
      own_mu_N: GDP of the rounds that each canary's own devices joined (``own_mu``), for the ceilings of both
        populations; a smaller number than the guarantee's, which is for the worst allowed device.
      participations_D: rounds that each synthetic device joined.
      alpha: chance that any of the canaries with the same n_u breaks its ceiling although the guarantee holds.
      nodes: accuracy of estimated ranks, see ``exposure.rank``.
      workers: canaries attacked at the same time, each on a thread; changes time, not the result.

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
    if own_mu_N is not None and len(own_mu_N) != len(canaries.canaries):
        raise ValueError(f"own_mu_N: {len(own_mu_N)} entries for {len(canaries.canaries)} canaries; give one for each")
    model = float64_copy(model)
    alike = Counter((canary.population, canary.n_u) for canary in canaries.canaries)

    def attack(number: int) -> CanaryRow:
        canary = canaries.canaries[number]
        reachable = _mu(canary, mu, None if own_mu_N is None else float(own_mu_N[number]))
        share = alpha / alike[canary.population, canary.n_u]
        joined = None
        if participations_D is not None:
            joined = int(np.sum(participations_D[canaries.canary_of_device_D == number]))
        return _row(model, canary, config, _seed(seed, number), nodes, reachable, share, joined)

    with ThreadPoolExecutor(workers) as pool:
        table = list(pool.map(attack, range(len(canaries.canaries))))
    rows = [row for row in table if row.population == "compliant"]
    single = [row for row in rows if row.n_u == 1]
    promised = [row for row in single if row.mu is not None]
    return AuditResult(
        canaries=tuple(table),
        worst_rank_single_user=min((row.rank for row in single), default=None),
        max_exposure_bits=max(row.exposure_bits for row in rows),
        max_exposure_bits_single_user=max((row.exposure_bits for row in single), default=None),
        found_by_beam=sum(row.found_by_beam for row in rows),
        found_by_beam_single_user=sum(row.found_by_beam for row in single),
        found_single_user=sum(map(_found, single)),
        stress=_stress([row for row in table if row.population == "stress"]),
        broken_ceilings=sum(not row.within_ceiling for row in promised) if promised else None,
        pooled_p_value=_pooled(promised, config.random_continuations) if promised else None,
        random_continuations=config.random_continuations,
        beam_width=config.beam_width,
        mu=mu,
        alpha=alpha,
        vocabulary_digest=vocabulary.digest,
    )


def own_mu(canaries: CanarySet, joined_TD: np.ndarray, whitener_TT: np.ndarray, noise_multiplier: float) -> np.ndarray:
    """GDP of each canary from the rounds its devices joined, float64 ``[canaries]``.

    Args:
      joined_TD: bool, rounds by synthetic devices.
      whitener_TT: of the mechanism, see ``evaluation.audit.whitening``.
    """
    if joined_TD.shape[1] != len(canaries.devices):
        raise ValueError(f"joined_TD: {joined_TD.shape[1]} devices, but {len(canaries.devices)} are synthetic")
    together = [joined_TD[:, canaries.canary_of_device_D == number] for number in range(len(canaries.canaries))]
    return np.array([mu_of_pattern(whitener_TT, part.sum(axis=1), noise_multiplier) for part in together])


def _row(
    model: KeyboardLM,
    canary: Canary,
    config: AuditConfig,
    seed: int,
    nodes: int,
    mu: float | None,
    alpha: float,
    joined: int | None,
) -> CanaryRow:
    """Attack one canary."""
    references = config.random_continuations
    place = exposure.rank(model, canary, references, seed, nodes=nodes)
    beams = exposure.beam_search(model, canary.prefix, SECRET_WORDS, config.beam_width)
    likeliest = best_first(model, canary.prefix, SECRET_WORDS, config.beam_width)
    bits, low, high = (
        exposure.exposure_bits(max(1.0, place.rank + errors * place.standard_error), references)
        for errors in (0, 2, -2)
    )
    ceiling = None if mu is None else exposure.ceiling_bits(mu, 1, alpha)
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
        within_ceiling=None if ceiling is None else bits <= ceiling,
        vacuous=None if ceiling is None else ceiling >= math.log2(references),
        found_by_beam=canary.secret in beams,
        found_by_best_first=canary.secret in likeliest.words if likeliest.exact else None,
    )


def _found(row: CanaryRow) -> bool:
    return bool(row.found_by_beam or row.found_by_best_first)


def _stress(rows: list[CanaryRow]) -> StressResult | None:
    single = [row for row in rows if row.n_u == 1]
    if not rows:
        return None
    return StressResult(
        canaries=len(rows),
        worst_rank_single_user=min((row.rank for row in single), default=None),
        max_exposure_bits=max(row.exposure_bits for row in rows),
        max_exposure_bits_single_user=max((row.exposure_bits for row in single), default=None),
        found=sum(map(_found, rows)),
        found_single_user=sum(map(_found, single)),
    )


def _mu(canary: Canary, promised: float | None, own: float | None) -> float | None:
    """GDP that bounds a canary; without its own rounds there is none for devices outside the rules."""
    if own is not None:
        return own
    return None if promised is None or canary.population == "stress" else canary.n_u * promised


def _pooled(rows: list[CanaryRow], references: int) -> float:
    """Whether canaries are remembered too well on average, where no single one is."""
    # Half a place off both ends, as a share of 0 or 1 has no quantile.
    shares = np.clip([row.rank / (references + 1) for row in rows], 0.5 / references, 1 - 0.5 / references)
    excess = stats.norm.isf(shares) - [row.mu for row in rows]
    return float(stats.norm.sf(math.sqrt(len(rows)) * np.mean(excess)))


def _seed(seed: int, number: int) -> int:
    """A seed of its own for each canary, of which nothing else that starts from the same seed knows."""
    return int(np.random.SeedSequence([seed, number, *b"canary rank"]).generate_state(1)[0])
