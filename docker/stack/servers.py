"""PostgreSQL and Redis from Debian's packages, installed if missing, with data folders apart from the system's."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from places import ROOT, Places, StackError
from processes import Command

_MAKE_NO_CLUSTER = Path("/etc/postgresql-common/createcluster.conf")


def programs() -> Path:
    """Folder of ``initdb`` and ``postgres``, of the newest installed version.

    Raises:
      StackError: PostgreSQL or Redis is missing, and this user cannot install it.
    """
    is_there = {"postgresql": _postgres(), "redis-server": _redis()}
    missing = [package for package, program in is_there.items() if not program]
    if missing:
        _install(missing)
    folder = _postgres()
    if folder is None or _redis() is None:
        raise StackError(f"{' '.join(missing)}: installed, but not found; is another release on the path?")
    return folder


def postgres(place: Places, folder: Path, passwords: Mapping[str, str]) -> Command:
    """Command of the server, after creating its data folder if there is none."""
    data, user = place.data("postgres"), _unprivileged()
    if not (data / "PG_VERSION").is_file():
        _make_cluster(place, folder, passwords["POSTGRES_PASSWORD"], user)
    settings = {
        "port": place.ports["POSTGRES_PORT"],
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": 200,
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    arguments = [str(folder / "postgres"), "-D", str(data), *options]
    return Command(arguments, {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, data, user)


def databases(place: Places, passwords: Mapping[str, str]) -> None:
    """Create a database for each user, by the script that the postgres image runs."""
    note = place.home / "databases-made"
    if note.is_file():
        return
    host, port = place.address("POSTGRES").split(":")
    login = {"POSTGRES_USER": "postgres", "PGHOST": host, "PGPORT": port, "PGPASSWORD": passwords["POSTGRES_PASSWORD"]}
    done = subprocess.run(
        ["sh", str(ROOT / "docker" / "databases.sh")],
        env={"PATH": os.environ["PATH"], **login, **passwords},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(f"docker/databases.sh: {done.stderr.strip()}; remove {place.home} if nothing in it is needed")
    note.touch()


def redis(place: Places, passwords: Mapping[str, str]) -> Command:
    """Command of the server, by the script that its container runs."""
    data = place.data("redis")
    data.mkdir(mode=0o700, exist_ok=True)
    variables = {"REDIS_PASSWORD": passwords["REDIS_PASSWORD"], "REDIS_PORT": str(place.ports["REDIS_PORT"])}
    variables |= {"PATH": os.environ["PATH"], "REDIS_BIND": "127.0.0.1", "REDIS_FOLDER": str(data)}
    return Command(["sh", str(ROOT / "docker" / "redis.sh")], variables, data)


def _make_cluster(place: Places, folder: Path, password: str, user: str | None) -> None:
    data, secret = place.data("postgres"), place.home / "postgres-password"
    shutil.rmtree(data, ignore_errors=True)  # remains of an interrupted start: they have no PG_VERSION
    data.mkdir(mode=0o700)
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="utf-8")
    if user:
        shutil.chown(data, user, user)
        shutil.chown(secret, user, user)
    command = [str(folder / "initdb"), "-D", str(data), "-U", "postgres", "-A", "scram-sha-256", "--encoding=UTF8"]
    try:
        done = subprocess.run(
            [*command, "--locale=C.UTF-8", "--pwfile", str(secret)],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
            **({"user": user, "group": user, "extra_groups": ()} if user else {}),
        )
    finally:
        secret.unlink()
    if done.returncode:
        who = user or "this user"
        raise StackError(f"initdb: {done.stderr.strip()}; {who} must reach {data}: set STACK_HOME elsewhere")


def _unprivileged() -> str | None:
    """User that PostgreSQL runs as, since it refuses root; None: the current user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError as error:
        raise StackError(
            "PostgreSQL refuses to run as root, and there is no user postgres; use another user"
        ) from error


def _postgres() -> Path | None:
    programs = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].split(".")[0])
    )
    on_path = [Path(program).resolve() for program in [shutil.which("initdb")] if program]
    return (programs or on_path or [None])[-1].parent if programs or on_path else None


def _redis() -> str | None:
    return shutil.which("redis-server")


def _install(packages: list[str]) -> None:
    names = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise StackError(f"{names}: not installed, and this user cannot; as root: apt-get install {names}")
    print(f"  installing {names}", flush=True)
    # Neither package may start a system server.
    if "postgresql" in packages and not _MAKE_NO_CLUSTER.exists():
        _MAKE_NO_CLUSTER.parent.mkdir(parents=True, exist_ok=True)
        _MAKE_NO_CLUSTER.write_text("create_main_cluster = false\n", encoding="utf-8")
    variables = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *command], env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"{names}: apt-get {command[0]} failed: {done.stderr.strip()[-500:]}")
