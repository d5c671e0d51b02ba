"""A launch configuration for tests of the pipeline, and small real stages."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import yaml

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.entries import Spend
from pipeline.run import public_fields
from pipeline.run.public_fields import Source
from pipeline.run.runner import run_stage
from pipeline.run.stage import Dataset, Stage, StageContext, StageResult, Stages
from pipeline.stages.graph import STAGES
from pretrain.files import write_text
from pretrain.text import vocabulary
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from tests.helpers.launches.stages import stages_of

RAW = {
    "name": "trial",
    "locale": "en-US",
    "features": ["NWP"],
    "seed": 7,
    "trust": "server",
    "tuning": "public text",
    "public_text": {"source": "sample", "max_tokens": 1000},
    "private_text": {"source": "chitchat", "name": "people", "max_words_per_device": 100},
    "vocabulary": {"base_size": 20, "max_new_words": 2, "filters": ["digits", "one-letter"]},
    "model": {"embedding_dim": 4, "hidden_dim": 40, "tied": True},
    "pretrain": {
        "steps": 1,
        "batch_sentences": 2,
        "sequence_words": 6,
        "learning_rate": 0.1,
        "evaluate_every_steps": 1,
    },
    "discovery": {
        "kind": "ldp-triehh",
        "epsilon0": 1.0,
        "delta": 5e-7,
        "messages_per_device": 1,
        "honest_share": 0.5,
        "layers": 4,
        "max_prefixes": 4,
    },
    "adapt": {"steps": 0, "batch_sentences": 2, "learning_rate": 0.1},
    "mechanism": {
        "kind": "tree",
        "noise_multiplier": 6.0,
        "clip_norm": 1.0,
        "rounds": 8,
        "report_goal": 2,
        "min_sep": 2,
        "max_participations": 2,
        "delta": 1e-6,
        "randomness": "secure",
    },
    "local_training": {"learning_rate": 0.1, "batch_sentences": 2, "sequence_words": 6, "max_words": 10},
    "server": {"learning_rate": 1.0},
    "audit": {"users": [1], "examples": [1], "repeats": 1, "directions": 64},
    "ab_test": {"buckets": 2},
    "policy": {
        "max_rho": 0.5,
        "max_total_epsilon": 10.0,
        "population_delta": 1e-5,
        "population_max_rho": 1.0,
        "population_max_words_epsilon": 100.0,
        "max_discovery_epsilon0": 8.0,
        "min_canary_rank": 100,
        "min_variety": 0.0,
        "min_ngram_gain": -1.0,
        "min_top1_gain": 0.0,
    },
    "report": {"contact": "someone", "intended_use": "tests"},
}


def launch_config(**changes: object) -> LaunchConfig:
    """The configuration with some top-level fields replaced; mappings are merged. Secure sums are trusted if asked."""
    if isinstance(mechanism := changes.get("mechanism"), dict) and mechanism.get("secagg"):
        changes = {"trust": "secure sum"} | changes
    merged = {
        name: {**RAW[name], **value} if isinstance(value, dict) and name in RAW else value
        for name, value in changes.items()
    }
    return LaunchConfig.model_validate(RAW | merged)


def dumped(raw: dict) -> str:
    """What ``yaml.safe_dump`` writes, by its compiled writer: hundreds of files are written."""
    return yaml.dump(raw, Dumper=yaml.CSafeDumper)


def write_launch(folder: Path, raw: dict = RAW) -> Path:
    """A launch file."""
    path = folder / "trial.yaml"
    path.write_text(dumped(raw), encoding="utf-8")
    return path


WORDS = Vocabulary((*SPECIALS, *"abcdefghijklmnop"))

# Made-up results, which are put on the list of what may leave.
STAND_INS: set[str] = set()
_Result = TypeVar("_Result", bound=type[StageResult])


def stand_in(result: _Result) -> _Result:
    """Let a made-up result leave, with whatever files its stage writes."""
    name = result.__name__
    assert name in STAND_INS or name not in public_fields.FIELDS, f"{name} is a real one"
    before = public_fields.FIELDS.get(name, {}).get(Source.INSTALLATION, "")
    stated = " ".join([before, *vars(result).get("__annotations__", {})])
    STAND_INS.add(name)
    named = {name: stated, f"{name}.headline": "*", f"{name}.curve": "*"}
    public_fields.FIELDS |= {key: {Source.INSTALLATION: names} for key, names in named.items()}
    public_fields.FILES[name] = {"*": Source.INSTALLATION}
    return result


@stand_in
class Counted(StageResult):
    value: int
    text: str = "ok"


@stand_in
class Before(Counted):
    devices_by_split: dict[str, int]
    rho: float


def before(ctx: StageContext) -> Before:
    """A stage before the one under test, with the vocabulary, devices and rho that a first spend asks for."""
    if ctx.stage == "ingest_public":
        vocabulary.save(WORDS, ctx.public / "vocabulary.json")
    return Before(value=1, devices_by_split={"train": 60, "validation": 10, "test": 20}, rho=0.1)


def after_stand_ins(others: tuple[str, ...], stage: Callable[[StageContext], StageResult]) -> Stages:
    """A stage itself and what it spends; those before it are stand-ins, so it is made anew each time."""
    real = replace(STAGES[stage.__name__], code=())
    return stages_of({**dict.fromkeys(others, before), real.name: stage}, real)


def run_all(config: LaunchConfig, settings: Settings, stages: Stages) -> dict:
    """The result of the last of some stages, run one after the other."""
    for name in stages:
        done = run_stage(name, config, launch_id(config), settings, stages)
    return done.result


def spend(rho: float) -> Spend:
    """A device-level spend."""
    return Spend(unit="device", adjacency="zero-out", rho=rho, epsilon=2.0, delta=1e-6)


class Calls:
    """Small stages: ``plan`` writes a public file, ``fine_tune`` releases, ``ingest_private`` leaves a private file."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.keys: list[bytes | None] = []

    def ingest_private(self, ctx: StageContext) -> Counted:
        self.made.append("ingest_private")
        write_text(ctx.private / "store.txt", "a word nobody may see")
        return Counted(value=1, datasets=(Dataset(name="people", digest="d" * 64, context="fine-tuning"),))

    def plan(self, ctx: StageContext) -> Counted:
        self.made.append("plan")
        write_text(ctx.public / "numbers" / "plan.txt", f"rounds {ctx.config.mechanism.rounds}\n")
        return Counted(
            value=ctx.config.mechanism.rounds,
            curve=({"step": 1.0, "loss": 2.5}, {"step": 2.0, "loss": 1.5}),
        )

    def fine_tune(self, ctx: StageContext) -> Counted:
        self.made.append("fine_tune")
        self.keys.append(ctx.key)
        text = ctx.run.input("plan", "numbers/plan.txt").read_text(encoding="utf-8")
        ctx.run.result("ingest_private")
        write_text(ctx.private / "state.txt", "noise state")
        write_text(ctx.public / "model.txt", text)
        return Counted(value=2, headline={"rho": 0.25, "decision": "hold"}, spend=spend(0.25))

    @property
    def stages(self) -> Stages:
        """What the runner takes."""
        return stages_of(
            {"ingest_private": self.ingest_private, "plan": self.plan, "fine_tune": self.fine_tune},
            Stage("fine_tune", "", needs=("ingest_private", "plan"), planned=lambda config, run: spend(0.4)),
        )
