"""Rotation of the installation's keys: the new public key enters the ledger, signed with the old one."""

from dataclasses import dataclass

from federated.config.population import PopulationKey
from pipeline.ground import keys
from pipeline.ground.keys import Role
from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.outside import rotation_text

_OF_NOBODY = PopulationKey("")


@dataclass(frozen=True)
class Rotation:
    """The key of a role that signs from now on.

    Attributes:
      number: of the key, as in its file's name.
      public: 32 bytes as hexadecimal digits; of ``model``, PEM.
      entry: hash of the ledger's entry.
    """

    role: str
    number: int
    public: str
    entry: str


def rotate(here: Settings, role: Role) -> Rotation:
    """Replace the key of a role; repeated after a crash, the same rotation goes on.

    Guarantee: the old private key stays until the new one, which the ledger names, may sign.

    Raises:
      KeyUnusable: the old private key is missing or damaged, as that of a witness that is elsewhere.
      LedgerTampered: the ledger cannot be relied on.
    """
    ledger, folder = PrivacyLedger.of(here), keys.folder_of(here, role)
    old, number = keys.signer(here, role), len(keys.public_keys(here, role)) + 1
    public = keys.begin(folder, role).keyval["public"]
    signature = old.sign(rotation_text(role, number, public)).signature
    content = {"role": role, "number": number, "public": public, "signature": signature}
    entry = ledger.note("key", _OF_NOBODY, "", f"{role} {number}", content)
    keys.activate(folder, role)
    keys.share(here)
    PrivacyLedger.of(here).witnessed()
    return Rotation(role, number, public, entry.hash)
