"""Passwords and keys, created once, in files that only this user can read, and in no log.

As a script it creates those of ``compose.yaml`` in a FOLDER, in its file ``secrets.env``. It needs no installed
package.
"""

import base64
import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

_HEX = {"AIRFLOW_SECRET_KEY": 32, "MLFLOW_SECRET_KEY": 32, "AIRFLOW_JWT_SECRET": 64}
_HEX |= {f"{name}_PASSWORD": 24 for name in ("AIRFLOW_DB", "MLFLOW_DB", "MLFLOW_LOGIN_DB", "LEDGER_DB", "POSTGRES")}
_HEX |= {"REDIS_PASSWORD": 24, "GRAFANA_PASSWORD": 24, "MLFLOW_PASSWORD": 24}
# Users whose password is also in a file of its own, named as the user, for people and servers.
_USERS = {"MLFLOW_READER_PASSWORD": "mlflow-reader", "READER_PASSWORD": "tacit-reader"}
_USERS |= {"ADMIN_PASSWORD": "admin", "REVIEWER_PASSWORD": "privacy-reviewer"}
# Secrets that ``compose.yaml`` needs.
NAMES = (*_HEX, *_USERS, "AIRFLOW_FERNET_KEY")


def password(path: Path) -> str:
    """Read the password in a file, and create one if there is none."""
    if not path.is_file() or not path.read_text(encoding="utf-8").strip():
        replace(path, secrets.token_hex(24) + "\n")
    path.chmod(0o600)
    return path.read_text(encoding="utf-8").strip()


def replace(path: Path, text: str) -> None:
    """Replace a file by one that no other user could ever read, even if the old one was readable."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")


def people(folder: Path, users: Sequence[str]) -> Path:
    """Create a password for each user, and the file of all of them for Airflow's simple auth manager.

    The manager would create, and log, passwords that are missing in its file.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    path, text = folder / ".airflow.json", json.dumps({user: password(folder / user) for user in users}) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        replace(path, text)
    path.chmod(0o600)
    return path


def stack_secrets(path: Path, folder: Path) -> dict[str, str]:
    """Create the secrets of ``compose.yaml`` once, in a file for ``docker compose --env-file``.

    Args:
      folder: folder with a file for each user's password.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    made = dict(line.split("=", 1) for line in lines)
    wanted = {name: secrets.token_hex(size) for name, size in _HEX.items()}
    wanted |= {name: password(folder / user) for name, user in _USERS.items()}
    wanted["AIRFLOW_FERNET_KEY"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    if wanted.keys() - made.keys():
        made = wanted | made
        replace(path, "".join(f"{name}={value}\n" for name, value in made.items()))
    path.chmod(0o600)
    return made


if __name__ == "__main__":
    home = Path(sys.argv[1])
    stack_secrets(home / "secrets.env", home / "passwords")
