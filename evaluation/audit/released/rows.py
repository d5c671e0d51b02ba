"""One row of the audits of the noise: secret evidence and a public verdict.

Figures of the evidence are functions of released sums minus noise or minus recomputed sums: together with the public
release they distinguish the true text from every other, to the last digit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "matched_filter",
    "noise_scale",
    "clip_norm",
    "noise_whiteness",
    "records",
    "sequence",
    "noise_added",
    "update_lengths",
    "canary_lengths",
    "canaries_in",
    "cohorts",
    "trained_rows",
]


# The statement that each audit of a training run tests.
TRAINED: Mapping[Kind, str] = {
    "sequence": "every model follows from the released sums, and the last one is the published one",
    "noise_added": "released sums are the sums and all the noise of the key",
    "update_lengths": "no device's update is longer than the clip norm, and sums hold nothing else",
    "canary_lengths": "every canary's update is one clip norm long",
    "canaries_in": "the launch's canaries, and no others, were among the devices that trained",
    "cohorts": "devices of every round are those that seed and key choose",
    "trained_rows": "rounds trained on the text of the recorded devices, each once",
    "matched_filter": "a canary that takes part is no easier to tell than the whole run's guarantee says",
    "noise_scale": "as much noise as claimed along the canaries' directions",
    "clip_norm": "a canary moves released sums by no more than one clip norm",
    "noise_whiteness": "no two rounds share noise along the canaries' directions",
    "records": "the rounds that canaries joined allow no more than the guarantee says",
}
# Rows whose power is a function of the launch file and the model's size; the power of others depends on estimates.
_PUBLIC_POWER = frozenset({"noise_added", "update_lengths", "canary_lengths"})


@dataclass(frozen=True)
class AuditVerdict:
    """The verdict of one audit; public.

    Guarantee: every field but the verdict is a function of the launch file and public sizes. An honest run passes all
    audits with probability at least ``1 - ALPHA``, for any text on its devices.

    Attributes:
      tested: from ``TRAINED``.
      least_noise, least_clip: those of ``AuditRow``, if they do not depend on the run.
    """

    type: Kind
    tested: str
    verdict: Literal["passed", "failed", "not run"]
    least_noise: float | None
    least_clip: float | None


@dataclass(frozen=True)
class AuditRow:
    """One audit of the noise and its evidence against the claim. Secret.

    Attributes:
      reason: the evidence, in words and figures; empty without any.
      least_noise: largest share of the claimed noise that it rejects with 90% power; None if none.
      least_clip: smallest multiple of the clip norm that it rejects with 90% power; None if none.
    """

    type: Kind
    reason: str
    least_noise: float | None = None
    least_clip: float | None = None

    @property
    def passed(self) -> bool:
        """Return whether there is no evidence against the claim."""
        return not self.reason


def verdicts(rows: Iterable[AuditRow], tested: Mapping[Kind, str]) -> tuple[AuditVerdict, ...]:
    """Public half of the audits: a verdict for every entry of ``tested``, in that order."""
    row_of = {row.type: row for row in rows}
    return tuple(_verdict(kind, what, row_of.get(kind)) for kind, what in tested.items())


def _verdict(kind: Kind, tested: str, row: AuditRow | None) -> AuditVerdict:
    if row is None:
        return AuditVerdict(kind, tested, "not run", None, None)
    public_power = kind in _PUBLIC_POWER
    return AuditVerdict(
        type=kind,
        tested=tested,
        verdict="passed" if row.passed else "failed",
        least_noise=row.least_noise if public_power else None,
        least_clip=row.least_clip if public_power else None,
    )
