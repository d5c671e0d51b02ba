"""The containers of docker/ for real: both images, compose, a launch to its publication, crashes, and the network.

    .venv/stages/bin/python -m benchmarks.stack.compose

As root, with Debian's `docker.io`, `iptables`, `debootstrap`, `iproute2` and `chromium`: an engine of its own in a
temporary folder, and base images made of Debian's packages, as there is no registry. Follows docker/README.md. Prints
a Markdown table of each step, its seconds and what was seen; a step that fails ends it. Everything is taken down.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.helpers.processes.engine import (
    SERVICES,
    Composed,
    base_images,
    composed,
    engine,
    images,
    reached,
    tiny,
)
from tests.helpers.processes.reviewer import approve
from tests.helpers.processes.server import until
from tests.helpers.reports.browser import tab

DEMO = "demo-en-US-counts"
CRASHED = "crashed"
REVIEWER = "privacy-reviewer"
LAUNCHES = Path(__file__).resolve().parents[2] / "dags" / "launches"
PATIENCE_SECONDS = 1800


class Table:
    """Rows as they are seen; a step that raises is the last one."""

    def __init__(self) -> None:
        print("| step | seconds | seen |\n|---|---|---|")

    def row(self, step: str, does: Callable[[], str], seen: Callable[[str], str] = str) -> None:
        begun = time.monotonic()
        made = does()
        print(f"| {step} | {time.monotonic() - begun:.0f} | {seen(made)} |", flush=True)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    begun, table = time.monotonic(), Table()
    with tempfile.TemporaryDirectory() as folder, engine() as made:
        launches = Path(folder)
        launches.chmod(0o755)
        for name in ("demo-en-US", DEMO):
            shutil.copyfile(LAUNCHES / f"{name}.yaml", launches / f"{name}.yaml")
        about = json.loads(made.docker("info", "--format", "{{json .}}"))
        print(f"| engine | | {about['ServerVersion']}, {about['Driver']}, cgroup {about['CgroupVersion']} |")
        table.row("base images of Debian's packages", lambda: base_images(made))
        with composed(made, launches) as services:
            table.row("`build`", lambda: services.compose("build"), lambda _: images(made, "tacit-"))
            table.row(
                "`tacit ledger init`", lambda: services.tacit("ledger", "init"), lambda text: line(text, "ledger:")
            )
            table.row("`tacit ledger register`", lambda: registered(services), lambda text: line(text, "population"))
            table.row("`up`", lambda: services.compose("up", "--detach", "--wait"), lambda _: health(services))
            table.row(f"`{DEMO}` from check to publication", lambda: launched(services, DEMO))
            table.row("a launch under crashes and an upgrade", lambda: crashed(services))
            table.row("what a worker reaches", lambda: reached(services))
    print(f"\n{(time.monotonic() - begun) / 60:.0f} minutes")


def line(text: str, begins: str) -> str:
    return next(each for each in text.splitlines() if each.startswith(begins)).partition(";")[0]


def registered(services: Composed) -> str:
    limits = "--max-rho 1.5 --delta 1e-9 --max-discovery-epsilon 24 --window-days 60 --reviewer privacy-reviewer"
    return services.tacit("ledger", "register", "en-US", *limits.split())


def health(services: Composed) -> str:
    assert services.well(*SERVICES)
    assert not [name for name in SERVICES if services.restarted(name)]
    return f"{len(SERVICES)} services healthy, none was restarted"


def launched(services: Composed, name: str) -> str:
    run = services.trigger(name)
    until(lambda: services.ended(name, run), PATIENCE_SECONDS)
    return published(services, name, run)


def published(services: Composed, name: str, run: str) -> str:
    """The launch ended, MLflow has its model, answered no 500, and the ledger has its spends."""
    states = services.states(name, run)
    assert set(states.values()) == {"success"}, states
    versions = services.mlflow("model-versions/search")["model_versions"]
    assert [tag for version in versions for tag in version["tags"] if tag["value"].startswith(f"{name}-")], versions
    assert " 500 " not in services.compose("logs", "--no-log-prefix", "mlflow")
    entries = json.loads(services.tacit("ledger", "show", "--json"))["entries"]
    spent = [entry["stage"] for entry in entries if entry["kind"] == "commit" and entry["launch_id"].startswith(name)]
    return f"{len(states)} tasks succeeded; spent once each: {', '.join(spent)}"


def running(services: Composed, run: str) -> list[str]:
    assert services.ended(CRASHED, run) != "failed"
    return [task for task, state in services.states(CRASHED, run).items() if state == "running"]


def crashed(services: Composed) -> str:
    """A launch whose worker and whose PostgreSQL die while it spends; then its images are replaced by others.

    Its reviewer answers in a browser. Its people are simulated: an answer over a clear address counts for nobody else.
    """
    people = {"source": "synthetic", "name": CRASHED, "devices": 80, "max_words_per_device": 60, "test_fraction": 0.35}
    tiny(services, CRASHED, private_text=people, reviewers=[REVIEWER])
    before, services.environment["GIT_COMMIT"] = services.container("worker-cpu")["Image"], "0" * 40
    services.compose("build")
    run, said = services.trigger(CRASHED), []
    for service, task in (("worker-cpu", "discover"), ("postgres", "fine_tune")):
        until(lambda task=task: task in running(services, run), PATIENCE_SECONDS)
        services.kill(service)
        begun = time.monotonic()
        until(lambda service=service: services.restarted(service) and services.well(service), PATIENCE_SECONDS)
        said.append(f"{service} killed in `{task}`, healthy after {time.monotonic() - begun:.0f} s")
    until(lambda: services.well(*SERVICES), PATIENCE_SECONDS)
    said.append("restarts: " + ", ".join(f"{name} {count}" for name in SERVICES if (count := services.restarted(name))))
    task = until(lambda: next(iter(running(services, run)), ""), PATIENCE_SECONDS)
    begun = time.monotonic()
    services.compose("up", "--detach", "--wait")
    assert services.container("worker-cpu")["Image"] != before
    said.append(f"another image under `{task}`, healthy after {time.monotonic() - begun:.0f} s")
    until(lambda: services.states(CRASHED, run).get("approve") == "awaiting_input", PATIENCE_SECONDS)
    time.sleep(4)  # an answer that comes at once may meet the task before it is parked
    with tab("chromium") as page:
        approve(page, services.server(REVIEWER), CRASHED, run)
    said.append(f"approved by {REVIEWER} in a browser")
    until(lambda: services.ended(CRASHED, run), PATIENCE_SECONDS)
    return f"{'; '.join(said)}; {published(services, CRASHED, run)}"


if __name__ == "__main__":
    main()
