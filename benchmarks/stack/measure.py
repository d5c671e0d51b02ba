"""Measurements of a running stack by kernel and servers: memory, open files, threads, connections, rows and bytes.

Of a service's processes those count that were there at the sample before as well: a stage, a query or a parsed file
comes and goes.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg2
from psycopg2 import sql

from tests.helpers.processes.proc import naming, tree
from tests.helpers.processes.stack import Stack

SERVICES = ("api-server", "scheduler", "dag-processor", "triggerer", "worker-cpu", "worker-gpu", "mlflow", "redis")
DATABASES = ("ledger", "airflow", "mlflow", "mlflow_login")
KIB, MIB = 1 << 10, 1 << 20
Values = dict[str, float]


@dataclass
class Probe:
    """Asks one stack. ``spare`` is the folder that its services have for temporary files."""

    servers: Stack
    spare: Path
    here: dict[str, set[tuple[int, int]]] = field(default_factory=dict)

    def sample(self) -> Values:
        """Everything at once, by names as in ``memory/mlflow`` and ``rows/ledger.entries``."""
        made = self.processes() | self.databases() | self.queue() | self.folders()
        return made | {"load": os.getloadavg()[0]}

    def processes(self) -> Values:
        """Memory (MiB), open files, threads and CPU seconds of each service; how many processes there are."""
        made: Values = {}
        for name in (*SERVICES, "postgres"):
            now = {one for one in map(birth, tree(self.servers.pid(name))) if one}
            standing = [number for number, _ in now & self.here.get(name, now)]
            self.here[name] = now
            status = [read_status(number) for number in standing]
            # Each of PostgreSQL's serves a connection; those are counted where they are.
            share, said = (len(standing), "postgres, a process") if name == "postgres" else (1, name)
            made[f"memory/{said}"] = sum(one.get("RssAnon", 0) for one in status) / KIB / share
            made[f"threads/{said}"] = sum(one.get("Threads", 0) for one in status) / share
            made[f"files/{said}"] = sum(open_files(number) for number in standing) / share
            made[f"cpu/{name}"] = sum(cpu_seconds(number) for number, _ in now)
        marked = naming(str(self.servers.home))
        made["processes/all of the stack"] = len(marked)
        below = set().union(*(tree(self.servers.pid(name)) for name in SERVICES))
        made["processes/ended, not collected"] = sum(state_of(number) == "Z" for number in below)
        return made

    def databases(self) -> Values:
        """Rows of every table that has any, bytes of each database, and who is connected."""
        made: Values = {}
        for database in DATABASES:
            with self.connected(database) as ask:
                tables = "select table_schema, table_name from information_schema.tables"
                ask.execute(f"{tables} where table_schema not in ('pg_catalog', 'information_schema')")
                for schema, table in ask.fetchall():
                    ask.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(schema, table)))
                    made[f"rows/{database}.{table}"] = ask.fetchone()[0]
                ask.execute("select pg_database_size(current_database())")
                made[f"database/{database}"] = ask.fetchone()[0] / KIB
        with self.connected("postgres") as ask:
            ask.execute("select datname, count(*) from pg_stat_activity where datname is not null group by datname")
            made |= {f"connections/{name}": count for name, count in ask.fetchall() if name in DATABASES}
        return {name: value for name, value in made.items() if value}

    def connected(self, database: str) -> "Cursor":
        return Cursor(
            host="127.0.0.1",
            port=self.servers.environment["POSTGRES_PORT"],
            user="postgres",
            password=self.servers.secret("POSTGRES_PASSWORD"),
            dbname=database,
        )

    def queue(self) -> Values:
        """Redis: keys, and tasks that wait or that a worker took and has not said to be done."""
        told = self.servers.environment | {"REDISCLI_AUTH": self.servers.secret("REDIS_PASSWORD")}

        def ask(*words: str) -> str:
            command = ["redis-cli", "-p", self.servers.environment["REDIS_PORT"], *words]
            return subprocess.run(command, env=told, capture_output=True, text=True, check=True).stdout.strip()

        return {
            "queue/keys": int(ask("DBSIZE")),
            "queue/waiting": int(ask("LLEN", "cpu")) + int(ask("LLEN", "gpu")),
            "queue/taken": int(ask("HLEN", "unacked")),
        }

    def folders(self) -> Values:
        """KiB and number of files under each folder of the stack, and what lies in its folder for temporary files."""
        home = self.servers.home
        places = {
            "runs, public": (home / "runs").glob("*/public"),
            "runs, private": (home / "runs").glob("*/private"),
            "runs, the rest": (path for path in (home / "runs").glob("*/*") if path.name not in {"public", "private"}),
            "MLflow's artifacts": [home / "mlflow" / "artifacts"],
            "Airflow's task logs": (home / "airflow" / "logs").glob("dag_id=*"),
            "Airflow's other logs": (
                path for path in (home / "airflow" / "logs").glob("*") if not path.name.startswith("dag_id=")
            ),
            "services' logs": [home / "logs"],
            "Redis": [home / "redis"],
        }
        made: Values = {}
        for name, folders in places.items():
            sizes = [size for folder in folders for size in sizes_below(folder)]
            made |= {f"disk/{name}": sum(sizes) / KIB, f"count/{name}": len(sizes)}
        left = list(sizes_below(self.spare))
        return made | {
            "left/temporary files and folders": len(list(self.spare.rglob("*"))),
            "temporary": sum(left) / KIB,
        }


class Cursor:
    """A cursor of its own connection, closed with the block."""

    def __init__(self, **login: str) -> None:
        self.link = psycopg2.connect(**login)

    def __enter__(self) -> psycopg2.extensions.cursor:
        return self.link.cursor()

    def __exit__(self, *_: object) -> None:
        self.link.close()


def birth(number: int) -> tuple[int, int] | None:
    """A process's number and when it started, which together are nobody else's; None if it is gone."""
    with suppress(OSError):
        return number, int(stat_of(number)[19])
    return None


def cpu_seconds(number: int) -> float:
    """Seconds of a process and of its children that it has collected."""
    with suppress(OSError):
        return sum(map(int, stat_of(number)[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def state_of(number: int) -> str:
    with suppress(OSError):
        return stat_of(number)[0]
    return ""


def stat_of(number: int) -> list[str]:
    """The kernel's fields of a process from its state on (proc_pid_stat(5), field 3)."""
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()


def read_status(number: int) -> dict[str, int]:
    """RssAnon in KiB and Threads; empty when the process is gone."""
    with suppress(OSError):
        rows = [line.split() for line in Path(f"/proc/{number}/status").read_text().splitlines()]
        return {row[0][:-1]: int(row[1]) for row in rows if row[0] in {"RssAnon:", "Threads:"}}
    return {}


def open_files(number: int) -> int:
    with suppress(OSError):
        return len(list(Path(f"/proc/{number}/fd").iterdir()))
    return 0


def sizes_below(folder: Path) -> Iterator[int]:
    """Bytes of each file; one that goes meanwhile does not count."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield Path(parent, name).lstat().st_size
