"""Stages that follow private data in small, which say how often they were called."""

import json
from pathlib import Path

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.releases.local_words import local_discovery
from pipeline.run import runner
from pipeline.run.cache import cited_audit
from pipeline.run.known import as_it_lies, run_folder
from pipeline.run.run_dir import RESULT, RunDir, StageRecord
from pipeline.run.stage import SOURCES, Stage, StageContext, StageResult, Stages
from pipeline.verify.check import Check
from pipeline.verify.reused import reused
from pretrain.files import PRIVATE, sha256, text_sha256, write_text
from reports.disclosure.findings import ReleaseAudit, ReleaseVerdict
from tests.helpers.launches.pipeline_launch import Counted, launch_config, stand_in
from tests.helpers.launches.stages import stages_of

FIRST = launch_config()
SECOND = launch_config(name="second", mechanism={"noise_multiplier": 12.0})
THIRD = launch_config(name="third", mechanism={"noise_multiplier": 9.0})
A, B, C = launch_id(FIRST), launch_id(SECOND), launch_id(THIRD)
NAMES = ("ingest_private", "discover", "build_vocabulary")


@stand_in
class DiscoverResult(StageResult):
    """Result of the stand-in discovery."""

    epsilon0: float
    words_sha256: str


class Private:
    """Text of a file into a store, words of it, and a vocabulary of these."""

    def __init__(self, text: Path) -> None:
        self.text, self.made = text, list[str]()
        self.honest, self.audited = True, list[tuple[str, bool]]()

    def ingest_private(self, ctx: StageContext) -> Counted:
        self.made.append(ctx.stage)
        write_text(ctx.private / "store" / "words.txt", self.text.read_text(encoding="utf-8"), PRIVATE)
        return Counted(value=len(self.text.read_text(encoding="utf-8")))

    def discover(self, ctx: StageContext) -> DiscoverResult:
        self.made.append(ctx.stage)
        ctx.run.result("ingest_private")
        store = ctx.run.private("ingest_private") / "store" / "words.txt"
        # Noise of its own: a release anew is another one.
        content = json.dumps([store.read_text(encoding="utf-8"), ctx.noise_key.hex()])
        write_text(ctx.private / "words.json", content, PRIVATE)
        write_text(ctx.private / "layers" / "1.json", "what devices answered", PRIVATE)
        epsilon0 = ctx.config.discovery.epsilon0
        return DiscoverResult(
            epsilon0=epsilon0,
            words_sha256=text_sha256(content),
            spend=local_discovery(epsilon0, 1, epsilon0, 5e-7, "of a test"),
        )

    def build_vocabulary(self, ctx: StageContext) -> Counted:
        self.made.append(ctx.stage)
        ctx.run.result("discover")
        words = (ctx.run.private("discover") / "words.json").read_bytes()
        write_text(ctx.public / "vocabulary.json", str(len(words)))
        return Counted(value=ctx.config.vocabulary.max_new_words)

    def audit(self, ctx: StageContext, made_by: str, held_by: str, afresh: bool) -> ReleaseAudit | None:
        """Whether the words of a launch are those of the text, if it is still there; no other launch is asked."""
        self.audited.append((made_by, afresh))
        path = ctx.run.root / made_by / "private" / "discover" / "words.json"
        if not path.is_file():
            return cited_audit(run_folder(ctx.settings, held_by), ctx.stage, PrivacyLedger.of(ctx.settings))
        verdict = ReleaseVerdict(name="sum", tested="", slack="", passed=self.honest, sentence="")
        return ReleaseAudit(stage=ctx.stage, made_by=made_by, cited=None, verdicts=(verdict,))

    @property
    def stages(self) -> Stages:
        """What the runner takes."""
        return stages_of(
            {name: getattr(self, name) for name in NAMES},
            Stage(
                "ingest_private",
                "",
                reads=lambda config: ("private_text",),
                given=lambda ctx: {"text": sha256(self.text)},
                code=("federated/devices",),
                private=(SOURCES,),
            ),
            Stage(
                "discover",
                "",
                needs=("ingest_private",),
                reads=lambda config: ("discovery.epsilon0", "mechanism.randomness"),
                sees=("discovery",),
                given=lambda ctx: {"text": ctx.run.result("ingest_private")["value"]},
                code=("discovery",),
                private=("ingest_private/store",),
                planned=lambda config, run: local_discovery(
                    config.discovery.epsilon0, 1, config.discovery.epsilon0, 5e-7, "planned"
                ),
                audit=self.audit,
            ),
            Stage(
                "build_vocabulary",
                "",
                needs=("discover",),
                reads=lambda config: ("vocabulary",),
                given=lambda ctx: {"words": ctx.run.result("discover")["words_sha256"]},
                code=("pretrain",),
                private=("discover/words.json",),
            ),
        )


def run(private: Private, settings: Settings, config: LaunchConfig) -> list[StageRecord]:
    """All stages of a launch; their records."""
    return [runner.run_stage(name, config, launch_id(config), settings, private.stages).record for name in NAMES]


def entries(settings: Settings, *kinds: str) -> list[tuple[str, str, str]]:
    """The entries of some kinds."""
    return [
        (entry.launch_id, entry.stage, entry.kind)
        for entry in PrivacyLedger.of(settings).entries()
        if entry.kind in kinds
    ]


def checked(settings: Settings, run_id: str) -> Check:
    """What verification says of the release that a launch took over."""
    there = RunDir(settings.runs_dir, run_id, as_it_lies)
    records = {name: record for name in NAMES if (record := there.record(name))}
    (check,) = reused(there, records, PrivacyLedger.of(settings))
    return check


def changed_words(launch: Path) -> None:
    """Words of somebody else in a launch's private folder."""
    (launch / "private" / "discover" / "words.json").write_text('["planted"]', encoding="utf-8")


def changed_record(launch: Path) -> None:
    """A discovery that says that it cost less."""
    path = launch / "public" / "discover" / RESULT
    content = json.loads(path.read_text(encoding="utf-8"))
    content["result"]["epsilon0"] = 0.5
    path.write_text(json.dumps(content), encoding="utf-8")
