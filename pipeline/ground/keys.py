"""Keys of this installation: one folder of PEM files, numbered by rotation (``ledger-1.pem``).

They are Ed25519, but for ``model``: model-signing 1.1.1 reads ECDSA keys alone, so that one is on P-256.

A role signs with its newest private key. Its public keys stay, as each verifies what was signed before its rotation.
Private keys are PKCS #8 and public keys SubjectPublicKeyInfo, as OpenSSL, in-toto and OpenSSF model signing read them.

Guarantee: keys are made where the ledger is created, and by a rotation. A key that is missing later is an error, since
a new one would sign whatever the ledger holds then.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pipeline.ground.errors import KeyUnusable
from pretrain.files import PRIVATE, private_directory, widened, write_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from securesystemslib.signer import CryptoSigner, SSlibKey

    from pipeline.ground.settings import Settings

# ``ledger`` signs entries and checkpoints, ``launch`` a launch's proof, ``model`` its bundle, ``witness`` cosigns
# checkpoints, and ``answers`` signs answers that people gave in Airflow.
Role = Literal["ledger", "launch", "model", "witness", "answers"]
ROLES: tuple[Role, ...] = get_args(Role)


def signer(settings: "Settings", role: Role) -> "CryptoSigner":
    """Signer with a role's newest key.

    Raises:
      KeyUnusable: the private key is missing or damaged.
    """
    return signer_in(folder_of(settings, role), role)


def public_keys(settings: "Settings", role: Role) -> "tuple[SSlibKey, ...]":
    """Public keys of a role, the newest last.

    Raises:
      KeyUnusable: there is none, one of them is missing, or one is damaged.
    """
    return public_keys_in(settings.keys_dir, role)


def signer_in(folder: Path, name: str) -> "CryptoSigner":
    """Signer with the newest private key of a name in a folder; raises as ``signer``."""
    newest = public_keys_in(folder, name)[-1]
    path = folder / f"{name}-{_count(folder, name)}.pem"
    return _signer(
        path,
        newest,
        missing="missing, and nothing can be signed without it; restore it from a backup",
        denied="this account may not read it; run the command as the account that owns it",
        damaged=f"damaged, or not the private key of {_public(path).name}; restore it from a backup",
    )


def public_keys_in(folder: Path, name: str) -> "tuple[SSlibKey, ...]":
    """Public keys of a name in a folder, the newest last; raises as ``public_keys``."""
    count = _count(folder, name)
    if not count:
        raise KeyUnusable(
            f"{folder / f'{name}-1.pub.pem'}: missing. 'tacit ledger init' makes the keys of a new installation; those "
            "of another come from its backup, or TACIT_KEYS names their folder"
        )
    return tuple(_public_key(folder / f"{name}-{number}.pub.pem") for number in range(1, count + 1))


def make(settings: "Settings") -> None:
    """Make the first key of each role that has none, and give the log's and the witness' public keys to each other.

    Raises:
      KeyUnusable: the witness is elsewhere, and its public key is not here.
    """
    for role in ROLES:
        if not _count(folder_of(settings, role), role):
            if role == "witness" and not isinstance(settings.witness, Path):
                raise KeyUnusable(
                    f"{settings.keys_dir / 'witness-1.pub.pem'}: missing; copy it from the folder of the witness at "
                    f"{settings.witness} (TACIT_WITNESS), and this installation's ledger-1.pub.pem there"
                )
            add(folder_of(settings, role), role)
    share(settings)


def share(settings: "Settings") -> None:
    """Copy the log's public keys to a witness' folder, and its own here; a witness elsewhere gets them by hand."""
    if isinstance(settings.witness, Path):
        for name, source, to in (
            ("ledger", settings.keys_dir, settings.witness),
            ("witness", settings.witness, settings.keys_dir),
        ):
            for number in range(_count(to, name) + 1, _count(source, name) + 1):
                public = f"{name}-{number}.pub.pem"
                write_bytes(to / public, (source / public).read_bytes())


def folder_of(settings: "Settings", role: Role) -> Path:
    """Folder of a role's private key: a witness keeps its own."""
    return settings.witness if role == "witness" and isinstance(settings.witness, Path) else settings.keys_dir


def reviewer(path: Path) -> "CryptoSigner":
    """Signer with a reviewer's own Ed25519 key, which lies with the reviewer (TACIT_REVIEW_KEY).

    Raises:
      KeyUnusable: it is missing or damaged, or this account may not read it.
    """
    made = _signer(
        path,
        missing="missing (TACIT_REVIEW_KEY), and a reviewer signs with a key of their own; make it: tacit ledger key",
        denied="this account may not read it; TACIT_REVIEW_KEY names the reviewer's own",
        damaged="damaged, or no private key in PEM; restore it from a backup",
    )
    if made.public_key.keytype != "ed25519":
        raise KeyUnusable(f"{path}: a key of type {made.public_key.keytype}; reviewers sign with Ed25519")
    return made


def make_reviewer(path: Path) -> "CryptoSigner":
    """Make a reviewer's own key, mode 600, if there is none; raises as ``reviewer``."""
    from securesystemslib.signer import CryptoSigner

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, CryptoSigner.generate_ed25519().private_bytes, mode=PRIVATE)
    return reviewer(path)


def _signer(path: Path, public: "SSlibKey | None" = None, *, missing: str, denied: str, damaged: str) -> "CryptoSigner":
    from securesystemslib.signer import CryptoSigner

    require_private(path)
    try:
        # The library keeps a prefix of paths in the environment, so the file is read here.
        return CryptoSigner(_loaded(path.read_bytes()), public)
    except FileNotFoundError as error:
        raise KeyUnusable(f"{path}: {missing}") from error
    except PermissionError as error:
        raise KeyUnusable(f"{path}: {denied}") from error
    except Exception as error:  # Each parser raises errors of its own.
        raise KeyUnusable(f"{path}: {damaged} ({error})") from error


def require_private(path: Path) -> None:
    """Refuse a private key that other accounts may read or write; one that is missing passes.

    Raises:
      KeyUnusable: its mode was widened.
    """
    with suppress(FileNotFoundError, PermissionError):
        if mode := widened(path):
            raise KeyUnusable(
                f"{path}: has mode {mode}, so other accounts may have it; chmod 600 {path}, and replace the key if one "
                "of them could have read it (tacit ledger rotate)"
            )


def add(folder: Path, name: str) -> None:
    """Make the first key of a name in a folder."""
    begin(folder, name)
    activate(folder, name)


def begin(folder: Path, name: str) -> "SSlibKey":
    """Make the next private key of a name, which signs nothing before ``activate``; called again, the same one.

    Guarantee: the key is on disk before its public half is anywhere, so no crash leaves one that nobody has.
    """
    from securesystemslib.signer import CryptoSigner

    private = private_directory(folder) / f"{name}-{_count(folder, name) + 1}.pem"
    if not private.exists():
        made = CryptoSigner.generate_ecdsa() if name == "model" else CryptoSigner.generate_ed25519()
        write_bytes(private, made.private_bytes, mode=PRIVATE)
    require_private(private)
    return CryptoSigner(_loaded(private.read_bytes())).public_key


def activate(folder: Path, name: str) -> None:
    """Let the key that ``begin`` made sign, and remove the private keys before it."""
    private = folder / f"{name}-{_count(folder, name) + 1}.pem"
    write_bytes(_public(private), pem(begin(folder, name)))
    for number in range(1, _count(folder, name)):
        (folder / f"{name}-{number}.pem").unlink(missing_ok=True)


def _count(folder: Path, name: str) -> int:
    return max(_numbers(folder, name), default=0)


def _numbers(folder: Path, name: str) -> Iterator[int]:
    for path in folder.glob(f"{name}-*.pub.pem"):
        if number := re.fullmatch(rf"{re.escape(name)}-([1-9][0-9]*)\.pub\.pem", path.name):
            yield int(number[1])


def _public(private: Path) -> Path:
    return private.with_suffix(".pub.pem")


def _public_key(path: Path) -> "SSlibKey":
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    try:
        return SSlibKey.from_crypto(load_pem_public_key(path.read_bytes()))
    except FileNotFoundError as error:
        raise KeyUnusable(
            f"{path}: missing, and what it signed cannot be verified; restore it from a backup"
        ) from error
    except Exception as error:
        raise KeyUnusable(f"{path}: no public key in PEM; restore it from a backup ({error})") from error


def pem(key: "SSlibKey") -> bytes:
    """Public key as PEM (SubjectPublicKeyInfo)."""
    if key.keytype == "ecdsa":
        return key.keyval["public"].encode()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    raw = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.keyval["public"]))
    return raw.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _loaded(content: bytes) -> "PrivateKeyTypes":
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(content, None)
