"""A container engine of a run's own, and ``docker/compose.yaml`` in it.

There is no registry: what the Dockerfiles and compose name is made here from Debian's packages. PostgreSQL and Redis
are Debian's, with an entry point that takes the variables of the official images. PostgreSQL's cluster is made under
the locale C, which names no encoding. Needs root, and Debian's packages ``PACKAGES``.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from tests.helpers.launches.tiny_launch import SIZES, write_launch
from tests.helpers.processes.ports import free_port
from tests.helpers.processes.server import Server, ask_mlflow, until

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("dockerd", "iptables", "debootstrap", "ip")
PACKAGES = "docker.io iptables debootstrap iproute2"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# What a worker and its stages need.
OWN = ("api-server:8080", "mlflow:5000", "postgres:5432", "redis:6379")
# Services of compose.yaml that no profile has to ask for; `setup` ends.
SERVICES = ("postgres", "redis", "mlflow", "api-server", "scheduler", "dag-processor", "triggerer", "worker-cpu")
_TEXT = "../../data/private"  # from launch files, as those of production have it
_LAUNCH = {
    "public_text": {
        "source": "files",
        "train": [f"{_TEXT}/train.json.gz"],
        "validation": [f"{_TEXT}/validation.json.gz"],
        "max_tokens": 20_000,
        "max_validation_tokens": 2_000,
    },
    "private_text": {
        "source": "files",
        "name": "tiny-clients",
        "paths": [f"{_TEXT}/clients.parquet"],
        "max_words_per_device": 60,
        "test_fraction": 0.35,
    },
    # By one key in a hundred the audit in the launch holds it, and here each run draws its own.
    "audit": SIZES["audit"] | {"populations": ["compliant"], "in_launch": None},
}
# Words of `tacit ledger register` for its people.
TINY = ("tiny-clients", "--max-rho", "9", "--max-words-epsilon", "900", "--delta", "1e-4", "--min-approvals", "0")
_PYTHON = "python:3.11-slim-bookworm"
_STAND_INS = f"""FROM {_PYTHON} AS packages
RUN apt-get update && apt-get install -y --no-install-recommends postgresql redis-server
FROM packages AS postgres
RUN install -d -o postgres -m 0700 /var/lib/postgresql/data && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/
COPY postgres.sh /postgres.sh
ENTRYPOINT ["sh", "/postgres.sh"]
FROM packages AS redis
RUN install -d -o redis -m 0700 /data
WORKDIR /data
"""
_POSTGRES = """set -eu
data=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
    chown postgres "$data" /var/run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --clear-groups sh "$0"
fi
if [ ! -s "$data/PG_VERSION" ]; then
    (umask 077 && echo "$POSTGRES_PASSWORD" >/tmp/password)
    LC_ALL=C initdb -D "$data" --username=postgres --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256
    rm /tmp/password
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    pg_ctl -D "$data" -w start -o "-c listen_addresses="
    for script in /docker-entrypoint-initdb.d/*.sh; do POSTGRES_USER=postgres sh "$script"; done
    pg_ctl -D "$data" -w stop
fi
exec postgres -D "$data" -c "listen_addresses=*"
"""


class NoEngine(Exception):
    """Reason why no engine runs here."""


@dataclass(frozen=True)
class Engine:
    """An engine that runs. ``environment`` is that of its commands."""

    folder: Path
    environment: dict[str, str]
    compose: list[str]

    def docker(self, *words: str) -> str:
        return said(["docker", *words], self.environment)


@dataclass(frozen=True)
class Composed:
    """``docker/compose.yaml`` in an engine, with a folder of launch files and secrets of its own."""

    engine: Engine
    home: Path
    environment: dict[str, str]

    @property
    def clients(self) -> Path:
        return Path(self.environment["CLIENTS"])

    def compose(self, *words: str) -> str:
        return said([*self.engine.compose, *words], self.environment)

    def tacit(self, *words: str) -> str:
        """`tacit` as docker/README.md writes it."""
        return self.compose("run", "--rm", "--no-TTY", "--entrypoint", "tacit", "worker-cpu", *words)

    def container(self, service: str) -> dict[str, Any]:
        (made,) = json.loads(self.engine.docker("inspect", self.compose("ps", "--all", "--quiet", service).strip()))
        return made

    def kill(self, service: str) -> None:
        """End every process of a service's container from outside: what `docker kill` ends, stays ended."""
        os.kill(self.container(service)["State"]["Pid"], signal.SIGKILL)

    def restarted(self, service: str) -> int:
        return int(self.container(service)["RestartCount"])

    def well(self, *services: str) -> bool:
        return all(self.container(name)["State"]["Health"]["Status"] == "healthy" for name in services)

    def python(self, service: str, code: str) -> str:
        """Output of a program in the container of a service."""
        return self.compose("exec", "--no-TTY", service, "python", "-c", code)

    def server(self, user: str = "admin") -> Server:
        return Server(f"http://127.0.0.1:{self.environment['AIRFLOW_PORT']}", self.home / "passwords", user=user)

    def trigger(self, dag: str) -> str:
        until(lambda: self.server().api("GET", f"/dags/{dag}"))
        self.server().api("PATCH", f"/dags/{dag}", {"is_paused": False})
        return self.server().api("POST", f"/dags/{dag}/dagRuns", {"conf": {}, "logical_date": None})["dag_run_id"]

    def states(self, dag: str, run: str) -> dict[str, str]:
        return self.server().states(dag, run)

    def mlflow(self, path: str, **query: str) -> dict[str, Any]:
        """Answer of MLflow to a person."""
        return ask_mlflow(self.environment["MLFLOW_PORT"], self.home / "passwords" / "mlflow-reader", path, **query)

    def ended(self, dag: str, run: str) -> str:
        """State of a run that ended; empty before."""
        state = self.server().api("GET", f"/dags/{dag}/dagRuns/{run}")["state"]
        return state if state in ("success", "failed") else ""


def tiny(services: Composed, name: str, **changes: object) -> None:
    """A tiny launch's file with some fields changed, and its text where workers see people's."""
    made = write_launch(services.clients, **_LAUNCH | changes, name=name)
    file = Path(shutil.move(made, Path(services.environment["LAUNCHES"]) / f"{name}.yaml"))
    for path in (file.parent, file, services.clients, *services.clients.iterdir()):
        path.chmod(0o755)


@contextmanager
def far_host() -> Iterator[tuple[str, str]]:
    """Addresses of this machine, and of a host beyond it, a namespace of our own; each listens on port 8000."""
    name, near, far = f"tacit-{os.getpid()}", "198.51.100.1", "198.51.100.2"  # of documentation: no host has them
    ends = [f"tacit{side}{os.getpid()}" for side in "ab"]
    inside = ["ip", "netns", "exec", name]
    serve = [sys.executable, "-m", "http.server", "8000", "--directory", "/var/empty", "--bind"]
    servers = list[subprocess.Popen[bytes]]()
    try:
        for command in (
            ["ip", "netns", "add", name],
            ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", name],
            ["ip", "addr", "add", f"{near}/24", "dev", ends[0]],
            ["ip", "link", "set", ends[0], "up"],
            [*inside, "ip", "addr", "add", f"{far}/24", "dev", ends[1]],
            [*inside, "ip", "link", "set", ends[1], "up"],
        ):
            said(command, dict(os.environ))
        for command in ([*serve, near], [*inside, *serve, far]):
            servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        from_here = [sys.executable, "-c", probe(f"{near}:8000", f"{far}:8000")]
        until(lambda: len(json.loads(said(from_here, dict(os.environ)))) == len(servers), 60)
        yield near, far
    finally:
        for server in servers:
            server.terminate()
            server.wait(60)
        subprocess.run(["ip", "netns", "delete", name], check=False)  # with it both ends of the cable


def probe(*addresses: str) -> str:
    """A program that prints which of some addresses, HOST:PORT each, answer it."""
    return f"""import json, socket
reached = []
for address in {addresses!r}:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        reached.append(address)
    except OSError:
        pass
print(json.dumps(reached))"""


def reached(services: Composed) -> str:
    """A worker reaches its services alone, where a container of a usual network reaches this machine and one beyond."""
    with far_host() as hosts:
        beyond = [f"{host}:8000" for host in hosts]
        seen = json.loads(services.python("worker-cpu", probe(*OWN, *beyond)))
        assert seen == list(OWN), seen
        services.engine.docker("network", "create", "usual")
        run = ["run", "--rm", "--network", "usual", "--entrypoint", "python", "tacit-stages", "-c", probe(*beyond)]
        usual = json.loads(services.engine.docker(*run))
        services.engine.docker("network", "rm", "usual")
        assert usual == beyond, usual
        for name in ("mlflow", "api-server"):  # those of the other network
            assert beyond[1] not in json.loads(services.python(name, probe(*beyond)))
    return f"{', '.join(OWN)}; not this machine nor one beyond it, as a container of a usual network does"


def said(command: list[str], environment: dict[str, str], **how: Any) -> str:
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
    return done.stdout


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine with folders, socket and images of its own; of it empty chains of the firewall are left."""
    if os.geteuid() != 0:
        raise NoEngine("an engine of its own needs root")
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        raise NoEngine(f"{', '.join(missing)}: missing; apt-get install --no-install-recommends {PACKAGES}")
    with (Path(tempfile.gettempdir()) / "tacit-engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # engines share the machine's firewall: one that ends would change another's
        with _engine() as made:
            yield made


@contextmanager
def _engine() -> Iterator[Engine]:
    folder = Path(tempfile.mkdtemp(prefix="tacit-engine-"))
    forwards = Path("/proc/sys/net/ipv4/ip_forward")
    policy, forwarded = said(["iptables", "-S", "FORWARD"], dict(os.environ)), forwards.read_text(encoding="utf-8")
    environment = os.environ | {"DOCKER_HOST": f"unix://{folder}/socket", "DOCKER_CONFIG": str(folder / "client")}
    folders = ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"]
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(
            ["dockerd", *folders, "--bridge", "none", "--host", environment["DOCKER_HOST"]],
            stdout=log,
            stderr=log,
            process_group=0,
        )
    try:
        until(lambda: daemon.poll() is not None or answers(environment), 60)
        if daemon.poll() is not None:
            raise NoEngine(f"dockerd ended: {(folder / 'log').read_text(encoding='utf-8')[-300:]}")
        made = Engine(folder, environment, compose_two(folder, environment))
        yield made
        for number in made.docker("ps", "--all", "--quiet").split():
            made.docker("rm", "--force", "--volumes", number)
    finally:
        daemon.terminate()
        daemon.wait(120)
        said(["iptables", *policy.splitlines()[0].split()], dict(os.environ))
        forwards.write_text(forwarded, encoding="utf-8")
        places = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
        for place in reversed([place for place in places if place.startswith(f"{folder}/")]):
            subprocess.run(["umount", place], check=True)
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def answers(environment: dict[str, str]) -> bool:
    return subprocess.run(["docker", "version"], env=environment, capture_output=True, check=False).returncode == 0


def compose_two(folder: Path, environment: dict[str, str]) -> list[str]:
    """Words of Compose 2. Debian 12 has Compose 1, which knows no name of a project: then Debian 13's, unpacked."""
    usual = ["docker", "compose"]
    if subprocess.run([*usual, "version"], env=environment, capture_output=True, check=False).returncode == 0:
        return usual
    place, names = folder / "debian", ("lists/partial", "cache/archives/partial", "unpacked")
    for name in names:
        (place / name).mkdir(parents=True)
    listed = said(["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages"], environment)
    site = next(line.split()[0] for line in listed.splitlines() if line.endswith(" bookworm"))
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (place / "list").write_text(f"deb [signed-by={keys}] {site} trixie main\n", encoding="utf-8")
    own = {"Dir::Etc::SourceList": place / "list", "Dir::Etc::SourceParts": "/dev/null"}
    own |= {"Dir::State::Lists": place / "lists", "Dir::Cache": place / "cache"}
    get = ["apt-get", *(word for name, value in own.items() for word in ("-o", f"{name}={value}"))]
    for words in (["update"], ["download", "docker-compose"]):
        done = subprocess.run([*get, *words], cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    (file,) = place.glob("*.deb")
    said(["dpkg-deb", "-x", str(file), str(place / "unpacked")], environment)
    return [str(place / "unpacked/usr/libexec/docker/cli-plugins/docker-compose")]


def base_images(made: Engine) -> str:
    """Stand-ins of the images that the Dockerfiles and compose name; returns their names and sizes."""
    root, named = made.folder / "base", yaml.safe_load((ROOT / "docker/compose.yaml").read_text(encoding="utf-8"))
    packages = "python3.11,python3-pip,python3.11-venv,ca-certificates"
    said(["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root)], made.environment)
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3.11")
    # Package indexes as this machine reaches them.
    shutil.copyfile(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    (root / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n", encoding="utf-8")
    for file in (root / "var/cache/apt/archives").glob("*.deb"):
        file.unlink()
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        said(["docker", "import", "--change", "ENV LANG=C.UTF-8", "-", _PYTHON], made.environment, stdin=tar.stdout)
    shutil.rmtree(root)
    context = made.folder / "stand-ins"
    context.mkdir()
    (context / "Dockerfile").write_text(_STAND_INS, encoding="utf-8")
    (context / "postgres.sh").write_text(_POSTGRES, encoding="utf-8")
    for name in ("postgres", "redis"):
        image = named["services"][name]["image"]
        build = ["docker", "build", "--quiet", "--network", "host", "--target", name, "--tag", image, str(context)]
        said(build, made.environment | {"DOCKER_BUILDKIT": "0"})
    return images(made, "")


def images(made: Engine, named: str) -> str:
    shown = made.docker("images", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}").splitlines()
    return ", ".join(sorted(line for line in shown if line.startswith(named)))


@contextmanager
def composed(made: Engine, launches: Path) -> Iterator[Composed]:
    """The services' folder, secrets and ports; nothing is built or started yet. Afterwards nothing of them is left.

    torch for a CPU is only on PyTorch's index. Where pip is told a folder that has it (PIP_FIND_LINKS), as `make setup`
    prefers it, the build gets that file.
    """
    home = made.folder / "home"
    with ExitStack() as left:
        home.mkdir()
        (home / "clients").mkdir()
        # As docker/README.md writes it.
        said([sys.executable, "docker/stack/passwords.py", str(home)], made.environment)
        wheels, build = home / "wheels", {"network": "host"}
        wheel = [sys.executable, "-m", "pip", "download", "--no-index", "--no-deps", "--require-hashes", "--dest"]
        torch = ["-r", str(ROOT / "requirements/hashes/torch.txt")]
        arguments = {}
        if subprocess.run([*wheel, str(wheels / "torch"), *torch], capture_output=True, check=False).returncode == 0:
            handler = partial(SimpleHTTPRequestHandler, directory=str(wheels))
            server = left.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler))
            Thread(target=server.serve_forever, daemon=True).start()
            left.callback(server.shutdown)
            arguments = {"args": {"TORCH_INDEX": f"http://127.0.0.1:{server.server_port}"}}
        built = {name: {"build": build} for name in ("setup", "api-server", "scheduler", "dag-processor", "triggerer")}
        built |= {name: {"build": build | arguments} for name in ("worker-cpu", "mlflow")}
        further = home / "build.yaml"
        further.write_text(yaml.safe_dump({"services": built}), "utf-8")
        environment = made.environment | {"LAUNCHES": str(launches), "CLIENTS": str(home / "clients")}
        environment["GIT_COMMIT"] = said(["git", "rev-parse", "HEAD"], environment).strip()
        environment |= {name: str(free_port()) for name in ("AIRFLOW_PORT", "MLFLOW_PORT")}
        environment |= {
            "COMPOSE_FILE": f"docker/compose.yaml:{further}",
            "COMPOSE_ENV_FILES": str(home / "secrets.env"),
        }
        it = Composed(made, home, environment)
        left.callback(it.compose, "--profile", "demo", "down", "--volumes", "--timeout", "5")
        yield it
