"""New words found by an aggregator that is trusted: weighted Gaussian selection."""

from discovery.config import CentralConfig
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend
from pipeline.releases.release import Outlook, Release, Stated
from reports.disclosure.releases import CentralWords

_TRUSTED = (
    "The aggregator that discovers words sees a bounded number of words that each device typed, adds them up, adds "
    "noise, and keeps only words that pass a threshold: the trust that training needs too. It forgets the others."
)


def central_discovery(config: CentralConfig) -> Spend:
    """The ledger entry of a central discovery: approximate zCDP of one device, known exactly beforehand.

    Guarantee: that of ``discovery.central.select.select``; epsilon at ``delta`` by the exact Gaussian curve at what of
    it the threshold's failure leaves (the hockey-stick divergence of the two adds up, Gopi et al. 2020, theorem 5.1).
    """
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    epsilon = epsilon_of_rho(config.rho, config.delta - config.failure)
    return Spend(
        unit="device",
        adjacency="zero-out",
        rho=config.rho,
        epsilon=epsilon,
        delta=config.delta,
        note="words",
        failure=config.failure,
    )


def _config(config: LaunchConfig) -> CentralConfig:
    assert config.central_discovery is not None, "it is not asked for"
    return config.central_discovery


def _spend(config: LaunchConfig, _: Outlook | Stated) -> Spend:
    return central_discovery(_config(config))


def _says(config: LaunchConfig) -> str:
    central = _config(config)
    return (
        f"weighted Gaussian selection of at most {central.words_per_device} words a device, noise multiplier "
        f"{central.noise_multiplier:g}, a threshold that fails with probability {central.failure:g} at most"
    )


CENTRAL_WORDS = Release(
    stage="discover",
    name="central_words",
    block="discovery",
    asked=lambda config: config.central_discovery is not None,
    says=_says,
    planned=_spend,
    paid=_spend,
    neighbour="words left out of discovery",
    output=lambda config, whole: "the discovered words with their noisy weights",
    trusts=lambda config, whole: (_TRUSTED,),
    disclosed=lambda config, results: CentralWords.model_validate(results("discover"), extra="ignore"),
)
