"""Answers as reviewers sign them, each with a key of their own."""

from functools import cache
from typing import TYPE_CHECKING

from federated.config.population import PopulationKey, is_simulation
from pipeline.ground import keys
from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.answers import Review

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

OWNER = "tests"  # who registers populations (``installed``)


@cache
def key_of(account: str) -> "CryptoSigner":
    """The key of an account of the operating system, alike in one run of the tests."""
    from securesystemslib.signer import CryptoSigner

    return CryptoSigner.generate_ed25519()


def enrolled(ledger: PrivacyLedger, population: PopulationKey, account: str) -> "CryptoSigner":
    """The key of an account, registered for a population."""
    signer = key_of(account)
    by = account if is_simulation(population) else OWNER
    ledger.register_reviewer(population, account, signer.public_key.keyval["public"], by)
    return signer


def signed(settings: Settings, population: PopulationKey, launch_id: str, given: Review) -> Review:
    """An answer with the signature of its account, or of the installation if it was given in Airflow."""
    if given.on_behalf:
        return given.signed(launch_id, keys.signer(settings, "answers"))
    account = given.account.partition(":")[2]
    return given.signed(launch_id, enrolled(PrivacyLedger.of(settings), population, account))
