"""Preview of the stages that a launch would reuse from others on this machine; nothing is run or written."""

from dataclasses import dataclass, field, replace

from pipeline.ground.errors import LaunchError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import sharing
from pipeline.run.known import ledger_belief_now
from pipeline.run.reuse.sources import Source, commit_of, content_key, sources
from pipeline.run.run_dir import RESULT, RunDir, StageRecord
from pipeline.run.stage import Stage, StageContext, Stages


@dataclass(frozen=True)
class Foreseen:
    """A stage of which another launch made the same.

    Attributes:
      launch_id: that launch; of a release, the one that paid for it.
      problem: why it would be made anew all the same; empty if it is taken over.
      paid: what was paid for it, in words; empty where it released nothing.
    """

    stage: str
    launch_id: str
    problem: str
    paid: str

    def __str__(self) -> str:
        if self.problem:
            return f"{self.stage}: launch {self.launch_id} made the same, but {self.problem}, so it is made anew"
        spent = f", which spent {self.paid}; nothing is spent on it again" if self.paid else ""
        return f"{self.stage}: taken over from launch {self.launch_id}{spent}"


@dataclass(frozen=True)
class _Seen(RunDir):
    """The launch's folder with the records that its stages would take over."""

    foreseen: dict[str, StageRecord] = field(default_factory=dict, compare=False, repr=False)

    def record(self, stage: str) -> StageRecord | None:
        return self.foreseen.get(stage) or super().record(stage)


def are_others(run_id: str, settings: Settings) -> bool:
    """Return whether another launch on this machine has finished anything that could be reused."""
    return any(path.parents[2].name != run_id for path in settings.runs_dir.glob(f"*/public/ingest_private/{RESULT}"))


def foreseen(
    config: LaunchConfig,
    run_id: str,
    settings: Settings,
    stages: Stages,
) -> list[Foreseen]:
    """Stages that have not finished and of which another launch here made the same, in order.

    Files that text is in are read for their digests. Text that a champion selects is not foreseen, as the registry
    would have to be asked.
    """
    run, taken = _Seen(settings.runs_dir, run_id, ledger_belief_now(settings.ledger_url)), list[Foreseen]()
    for name, stage in ((name, stage) for name, stage in stages.items() if stage.reads is not None):
        ctx = StageContext(config, run, settings, name, None, config.population)
        try:
            if run.record(name) is not None:
                continue
            same = _public(ctx, stage) if sharing.is_public(name, stages) else _private(ctx, stage)
        except (LaunchError, ValueError, LookupError, OSError):
            continue  # The stage itself will say so.
        if same is None:
            continue
        taken.append(same[0])
        if not same[0].problem:
            run.foreseen[name] = same[1]
    return taken


def _public(ctx: StageContext, stage: Stage) -> tuple[Foreseen, StageRecord] | None:
    if ctx.config.public_text.select_by == "champion":
        return None
    restricted = replace(ctx, config=sharing.restricted(ctx.config, stage))
    content = sharing.content_key(restricted, ctx.config, stage)
    record = next((record for record, _ in sharing.identical(ctx, content, None)), None) if content else None
    return None if record is None else (Foreseen(ctx.stage, record.reused_from or record.launch_id, "", ""), record)


def _private(ctx: StageContext, stage: Stage) -> tuple[Foreseen, StageRecord] | None:
    ledger = PrivacyLedger.of(ctx.settings)
    content = content_key(ctx, ctx.config, stage)
    if content is None or ledger.reserved(ctx.run.launch_id, ctx.stage):
        return None
    alike = list(sources(ctx, content, stage, stage.spends))
    source = next((source for source in alike if not source.problem), None) or next(iter(alike), None)
    return None if source is None else (_told(source, ctx, ledger), source.record)


def _told(source: Source, ctx: StageContext, ledger: PrivacyLedger) -> Foreseen:
    record, paid = source.record, ""
    if source.paid is not None and (commit := commit_of(source.paid, ctx.stage, ledger.entries())):
        paid = f"epsilon {commit.epsilon:g} per typed word" if commit.unit == "item" else f"rho {commit.rho:.4g}"
        paid += f" on it on {commit.created_at[:10]}"
    return Foreseen(ctx.stage, record.reused_from or record.launch_id, source.problem, paid)
