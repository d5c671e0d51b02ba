"""Two public stages in small, which say how often they were called."""

from collections.abc import Callable
from pathlib import Path

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.run import runner
from pipeline.run.run_dir import RESULT, StageRecord
from pipeline.run.stage import Stage, StageContext, Stages
from pretrain.files import sha256, write_text
from tests.helpers.launches.pipeline_launch import Counted
from tests.helpers.launches.stages import stages_of

NAMES = ("ingest_public", "pretrain")


class Public:
    """Text from a given file, and a model of it."""

    def __init__(self, given: Path) -> None:
        self.given, self.made = given, list[str]()
        self.during: Callable[[StageContext], None] = lambda ctx: None

    def ingest_public(self, ctx: StageContext) -> Counted:
        self.made.append("ingest_public")
        self.during(ctx)
        write_text(ctx.public / "corpus" / "text.txt", f"{ctx.config.locale} {self.given.read_text()}")
        write_text(ctx.public / "vocabulary.json", str(ctx.config.vocabulary.base_size))
        return Counted(value=3)

    def pretrain(self, ctx: StageContext) -> Counted:
        self.made.append("pretrain")
        text = ctx.run.input("ingest_public", "corpus/text.txt").read_text(encoding="utf-8")
        write_text(ctx.public / "model.txt", f"{text} {ctx.config.pretrain.steps} {ctx.config.seed}")
        return Counted(value=ctx.config.pretrain.steps)

    @property
    def stages(self) -> Stages:
        """What the runner takes."""
        return stages_of(
            {"ingest_public": self.ingest_public, "pretrain": self.pretrain},
            Stage(
                "ingest_public",
                "",
                reads=lambda config: ("locale", "vocabulary.base_size"),
                given=lambda ctx: {"text": sha256(self.given)},
                code=("pretrain",),
                libraries=("numpy",),
            ),
            Stage(
                "pretrain",
                "",
                needs=("ingest_public",),
                reads=lambda config: ("seed", "pretrain"),
                code=("pretrain",),
                libraries=("numpy",),
            ),
        )


def run(public: Public, settings: Settings, config: LaunchConfig) -> list[StageRecord]:
    """Both stages of a launch; their records."""
    return [runner.run_stage(name, config, launch_id(config), settings, public.stages).record for name in NAMES]


def files(settings: Settings, run_id: str) -> dict[str, bytes]:
    """What the two stages of a launch made, but for their records."""
    folder = settings.runs_dir / run_id / "public"
    paths = [path for name in NAMES for path in (folder / name).rglob("[!.]*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.name != RESULT}
