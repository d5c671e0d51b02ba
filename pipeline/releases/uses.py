"""The list of all uses of private data, and the loops over it.

Every use whose result leaves is in the list, even without a budget: it then states a reason instead of a loss. A new
release is a file with a ``Release``, and a line in this list.
"""

from evaluation.config import ALPHA
from federated.config.population import Files
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.central_words import CENTRAL_WORDS
from pipeline.releases.counts import COUNTS
from pipeline.releases.evaluation import EVALUATION
from pipeline.releases.local_words import LOCAL_WORDS
from pipeline.releases.release import Outlook, Release, Use
from pipeline.releases.training import TRAINING
from reports.disclosure.releases import DataAccess

_HELD_OUT = "aggregate metrics of held-out devices, released without noise; their text trains nothing"

_REUSE_TELLS = (
    "A launch that reuses another one's words or counts shows that no device's text changed between the two, and a "
    "launch that does not may show that some did. No budget covers this."
)
_READABLE_TELLS = (
    "A launch of files that goes on shows that at most a hundredth of their rows could not be read, and that under a "
    "hundredth of those read, or under ten, hold any one kind of debris of wrong decoding; its check "
    "says whether half of the first rows seem to be of another script or language. No budget covers this."
)
_EVALUATED_WITHOUT_NOISE = (
    "Evaluation on validation and test devices is not differentially private: it releases aggregate metrics of "
    "devices whose text trains nothing."
)
_WITHOUT_PRIVACY = (
    "One arm of the comparison was trained without noise. That is allowed because this population is a simulation; on "
    "people's own text it would be a release without any guarantee."
)


_TUNED = {
    "public text": "rates, rounds and sizes were chosen on public text alone, as the launch file says",
    "this population": "rates, rounds and sizes were chosen on this very population, which is simulated; no epsilon "
    "counts that",
    "earlier launches": "rates, rounds and sizes were chosen by results that earlier launches released, as the launch "
    "file says",
}


def _open(config: LaunchConfig) -> bool:
    """Return whether the launch evaluates on held-out devices without noise."""
    return not EVALUATION.asked(config)


def _readable(config: LaunchConfig) -> tuple[str, ...]:
    return (_READABLE_TELLS,) if isinstance(config.private_text, Files) else ()


# In order of the stages.
USES: tuple[Use, ...] = (
    Use(
        stage="ingest_private",
        asked=_open,
        says=lambda config: (
            "the store stays private; counts of devices rounded down to tens, of rows of other locales "
            "rounded down to hundreds, and a commitment under a salt of the launch leave it"
        ),
        limits=_readable,
    ),
    # A device that typed nothing stays in the population, so under zero-out adjacency neighbours have the same devices.
    Use(
        stage="ingest_private",
        asked=lambda config: not _open(config),
        says=lambda config: (
            "the number of devices, which does not depend on what one of them typed, and a commitment under a salt of "
            "the launch; nothing else leaves the store"
        ),
        covered=True,
        limits=lambda config: (_REUSE_TELLS, *_readable(config)),
    ),
    LOCAL_WORDS,
    CENTRAL_WORDS,
    COUNTS,
    TRAINING,
    Use(
        stage="fine_tune",
        part="validation curve",
        asked=lambda config: _open(config) and TRAINING.asked(config),
        says=lambda config: _HELD_OUT,
    ),
    Use(
        stage="audit",
        asked=lambda config: True,
        says=lambda config: (
            "only verdicts of the tests on sums and noise: an honest run passes all of them with probability at "
            f"least {1 - ALPHA:g}, whatever its devices typed, and a run that fails is held; canaries are tested on "
            "released models"
        ),
        covered=True,
    ),
    Use(
        stage="ab_test",
        asked=_open,
        says=lambda config: _HELD_OUT,
        limits=lambda config: (_EVALUATED_WITHOUT_NOISE,),
    ),
    Use(
        stage="ab_test",
        part="coverage",
        asked=_open,
        says=lambda config: "one share over validation devices, released without noise; their text trains nothing",
    ),
    EVALUATION,
    Use(
        stage="ab_test",
        part="an arm trained without privacy",
        asked=lambda config: config.ab_test.non_private_upper_bound,
        limits=lambda config: (_WITHOUT_PRIVACY,),
        says=lambda config: (
            "simulation only: the population is a public data set or made up, so no private text is at risk; the "
            "model is deleted after the comparison"
        ),
    ),
    Use(
        stage="audit_releases",
        asked=lambda config: True,
        says=lambda config: (
            "every release derived again from text and the noise of its key; only verdicts leave, which are the same "
            "for an honest release whatever its devices typed, and a failed one holds the launch"
        ),
        covered=True,
    ),
    Use(
        stage="publish",
        part="logs of keyboards",
        asked=lambda config: bool(config.tried_by),
        says=lambda config: (
            "some devices get the approved model first: keyboards with and without it log counts by bucket of devices "
            "and day, released as metrics of both arms without noise; they train nothing"
        ),
    ),
)
RELEASES = tuple(use for use in USES if isinstance(use, Release))


def releases(config: LaunchConfig) -> tuple[Release, ...]:
    """Return the releases of a launch in order; one per stage."""
    return tuple(release for release in RELEASES if release.asked(config))


def planned(config: LaunchConfig, seen: Outlook) -> dict[str, Spend]:
    """Worst-case spend of every release of a launch, by stage."""
    return {release.stage: release.planned(config, seen) for release in releases(config)}


def limits(config: LaunchConfig) -> tuple[str, ...]:
    """Return the limitations of a launch's uses of private data."""
    return tuple(line for use in USES if use.asked(config) for line in use.limits(config))


def uncovered(config: LaunchConfig) -> tuple[str, ...]:
    """Return the uses of private text that no guarantee covers."""
    return tuple(row.stage for row in accesses(config) if row.data == "private" and not row.covered)


def accesses(config: LaunchConfig) -> tuple[DataAccess, ...]:
    """Return every use of data by a launch with its protection, for the disclosure's table."""
    return (
        DataAccess(stage="pretrain, adapt", data="public", covered=False),
        *(_row(use, config) for use in USES if use.asked(config)),
        DataAccess(
            stage="audit: " + ("twin and control" if config.audit.on_twin else "control"),
            data="public",
            covered=False,
            reason="models that never ship, trained only on public text and made-up devices",
        ),
        DataAccess(
            stage="hyperparameter tuning",
            data="public",
            covered=False,
            reason=_TUNED[config.tuning],
        ),
    )


def _row(use: Use, config: LaunchConfig) -> DataAccess:
    stage = f"{use.stage}: {use.part}" if use.part else use.stage
    if not use.covered:
        return DataAccess(stage=stage, data="private", covered=False, reason=use.says(config))
    return DataAccess(stage=stage, data="private", covered=True, mechanism=use.says(config), unit="device")
