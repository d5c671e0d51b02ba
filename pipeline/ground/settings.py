"""Settings of this installation: addresses and folders. The only reader of the environment.

TACIT_HOME             project root                      default: the checkout that contains this code
TACIT_RUNS_DIR         runs, ledger and tracking store   default: $TACIT_HOME/runs
TACIT_LEDGER_URL       SQLAlchemy URL of the ledger      default: SQLite in the runs directory
TACIT_KEYS             private and public keys           default: keys in the runs directory
TACIT_REVIEW_KEY       private key of whoever reviews    default: .config/tacit/review.pem in their home
TACIT_TRANSPARENCY_LOG tiles and checkpoint of the ledger's log  default: log in the runs directory
TACIT_WITNESS          address of the log's witness, or its folder  default: witness in the runs directory
AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS, _AUTH_MANAGER  who can approve   default: as in dags/airflow.env
TACIT_AIRFLOW_URL, _USER, _PASSWORD  Airflow's API, and an account that may read approvals there  default: none
MLFLOW_TRACKING_URI    tracking and registry             default: SQLite in the runs directory
TACIT_ARTIFACT_ROOT    where MLflow keeps artifacts      default: the runs directory, or the server's own store
TACIT_WEB              folder of `make web`              default: $TACIT_HOME/.venv/web
TACIT_GANG             command that starts workers on    default: none, this machine alone
                       several hosts (run/gang.py)
TACIT_DEVICE_LOGS      counts that keyboards log,      default: device_logs in the runs directory
                       a folder for each launch id
POOLS                  slots of Airflow's pools       default: dags/pools.json in the project root
TACIT_RETENTION_DAYS   days to keep keys and client      default: until `tacit erase`
                       text of finished launches
TACIT_GIT_COMMIT       commit of an image, without git   default: from git
TACIT_PDF              also make reports as PDF          default: yes; no saves 3 to 5 s of CPU a launch
TACIT_LOG              text, or json (one object a line)  default: text
OTEL_*                 spans and metrics, by OpenTelemetry's own variables  default: none

None of them depends on the working directory: the same command elsewhere must find the same ledger.
"""

import hashlib
import logging
import os
import pwd
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from pretrain.kernel.processor import processor_name
from pretrain.reading.paths import require_folder, shown

# Libraries for linear algebra, and variables that override the processor type that they detect.
_NUMERIC = ("torch", "numpy", "llvmlite")
OVERRIDES = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NUMBA_CPU_NAME",
    "NPY_DISABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
    "GLIBC_TUNABLES",
)
_ADDRESS = r"https?://[^\s/?#@]+(/[^\s?#@]*)?"
_DATABASES = ("sqlite", "postgresql", "postgresql+psycopg2")


@dataclass(frozen=True)
class AirflowReader:
    """Airflow's API, and an account with read access only."""

    url: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Settings:
    """Addresses and provenance; every path is absolute.

    Attributes:
      witness: address of the log's witness, or the folder from which a process of its own answers.
      review_key: file of the private key with which whoever runs a command reviews.
      airflow_users: accounts that can approve in Airflow; None where only its own auth manager knows them.
      users_are_uuids: Airflow's users are those of Keycloak, which it names by their IDs.
      prints: reports are also made as PDF.
    """

    home: Path
    runs_dir: Path
    ledger_url: str
    keys_dir: Path
    review_key: Path
    log_dir: Path
    witness: str | Path
    tracking_uri: str
    artifact_root: str | None
    web_dir: Path
    airflow_users: tuple[str, ...] | None
    stated_commit: str | None
    lock_digests: Mapping[str, str]
    device_logs: Path
    pools: Path
    retention_days: float | None = None
    gang: str = ""
    prints: bool = False
    airflow: AirflowReader | None = None
    users_are_uuids: bool = False

    @cached_property
    def git_commit(self) -> str | None:
        """Commit of the project, from git or, in an image without it, from TACIT_GIT_COMMIT."""
        return _git_commit(self.home) or self.stated_commit


@dataclass(frozen=True)
class Telemetry:
    """Destinations of spans and metrics; none by default.

    Attributes:
      traces: ``otlp``, ``console`` or ``none``.
      metrics: likewise.
    """

    traces: str = "none"
    metrics: str = "none"


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from ``environment`` (default: the process environment).

    Raises:
      ValueError: TACIT_HOME is no directory, is relative, or is needed and not set; or an address cannot be used.
    """
    environment = os.environ if environment is None else environment
    home = _home(environment.get("TACIT_HOME"))
    home = require_folder(home, "TACIT_HOME", "set it to the project's root or unset it").resolve()
    runs_dir = (home / Path(environment.get("TACIT_RUNS_DIR") or "runs").expanduser()).resolve()
    tracking_uri = environment.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs_dir / 'mlflow.db'}"
    tracking_uri = database_address("MLFLOW_TRACKING_URI", tracking_uri, server=True)
    ledger_url = environment.get("TACIT_LEDGER_URL") or f"sqlite:///{runs_dir / 'ledger.db'}"
    # Through a server the server's own artifact store is used; a path of this machine would mean nothing to it.
    default_root = None if tracking_uri.startswith("http") else (runs_dir / "mlflow-artifacts").as_uri()
    retention = environment.get("TACIT_RETENTION_DAYS")
    if retention and not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", retention):
        raise ValueError(f"TACIT_RETENTION_DAYS: {retention!r} is no number of days; write one as in 30, or unset it")
    return Settings(
        home=home,
        device_logs=_folder(environment, "TACIT_DEVICE_LOGS", runs_dir / "device_logs"),
        pools=home / (environment.get("POOLS") or "dags/pools.json"),
        runs_dir=runs_dir,
        ledger_url=database_address("TACIT_LEDGER_URL", ledger_url),
        keys_dir=_folder(environment, "TACIT_KEYS", runs_dir / "keys"),
        review_key=_folder(environment, "TACIT_REVIEW_KEY", _own_home() / ".config" / "tacit" / "review.pem"),
        log_dir=_folder(environment, "TACIT_TRANSPARENCY_LOG", runs_dir / "log"),
        witness=_witness(environment, runs_dir / "witness"),
        tracking_uri=tracking_uri,
        artifact_root=environment.get("TACIT_ARTIFACT_ROOT") or default_root,
        web_dir=Path(environment.get("TACIT_WEB") or home / ".venv" / "web").expanduser().resolve(),
        airflow_users=_airflow_users(environment, home),
        users_are_uuids=environment.get("AIRFLOW__CORE__AUTH_MANAGER", "").endswith(".KeycloakAuthManager"),
        retention_days=float(retention) if retention else None,
        prints=_yes_or_no(environment, "TACIT_PDF", default=True),
        airflow=_airflow_reader(environment),
        gang=environment.get("TACIT_GANG", "").strip(),
        stated_commit=environment.get("TACIT_GIT_COMMIT"),
        lock_digests={
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted((home / "requirements").glob("*.lock"))
        },
    )


def apart(folder: Path) -> dict[str, str]:
    """Environment of an installation of its own in ``folder``, which shares code and nothing else with this one."""
    ours = ("TACIT_HOME", "TACIT_WEB", "TACIT_GIT_COMMIT", "TACIT_GANG")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ours or not name.startswith(("TACIT_", "MLFLOW_TRACKING_"))
    }
    return kept | {"TACIT_RUNS_DIR": str(folder / "runs"), "TACIT_REVIEW_KEY": str(folder / "review.pem")}


def _folder(environment: Mapping[str, str], name: str, default: Path) -> Path:
    stated = environment.get(name)
    if stated and not Path(stated).expanduser().is_absolute():
        raise ValueError(f"{name}: {shown(stated)!r} depends on the working directory; write an absolute path")
    return Path(stated).expanduser() if stated else default


def _witness(environment: Mapping[str, str], default: Path) -> str | Path:
    stated = environment.get("TACIT_WITNESS", "")
    if not re.match(r"https?:", stated):
        return _folder(environment, "TACIT_WITNESS", default)
    if not re.fullmatch(_ADDRESS, stated):
        raise ValueError("TACIT_WITNESS: not a server's address, or it holds a login; write one as in http://host:8091")
    return stated.rstrip("/")


def _yes_or_no(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    stated = environment.get(name) or ("yes" if default else "no")
    if stated not in ("yes", "no"):
        raise ValueError(f"{name}: {stated!r} is neither yes nor no; write one of them, or unset it")
    return stated == "yes"


def telemetry(environment: Mapping[str, str] | None = None) -> Telemetry:
    """Telemetry set by the standard's variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, ...).

    The exporters read the rest of them themselves.

    Raises:
      ValueError: an exporter or protocol that tacit does not have.
    """
    environment = os.environ if environment is None else environment
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return Telemetry()
    return Telemetry(*(_exporter(environment, signal) for signal in ("traces", "metrics")))


def _exporter(environment: Mapping[str, str], signal: str) -> str:
    def stated(name: str) -> str:
        value = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}")
        return value or environment.get(f"OTEL_EXPORTER_OTLP_{name}") or ""

    name = f"OTEL_{signal.upper()}_EXPORTER"
    chosen = environment.get(name) or ("otlp" if stated("ENDPOINT") else "none")
    if chosen not in ("otlp", "console", "none"):
        raise ValueError(f"{name}: {shown(chosen)!r} is no exporter that tacit has; use otlp, console or none")
    if chosen == "otlp" and stated("PROTOCOL") not in ("", "http/protobuf"):
        raise ValueError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL: {shown(stated('PROTOCOL'))!r} is not supported; use http/protobuf"
        )
    return chosen


def log_form(environment: Mapping[str, str] | None = None) -> str:
    """Form of log lines: ``text`` for people or ``json``.

    Raises:
      ValueError: TACIT_LOG is neither.
    """
    form = (os.environ if environment is None else environment).get("TACIT_LOG") or "text"
    if form not in ("text", "json"):
        raise ValueError(f"TACIT_LOG: {shown(form)!r} is no form of log lines; use text or json")
    return form


def database_address(name: str, address: str, *, server: bool = False) -> str:
    """Return the address of a database, with the driver that is installed.

    A library would say too late, or by a traceback, that it is none.

    Args:
      name: the variable, for errors, which do not repeat the address, as it may hold a password.
      server: an MLflow server's address will do too.

    Raises:
      ValueError: it is not one.
    """
    fix = "use sqlite:////absolute/path/file.db, postgresql://user:password@host/database" + (
        " or the address of a server, as in http://mlflow:5000" if server else ""
    )
    scheme, separator, rest = address.partition("://")
    if not separator or not scheme or scheme == "file":
        raise ValueError(f"{name}: not an address of a database, but a file or a folder; {fix}")
    try:
        place = urlsplit(address)
        host = place.hostname if place.port != 0 else None
    except ValueError as error:
        raise ValueError(f"{name}: not an address (its host or its port is none); {fix}") from error
    if scheme not in (*_DATABASES, *(("http", "https") if server else ())):
        raise ValueError(f"{name}: begins with {scheme[:40]!r}, which is not supported; {fix}")
    if not address.isprintable() or any(map(str.isspace, address if scheme != "sqlite" else "")):
        raise ValueError(f"{name}: holds a space or an invisible character; {fix}")
    if scheme == "sqlite":
        if not rest.startswith("//") or rest.endswith("/") or {"?", "#"} & set(rest):
            raise ValueError(f"{name}: names no absolute path of a file; {fix}")
    elif scheme not in ("http", "https"):
        if not place.path.strip("/"):
            raise ValueError(f"{name}: names no database; {fix}")
    elif not host:
        raise ValueError(f"{name}: names no host; {fix}")
    elif "@" in place.netloc:
        # Errors of a server that does not answer repeat its whole address.
        raise ValueError(
            f"{name}: holds a login; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, and leave it out of "
            "the address"
        )
    return f"postgresql+psycopg2://{rest}" if scheme == "postgresql" else address


def processor(environment: Mapping[str, str] | None = None) -> str:
    """Describe the processor, the numeric libraries and their overrides, which decide a model's last digits.

    Equal descriptions give equal digits; different ones may give equal digits too.
    """
    environment = os.environ if environment is None else environment
    overrides = [f"{name}={environment[name]}" for name in OVERRIDES if environment.get(name)]
    return ", ".join([processor_name(), *(f"{name} {version(name)}" for name in _NUMERIC), *overrides])


def let_threads_sleep() -> None:
    """Make idle OpenMP threads wait without spinning; must run before torch is imported.

    Spinning threads fell to a tenth of one thread's speed on a machine with any other load.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def quiet_mlflow() -> None:
    """Switch off MLflow's telemetry, progress output and tracebacks; must run before MLflow is imported."""
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "GIT_PYTHON_REFRESH": "quiet",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # then exit 75, so that the scheduler retries later
    }.items():
        os.environ.setdefault(name, value)
    # It prints the traceback of each error of its database, which the command then states in a line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def account() -> str:
    """The operating system's name of the account that runs this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _own_home() -> Path:
    """Home of the account that runs this process; of one that the system does not know, HOME or the root."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path(os.environ.get("HOME") or "/")


def has_account(name: str) -> bool:
    """True if the operating system knows an account of this name."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _airflow_reader(environment: Mapping[str, str]) -> AirflowReader | None:
    names = ("TACIT_AIRFLOW_URL", "TACIT_AIRFLOW_USER", "TACIT_AIRFLOW_PASSWORD")
    stated = [environment.get(name) for name in names]
    if not any(stated):
        return None
    if missing := [name for name, value in zip(names, stated, strict=True) if not value]:
        raise ValueError(f"{missing[0]}: not set, but others of {', '.join(names)} are; set all three, or none")
    url, user, password = (str(value) for value in stated)
    if not re.fullmatch(_ADDRESS, url):
        # It may hold a password, so it is not repeated.
        raise ValueError(
            "TACIT_AIRFLOW_URL: not a server's address, or it holds a login; write one as in http://host:8080"
        )
    return AirflowReader(url.rstrip("/"), user, password)


def _airflow_users(environment: Mapping[str, str], home: Path) -> tuple[str, ...] | None:
    """Users of Airflow's simple auth manager, from the environment or the file that tasks share."""
    manager = environment.get("AIRFLOW__CORE__AUTH_MANAGER", "SimpleAuthManager")
    name = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
    stated, shared = environment.get(name), home / "dags" / "airflow.env"
    if stated is None and shared.is_file():
        lines = shared.read_text(encoding="utf-8").splitlines()
        stated = next((line.partition("=")[2] for line in lines if line.startswith(f"{name}=")), None)
    if stated is None or not manager.endswith("SimpleAuthManager"):
        return None
    users = (user.strip().split(":") for user in stated.split(",") if user.strip())
    return tuple(name for name, *role in users if role[:1] != ["viewer"])


def _home(stated: str | None) -> Path:
    if stated is None or not stated:
        checkout = Path(__file__).resolve().parents[2]
        if not (checkout / "pyproject.toml").is_file():
            raise ValueError("TACIT_HOME: not set, and tacit is installed without a project around it; set it")
        return checkout
    home = Path(stated).expanduser()
    if not home.is_absolute():
        raise ValueError(
            f"TACIT_HOME: {shown(stated)!r} depends on the working directory, and the privacy ledger is in that "
            f"folder; write an absolute path, as in {shown(Path.cwd() / home)}"
        )
    return home


def _git_commit(home: Path) -> str | None:
    """Full hash, with ``-dirty`` when files differ from it; None outside a git checkout."""
    command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
