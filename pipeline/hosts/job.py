"""What a gang is told: which attempt it is, where its hosts are, and how long it may go unheard."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from federated.wire.launcher import Seat, launch_command

# What an agent may run, by stage: a worker, whose arguments are the folder of all runs, launch id, process to end with,
# logging level and attempt.
PROGRAMS = {
    "discover": "pipeline.stages.hosted.discover_workers",
    "fine_tune": "pipeline.stages.training.fine_tune_workers",
    "ingest_private": "pipeline.stages.hosted.ingest_workers",
}


class Token(BaseModel):
    """Names one attempt at a stage; of two, the one with the greater number is the newer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    launch: str
    stage: str
    attempt: PositiveInt

    def __str__(self) -> str:
        return f"{self.launch}|{self.stage}|{self.attempt}"


class Job(BaseModel):
    """One host's part of a gang.

    Attributes:
      hosts: addresses of the agents, in the order of their numbers.
      number: of this one.
      port: where the workers find each other, on host 0.
      workers: processes of this host.
      lease_seconds: after so long without a question from who submitted it, or without an answer from the next host's
        agent, the gang ends.
      level: of the workers' logs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: Token
    hosts: tuple[str, ...]
    number: int = Field(ge=0)
    port: PositiveInt
    workers: PositiveInt
    lease_seconds: float = Field(gt=0.0, le=3600.0)
    level: str


def command(job: Job, seat: Seat, runs_dir: Path, ends_with: int) -> list[str]:
    """What starts one host's workers.

    Raises:
      ValueError: no worker of the stage can run on several hosts.
    """
    token = job.token
    if token.stage not in PROGRAMS:
        raise ValueError(f"stage: {token.stage!r} does not run on several hosts; only {', '.join(PROGRAMS)}")
    arguments = [str(runs_dir), token.launch, str(ends_with), job.level, str(token.attempt)]
    return launch_command(job.workers, PROGRAMS[token.stage], arguments, seat)
