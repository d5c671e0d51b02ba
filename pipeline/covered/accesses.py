"""Every use of data by a launch, and what covers it: the table of the disclosure, and what a gate counts in it."""

from discovery.config import TrieConfig
from evaluation.config import ALPHA, EvaluationConfig
from evaluation.noisy.questions import MOST_WORDS
from federated.config.counts import CountsConfig
from pipeline.config import LaunchConfig
from pipeline.policy.config import ExperimentConfig
from reports.disclosure.document import DataAccess

_WITHOUT_PRIVACY = DataAccess(
    stage="ab_test: an arm trained without privacy",
    data="private",
    covered=False,
    reason="simulation only: the population is a public data set or made up, so nobody's secret is at stake; the model "
    "is deleted once it has been compared",
)

# A device that typed nothing stays in the population, so under zero-out adjacency neighbours have the same devices.
_ENTERED = DataAccess(
    stage="ingest_private",
    data="private",
    covered=True,
    mechanism="how many devices there are, which is the same whatever one of them typed, and a digest under the "
    "population's secret key; nothing else leaves the store",
    unit="device",
)
_AUDITED = DataAccess(
    stage="audit",
    data="private",
    covered=True,
    mechanism="of what is tested on sums and noise verdicts alone: an honest run passes all of them with probability "
    f"{1 - ALPHA:g} at least, whatever its devices typed, and one that fails is held; canaries are looked for in "
    "released models",
    unit="device",
)


def uncovered(config: LaunchConfig) -> tuple[str, ...]:
    """The uses of private text that no guarantee covers."""
    return tuple(row.stage for row in accesses(config) if row.data == "private" and not row.covered)


def accesses(config: LaunchConfig) -> tuple[DataAccess, ...]:
    """The table, in the order of the stages."""
    discovery = _discovered(config)
    trained = (
        *((_counted(config.counts),) if config.counts else ()),
        *((_trained(config),) if config.trains else ()),
    )
    uses = (
        _without_noise(discovery, trained, config)
        if config.evaluation is None
        else (_ENTERED, discovery, *trained, _AUDITED, _evaluated(config.evaluation))
    )
    return (
        DataAccess(stage="pretrain, adapt", data="public", covered=False),
        *uses,
        *((_tried_out(config.experiment),) if config.experiment else ()),
        DataAccess(
            stage="audit: " + ("twin and control" if config.audit.on_twin else "control"),
            data="public",
            covered=False,
            reason="models that never ship, trained on public text and made-up devices alone",
        ),
        DataAccess(
            stage="hyperparameter tuning",
            data="public",
            covered=False,
            reason="settings come from the launch file; this launch tunes nothing on private data",
        ),
    )


def _without_noise(
    discovery: DataAccess, trained: tuple[DataAccess, ...], config: LaunchConfig
) -> tuple[DataAccess, ...]:
    """The uses of a launch that evaluates held-out devices as they are."""
    held_out = "aggregate metrics of held-out devices, released without noise; their text trains nothing"
    watched = DataAccess(stage="fine_tune: validation curve", data="private", covered=False, reason=held_out)
    return (
        DataAccess(
            stage="ingest_private",
            data="private",
            covered=False,
            reason="the store stays private; counts of devices rounded down to tens, of rows of other locales rounded "
            "down to hundreds, and a digest leave it",
        ),
        discovery,
        DataAccess(
            stage="build_vocabulary: coverage",
            data="private",
            covered=False,
            reason="one share over validation devices, released without noise; their text trains nothing",
        ),
        *trained,
        *((watched,) if config.trains else ()),
        _AUDITED,
        DataAccess(stage="ab_test", data="private", covered=False, reason=held_out),
        *((_WITHOUT_PRIVACY,) if config.ab_test.non_private_upper_bound else ()),
    )


def _tried_out(config: ExperimentConfig) -> DataAccess:
    counts = (
        f"live experiment on {config.share:.2%} of buckets of devices, once a reviewer approves: counts by bucket and "
        "day that keyboards log, released as metrics of both arms without noise; they train nothing"
    )
    return DataAccess(stage="experiment", data="private", covered=False, reason=counts)


def _evaluated(config: EvaluationConfig) -> DataAccess:
    noise = (
        f"Gaussian noise, multiplier {config.noise_multiplier:g}, one release of sums over test devices, of which each "
        f"counts as at most {MOST_WORDS:g} words; words' coverage is among them. Validation devices are not read: "
        "training is watched on public text"
    )
    return DataAccess(stage="ab_test", data="private", covered=True, mechanism=noise, unit="device")


def _discovered(config: LaunchConfig) -> DataAccess:
    central = config.central_discovery
    if isinstance(config.discovery, TrieConfig):
        local = config.discovery
        noise = (
            f"LDP TrieHH, Subset Selection: {local.messages_per_device} messages of epsilon {local.epsilon0:g} a "
            "device, counted together"
        )
        return DataAccess(stage="discover", data="private", covered=True, mechanism=noise, unit="device")
    assert central is not None
    noise = (
        f"weighted Gaussian selection of at most {central.words_per_device} words a device, noise multiplier "
        f"{central.noise_multiplier:g}, a threshold that fails with probability {central.failure:g} at most"
    )
    return DataAccess(stage="discover", data="private", covered=True, mechanism=noise, unit="device")


def _trained(config: LaunchConfig) -> DataAccess:
    noise = f"{config.mechanism.kind} noise, multiplier {config.mechanism.noise_multiplier:g}"
    return DataAccess(stage="fine_tune", data="private", covered=True, mechanism=noise, unit="device")


def _counted(config: CountsConfig) -> DataAccess:
    noise = f"Gaussian noise, multiplier {config.noise_multiplier:g}, one release"
    return DataAccess(stage="count", data="private", covered=True, mechanism=noise, unit="device")
