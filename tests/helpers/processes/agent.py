"""A host's agent whose workers train a small run. Arguments: address, folder of runs."""

import sys
import threading
from pathlib import Path

from federated.wire.launcher import Seat, launch_command
from pipeline.hosts.agent import Agent
from pipeline.hosts.job import Job


def small_run(job: Job, seat: Seat, runs: Path, ends_with: int) -> list[str]:
    """In the place of fine-tuning's workers, and with their arguments."""
    arguments = [str(runs), job.token.launch, str(ends_with), job.level, str(job.token.attempt)]
    return launch_command(job.workers, "tests.helpers.launches.hosted_run", arguments, seat)


if __name__ == "__main__":
    Agent(sys.argv[1], Path(sys.argv[2]), small_run).serve(threading.Event())
