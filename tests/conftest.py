"""Services for tests marked ``services`` or ``browser``, and one thread for each worker.

Collected in Airflow's environment too: no import of this project here.
"""

import fcntl
import functools
import gc
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.helpers.processes.engine import Engine
    from tests.helpers.processes.forked import Forked
    from tests.helpers.processes.objects import Bucket, Scheme

pytest_plugins = ("tests.drawn",)

if "PYTEST_XDIST_WORKER" in os.environ:
    # One BLAS and torch thread for each worker: two would fight for the same core. Before anything imports them.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

# Every launch of a test would take 3 s more to be printed; the test of printing asks for it.
os.environ.setdefault("TACIT_PDF", "no")

# Asserts of tests are rewritten, and our modules compiled, by every process of a test run that finds neither kept.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What tests write is written whole and synced, thousands of times: in memory, where there is enough, that waits for
# no disk. ``pytest --basetemp`` puts it elsewhere.
_MEMORY, _ENOUGH_BYTES = Path("/dev/shm"), 4 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

gc.disable()

_ROOT = Path(__file__).resolve().parents[1]
_MAKE_NO_CLUSTER = Path("/etc/postgresql-common/createcluster.conf")


# What takes longest, in this order: begun last, one worker would wait for it at the end.
_FIRST = (
    "tests/docker/test_images.py",
    "tests/docker/test_stack.py",
    "tests/end_to_end/test_tiny_launch.py",
    "tests/golden/",
    "tests/end_to_end/test_crash_points.py",
)
# Tests of these folders share a launch, or a cluster of PostgreSQL.
_TOGETHER = ("tests/golden/", "tests/pipeline/ledger/")
# Each test there has an installation of its own, and takes minutes.
_APART = "tests/shapes/"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, help="run at most so many cases of each parametrised test")


@pytest.hookimpl(trylast=True)  # after those are left out that are marked slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, path in enumerate(_FIRST) if item.nodeid.startswith(path)), len(_FIRST)))
    if most := config.getoption("cases"):
        seen = Counter[str]()
        for item in items.copy():
            name = item.nodeid.partition("[")[0]
            seen[name] += 1
            if seen[name] > most:
                items.remove(item)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Hand out whole files in their order, as the tests of one share models, bundles and launches."""
    from xdist.scheduler import LoadFileScheduling

    class InOrder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_APART):
                return nodeid
            folders = (folder for folder in _TOGETHER if nodeid.startswith(folder))
            return next(folders, nodeid.split("::", 1)[0])

    config.option.loadscopereorder = False
    return InOrder(config, log)


def pytest_collection_finish() -> None:
    """Begin to collect garbage, but never among what was imported: it lives to the end, and is most of all objects."""
    gc.freeze()
    gc.enable()
    # Pytest listens apart, three times a test, to every logger that does not pass on: torch has forty of them.
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


def _unavailable(reason: str) -> None:
    """Skip on a laptop; in CI a service that is not there is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _postgres_programs() -> Path | None:
    """Folder of ``initdb`` and ``pg_ctl``."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _install(packages: str, *how: str, folder: Path | None = None) -> None:
    """Have Debian's packages, by ``apt-get`` with the arguments ``how``; by default it is installed."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        _unavailable(f"{packages}: not installed and this user cannot install it")
    variables = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with (Path(tempfile.gettempdir()) / "tacit-tests-apt.lock").open("w") as lock:
        # Two processes of one test run may want a package at the same time, and apt-get does not wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["update"], [*(how or ("install", "-y", "--no-install-recommends")), *packages.split()]):
            done = subprocess.run(
                ["apt-get", *command], env=variables, cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                _unavailable(f"{packages}: cannot be installed: {done.stderr.strip()[-300:]}")


def _install_postgres() -> None:
    # Debian's package would make and start a cluster of its own on port 5432.
    if os.geteuid() == 0 and not _MAKE_NO_CLUSTER.exists():
        _MAKE_NO_CLUSTER.parent.mkdir(parents=True, exist_ok=True)
        _MAKE_NO_CLUSTER.write_text("create_main_cluster = false\n", encoding="utf-8")
    _install("postgresql")


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Program of a package of Debian's, which is unpacked and not installed, as it would start a server."""

    def program(name: str, package: str = "") -> Path:
        if found := shutil.which(name):
            return Path(found)
        folder = tmp_path_factory.mktemp(name)
        _install(package or name, "download", folder=folder)
        (file,) = folder.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
        return folder / "usr" / "bin" / name

    return functools.cache(program)


@pytest.fixture(scope="session")
def stack_packages() -> None:
    """Debian's packages that `make stack` asks for."""
    if _postgres_programs() is None:
        _install_postgres()
    if not shutil.which("redis-server"):
        _install("redis-server")


@pytest.fixture(scope="session")
def container_engine() -> "Iterator[Engine]":
    """A container engine of this run's own, where one can be had."""
    from tests.helpers.processes.engine import PACKAGES, PROGRAMS, NoEngine, engine

    if not all(map(shutil.which, PROGRAMS)):
        _install(PACKAGES)
    with ExitStack() as left:
        try:
            made = left.enter_context(engine())
        except NoEngine as error:
            _unavailable(str(error))
        yield made


@pytest.fixture(scope="session")
def strace() -> None:
    """Debian's tracer of system calls."""
    if not shutil.which("strace"):
        _install("strace")


@pytest.fixture(scope="session")
def promtool(debian: Callable[..., Path]) -> Path:
    """Prometheus' checker of rules."""
    return debian("promtool", "prometheus")


@pytest.fixture(autouse=True)
def own_tracking(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow leaves the address that it was last given in the environment, where the next test would read it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> "Forked":
    """Commands that have nothing to import any more; the workers of a test run share what forks."""
    from tests.helpers.processes.forked import begun

    base, shared = tmp_path_factory.getbasetemp(), "PYTEST_XDIST_WORKER" in os.environ
    return begun(base.parent, os.getppid()) if shared else begun(base, os.getpid())


@pytest.fixture
def forked_python(forked: "Forked", monkeypatch: pytest.MonkeyPatch) -> None:
    """Let modules that this process starts as programs have nothing to import either."""
    monkeypatch.setattr(sys, "executable", str(forked.python))


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[dict[str, str]]":
    """Variables by which ``srun`` finds two nodes of a Slurm of this machine."""
    from tests.helpers.processes import slurm

    if slurm.missing():
        _install(slurm.PACKAGES)
    if os.geteuid() != 0:
        _unavailable("only root starts Slurm's daemons")
    with slurm.slurm(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium that can run headless."""
    if shutil.which("chromium") is None:
        _install("chromium")
    found = shutil.which("chromium")
    if found is None:
        _unavailable("chromium was installed but is not on the path")
    return found


@pytest.fixture(scope="session")
def axe(onnxruntime_web: Path) -> Path:
    """The script of axe-core, which looks for what keeps people from using a page."""
    return onnxruntime_web / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session")
def onnxruntime_web() -> Path:
    """Folder with what keyboard pages run a model with, as ``make web`` installs it, and with what looks at pages."""
    folder = _ROOT / ".venv" / "web"
    command = ["bash", str(_ROOT / "reports" / "web" / "install.sh"), str(folder)]
    with (Path(tempfile.gettempdir()) / "tacit-tests-web.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.which("npm") is None and not (folder / "installed.json").exists():
            _install("npm")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        _unavailable(f"onnxruntime-web cannot be installed: {(done.stdout + done.stderr).strip()[-300:]}")
    return folder


@pytest.fixture(scope="session", params=["s3", "gs"])
def object_store(request: pytest.FixtureRequest) -> "Iterator[tuple[Scheme, str]]":
    """Scheme and address of a server that speaks the protocol of each store, in an environment of its own."""
    from tests.helpers.processes import objects

    with (Path(tempfile.gettempdir()) / "tacit-tests-objects.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if failed := objects.install(_ROOT / ".venv" / "objects"):
            _unavailable(f"servers of objects cannot be installed: {failed}")
    with objects.server(_ROOT / ".venv" / "objects", request.param) as address:
        yield request.param, address


@pytest.fixture
def bucket(object_store: "tuple[Scheme, str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Bucket":
    """An empty bucket, and the environment by which it is found."""
    from tests.helpers.processes.objects import SERVER, Bucket, credentials

    scheme, address = object_store
    for name, value in (credentials(scheme, tmp_path) | {SERVER[scheme]: address}).items():
        monkeypatch.setenv(name, value)
    return Bucket.made(scheme, address)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a PostgreSQL cluster of this test run: own folder, own loopback port, ended afterwards."""
    from tests.helpers.processes.ports import free_port

    root = os.geteuid() == 0
    if _postgres_programs() is None:
        _install_postgres()
    programs = _postgres_programs()
    if programs is None:
        _unavailable("PostgreSQL was installed but initdb is not there")
    # PostgreSQL refuses to run as root; Debian's package makes this user.
    prefix = ["runuser", "-u", "postgres", "--"] if root else []
    folder = Path(tempfile.mkdtemp(prefix="tacit-postgres-"))
    password = secrets.token_urlsafe(16)
    (folder / "password").write_text(password, encoding="utf-8")
    if root:
        for path in (folder, folder / "password"):
            shutil.chown(path, "postgres")
    port = free_port()
    data, log = str(folder / "data"), str(folder / "log")

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [*prefix, str(programs / program), *arguments],
            check=True,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=300,
        )

    try:
        run(
            "initdb",
            "-D",
            data,
            "-U",
            "tacit",
            "-A",
            "scram-sha-256",
            "--pwfile",
            str(folder / "password"),
            "--no-sync",
        )
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-D", data, "-l", log, "-w", "-o", options, "start")
        try:
            yield f"postgresql+psycopg2://tacit:{password}@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", data, "-m", "fast", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
