"""The runner against a plain model of it, over sequences of runs, crashes, lost files, changed inputs and erasures."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import Phase
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pipeline.ground.errors import LedgerConflict, PermanentError, StageBusy, StageInputMissing
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.releases.local_words import local_discovery
from pipeline.run import cache, fence, finished, proof, runner
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, receipt_digest
from pipeline.run.runner import StageOutcome
from pipeline.run.stage import Stage, StageContext, Stages
from pipeline.verify.erase import forget
from pretrain.files import PRIVATE, sha256, text_sha256, write_text
from reports.disclosure.findings import ReleaseAudit, ReleaseVerdict
from tests.helpers.launches.installed import at, installed
from tests.helpers.launches.pipeline_launch import Counted, launch_config
from tests.helpers.launches.private_stages import DiscoverResult
from tests.helpers.launches.stages import stages_of

PLAN, WORDS, VOCABULARY = NAMES = ("plan", "discover", "build_vocabulary")
POPULATION = "chitchat:people"
# Alike in all that their words follow from.
CONFIGS = {"a": launch_config(), "b": launch_config(name="second"), "c": launch_config(name="third")}
PRIVATE_WORD = "a word nobody may see"
DIED, BUSY, REFUSED = 9, 10, 11


class Work:
    """Stages in small: a plan after a person's list, words that are released, and a vocabulary of them."""

    def __init__(self, listed: Path) -> None:
        self.listed = listed

    def plan(self, ctx: StageContext) -> Counted:
        """The number in the list."""
        number = ctx.run.use_file(self.listed).read_text(encoding="utf-8")
        write_text(ctx.public / "plan.txt", number)
        self.written(ctx)
        return Counted(value=int(number))

    def discover(self, ctx: StageContext) -> DiscoverResult:
        """Words that follow from the plan, the asked loss and the key."""
        number = ctx.run.input(PLAN, "plan.txt").read_text(encoding="utf-8")
        epsilon0 = ctx.config.discovery.epsilon0
        words = words_of(int(number), epsilon0, ctx.noise_key.hex())
        write_text(ctx.private / "words.json", words, PRIVATE)
        self.written(ctx)
        spend = local_discovery(epsilon0, 1, epsilon0, 5e-7, "of a test")
        return DiscoverResult(epsilon0=epsilon0, words_sha256=text_sha256(words), spend=spend)

    def build_vocabulary(self, ctx: StageContext) -> Counted:
        """A digest of the words."""
        ctx.run.result(WORDS)
        words = (ctx.run.private(WORDS) / "words.json").read_text(encoding="utf-8")
        write_text(ctx.public / "vocabulary.json", text_sha256(words))
        self.written(ctx)
        return Counted(value=1)

    def written(self, ctx: StageContext) -> None:
        """Called when a stage has written its files."""

    def audit(self, ctx: StageContext, made_by: str, held_by: str, afresh: bool) -> ReleaseAudit | None:
        """The words of the launch that made them, or the audit that the launch which holds them cites."""
        if not (ctx.run.root / made_by / "private" / WORDS / "words.json").is_file():
            held = RunDir(ctx.run.root, held_by)
            return cache.cited_audit(held, WORDS, PrivacyLedger.of(ctx.settings))
        verdict = ReleaseVerdict(name="sum", tested="", slack="", passed=True, sentence="")
        return ReleaseAudit(stage=WORDS, made_by=made_by, cited=None, verdicts=(verdict,))

    @property
    def stages(self) -> Stages:
        """Arguments of the runner."""
        return stages_of(
            {name: getattr(self, name) for name in NAMES},
            Stage(PLAN, "", asks_people=True),
            Stage(
                WORDS,
                "",
                needs=(PLAN,),
                reads=lambda config: ("discovery.epsilon0", "mechanism.randomness"),
                sees=("discovery",),
                given=lambda ctx: {"plan": ctx.run.result(PLAN)["value"]},
                code=("pretrain/files.py",),
                planned=lambda config, run: local_discovery(
                    config.discovery.epsilon0, 1, config.discovery.epsilon0, 5e-7, "planned"
                ),
                audit=self.audit,
            ),
            Stage(VOCABULARY, "", needs=(WORDS,), private=(f"{WORDS}/words.json",)),
        )


def words_of(number: int, epsilon0: float, key: str) -> str:
    return json.dumps([PRIVATE_WORD, number, epsilon0, key])


# Places at which a process dies, each just before a call.
CRASHES: dict[str, tuple[object, str]] = {
    "reservation": (PrivacyLedger, "reserve"),
    "attempt": (fence, "begin"),
    "result": (Work, "written"),
    "outcome": (finished, "write_down"),
    "commit": (PrivacyLedger, "commit"),
    "files": (cache, "remove_folder"),
    "note": (PrivacyLedger, "note"),
    "receipt": (runner, "write_down"),
    "proof": (proof, "add"),
    "record": (runner, "record_text"),
    "end": (runner, "outcome_path"),
}
_FINISH = ("receipt", "proof", "record", "end")
_COMPUTE = ("result", "outcome")


@dataclass
class Made:
    """Files that a stage of a launch left, in the model; None where there is nothing.

    Attributes:
      record: content of the record that counts.
      kept: content of a finished computation without a record, which a repetition finishes.
      file: content of the file that the stage writes.
      sealed: content of the private file that its seal is about.
    """

    record: object = None
    kept: object = None
    file: object = None
    sealed: object = None


@dataclass
class Launch:
    """A launch in the model. Words are known by the number of their plan, and the launch whose key made them.

    Attributes:
      reserved: number of the plan of its own release.
      has_key: False once the private folder is gone, and with it the key of that release.
      reused: the launch whose release the ledger says that it reuses.
      begun: number of the plan of the first attempt at its words, by which others may reuse them.
    """

    plan: Made = field(default_factory=Made)
    words: Made = field(default_factory=Made)
    vocabulary: Made = field(default_factory=Made)
    reserved: int | None = None
    committed: bool = False
    has_key: bool = True
    reused: str | None = None
    begun: object = None
    erased: bool = False

    def made(self, stage: str) -> Made:
        return {PLAN: self.plan, WORDS: self.words, VOCABULARY: self.vocabulary}[stage]


class RunnerMachine(RuleBasedStateMachine):
    """Three launches of one installation, whose stages processes run, and die in.

    Args:
      template: a home with a ledger.
      folder: for the copy of this example.
    """

    def __init__(self, template: Path, folder: Path) -> None:
        super().__init__()
        shutil.copytree(template, folder)
        self.here, self.listed = at(folder), folder / "list.txt"
        self.ledger = PrivacyLedger.of(self.here)
        self.work, self.launches = Work(self.listed), {name: Launch() for name in CONFIGS}
        self.ids = {name: launch_id(config) for name, config in CONFIGS.items()}
        self.keys: dict[str, str] = {}
        self.number = 0
        # Two records of one stage differ in their time.
        hours = (datetime(2027, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in itertools.count())
        self.clock = mock.patch.object(runner, "this_hour", side_effect=lambda: next(hours).isoformat())
        self.clock.start()
        self.change_list(1)

    def teardown(self) -> None:
        try:
            assert self.ledger.verify() == []
        finally:
            self.clock.stop()
            shutil.rmtree(self.here.home)

    def run(self, launch: str, stage: str) -> StageOutcome:
        """Run a stage as a command does."""
        config, name = CONFIGS[launch], self.ids[launch]
        done = runner.find_done(stage, config, name, self.here)
        return done or runner.run_stage(stage, config, name, self.here, self.work.stages)

    def died(self, launch: str, stage: str, place: str) -> None:
        """Run a stage in a process that dies at a place, if it gets there."""
        owner, name = CRASHES[place]

        def dies() -> None:
            with mock.patch.object(owner, name, side_effect=lambda *_, **__: os._exit(DIED)):
                self.run(launch, stage)

        assert ended(dies) in (0, DIED, REFUSED)

    # What the model expects.

    def steps(self, launch: str, stage: str) -> Iterator[str]:
        """Advance the model through a run of a stage, and yield each place just before it is passed.

        Raises:
          PermanentError, OSError: the stage is refused, and changes nothing more.
        """
        mine = self.launches[launch]
        made = mine.made(stage)
        if self.holds(mine, stage):
            made.kept = None
            return
        if mine.erased:
            raise PermanentError
        yield from self.release(launch) if stage == WORDS else self.computed(mine, stage)
        for place in _FINISH:
            yield place
            if place == "record":
                made.record = self.target(mine, stage) if stage != WORDS else made.file
        made.kept = None

    def holds(self, mine: Launch, stage: str) -> bool:
        made = mine.made(stage)
        if made.record is None:
            return False
        if stage == WORDS:
            return mine.plan.record == made.record[0] and (made.file is None or made.sealed == made.record)
        return made.record == self.target(mine, stage) and made.file == made.record

    def target(self, mine: Launch, stage: str) -> object:
        """Content of a stage that runs now."""
        return self.number if stage == PLAN else mine.words.record

    def computed(self, mine: Launch, stage: str) -> Iterator[str]:
        made, now = mine.made(stage), self.target(mine, stage)
        if now is not None and made.kept == now == made.file:
            return
        if now is None:
            raise StageInputMissing
        if stage == VOCABULARY and mine.words.file is None:
            raise FileNotFoundError
        made.file = now
        yield "result"
        yield "outcome"
        made.kept, made.record = now, None

    def release(self, launch: str) -> Iterator[str]:
        mine, words = self.launches[launch], self.launches[launch].words
        number = mine.plan.record
        if mine.reserved is None and number is not None and (source := self.source(launch)):
            words.file, words.kept, words.sealed = (number, source), None, None
            yield "files"
            words.record, mine.begun = None, number
            yield "note"
            if mine.reused not in (None, source):
                raise LedgerConflict
            mine.reused, words.sealed = source, words.file
            return
        if number is None or (mine.reserved is None and mine.plan.file != number):
            raise StageInputMissing
        yield "reservation"
        if mine.reserved is not None and (mine.reserved != number or not mine.has_key):
            raise LedgerConflict
        mine.reserved, mine.has_key = number, True
        yield "attempt"
        if words.kept != (number, launch):
            if mine.begun is None:
                mine.begun = number if words.file is None else "unknown"
            if mine.plan.file != number:
                raise StageInputMissing
            words.file, words.sealed = (number, launch), None
            yield "result"
            words.sealed = words.file
            yield "outcome"
            words.kept, words.record = (number, launch), None
        yield "commit"
        mine.committed = True

    def source(self, launch: str) -> str | None:
        """The launch that paid for words which this one may reuse."""
        wanted = self.launches[launch].plan.record
        for other in sorted(self.launches, key=self.ids.__getitem__):
            theirs, record = self.launches[other], self.launches[other].words.record
            usable = record and (record[0], theirs.begun, theirs.words.sealed) == (wanted, wanted, record)
            if other != launch and usable and not theirs.erased:
                return record[1]
        return None

    # Rules.

    @initialize(numbers=st.tuples(*[st.integers(0, 2)] * len(CONFIGS)))
    def begun(self, numbers: tuple[int, ...]) -> None:
        """Begin with finished launches of two lists: most sequences would take long to reach them."""
        for launch, number in zip(CONFIGS, numbers, strict=True):
            if number:
                self.change_list(number)
                self.run_launch(launch)

    @rule(number=st.integers(1, 2))
    def change_list(self, number: int) -> None:
        self.number = number
        self.listed.write_text(str(number), encoding="utf-8")

    @rule(launch=st.sampled_from("abc"), stage=st.sampled_from(NAMES))
    def run_stage(self, launch: str, stage: str) -> None:
        held = self.holds(self.launches[launch], stage)
        try:
            for _ in self.steps(launch, stage):
                pass
        except (PermanentError, OSError) as error:
            with pytest.raises(type(error)):
                self.run(launch, stage)
        else:
            assert self.run(launch, stage).skipped is held
            self.read_keys()
            if stage == WORDS and self.launches[launch].words.file:
                words = self.here.runs_dir / self.ids[launch] / "private" / WORDS / "words.json"
                assert words.read_text(encoding="utf-8") == self.text_of(launch, self.launches[launch].words.record)

    @rule(launch=st.sampled_from("ab"))
    def run_launch(self, launch: str) -> None:
        for stage in NAMES:
            self.run_stage(launch, stage)

    @rule(launch=st.sampled_from("abc"), stage=st.sampled_from([PLAN, WORDS]), place=st.sampled_from(sorted(CRASHES)))
    def an_update_dies_and_is_taken_back(self, launch: str, stage: str, place: str) -> None:
        before = self.number
        self.change_list(3 - before)
        if stage == WORDS:
            self.run_stage(launch, PLAN)
        self.crash(launch, stage, place)
        self.change_list(before)
        self.run_launch(launch)

    @rule(launch=st.sampled_from("abc"), stage=st.sampled_from(NAMES), place=st.sampled_from(sorted(CRASHES)))
    def crash(self, launch: str, stage: str, place: str) -> None:
        try:
            for step in self.steps(launch, stage):
                if step == place:
                    break
        except (PermanentError, OSError):
            pass
        self.died(launch, stage, place)

    @rule(launch=st.sampled_from("ab"), stage=st.sampled_from(NAMES))
    def two_processes_run(self, launch: str, stage: str) -> None:
        """At once: one runs the stage, and the other waits its turn or finds it done."""
        children = [begin(lambda: self.run(launch, stage)) for _ in range(2)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert set(codes) <= {0, BUSY, REFUSED}
        assert set(codes) != {BUSY}
        refused = False
        try:
            for _ in self.steps(launch, stage):
                pass
        except (PermanentError, OSError):
            refused = True
        assert (REFUSED in codes) is refused

    @rule(launch=st.sampled_from("abc"), what=st.sampled_from([*NAMES, "plan.txt", "vocabulary.json", "private"]))
    def lose(self, launch: str, what: str) -> None:
        """A record goes, a file changes, or the private folder of the words goes."""
        mine, run = self.launches[launch], self.here.runs_dir / self.ids[launch]
        if what in NAMES:
            (run / "public" / what / RESULT).unlink(missing_ok=True)
            mine.made(what).record = None
        elif what == "private":
            shutil.rmtree(run / what / WORDS, ignore_errors=True)
            mine.words.file = mine.words.sealed = mine.words.kept = None
            mine.has_key = False
        else:
            stage = PLAN if what == "plan.txt" else VOCABULARY
            if (run / "public" / stage / what).exists():
                (run / "public" / stage / what).write_text("changed", encoding="utf-8")
                mine.made(stage).file = "changed"

    @rule(launch=st.sampled_from("abc"))
    def erase(self, launch: str) -> None:
        mine, run = self.launches[launch], RunDir(self.here.runs_dir, self.ids[launch])
        if not run.path.exists():
            return
        forget(run, self.here, "the test")
        mine.erased, mine.has_key, mine.words.file, mine.words.sealed = True, False, None, None
        for stage in NAMES:
            mine.made(stage).kept = None

    # What must hold after each.

    @invariant()
    def each_release_is_spent_once(self) -> None:
        entries = self.ledger.entries(POPULATION)
        for launch, mine in self.launches.items():
            theirs = [entry for entry in entries if (entry.launch_id, entry.stage) == (self.ids[launch], WORDS)]
            expected = ["reserve"] * (mine.reserved is not None) + ["commit"] * mine.committed
            assert [entry.kind for entry in theirs if entry.kind != "reuse"] == expected, launch
            reused = [json.loads(entry.binding)["launch"] for entry in theirs if entry.kind == "reuse"]
            assert reused == ([self.ids[mine.reused]] if mine.reused else []), launch

    @invariant()
    def records_are_those_of_the_model(self) -> None:
        self.read_keys()
        bound = self.ledger.all_bound_results()

        def believes(record: StageRecord) -> bool:
            return bound.get((record.launch_id, record.stage)) == receipt_digest(record)

        for launch, mine in self.launches.items():
            run = RunDir(self.here.runs_dir, self.ids[launch], believes)
            for stage in NAMES:
                made, record = mine.made(stage), run.record(stage)
                assert (record is not None) == (made.record is not None), (launch, stage)
                if record and stage == PLAN:
                    assert record.outputs == {"plan.txt": text_sha256(str(made.record))}
                elif record and stage == WORDS:
                    assert record.result["words_sha256"] == text_sha256(self.text_of(launch, made.record))
                elif record:
                    expected = text_sha256(self.text_of(launch, made.record))
                    assert record.outputs == {"vocabulary.json": text_sha256(expected)}
                if record and made.file == made.record:
                    folder = run.path / "public" / stage
                    assert all(sha256(folder / name) == digest for name, digest in record.outputs.items())

    def read_keys(self) -> None:
        """A release has one key."""
        for launch, mine in self.launches.items():
            key = self.here.runs_dir / self.ids[launch] / "private" / WORDS / "key"
            if mine.has_key and mine.reserved is not None and key.exists():
                assert self.keys.setdefault(launch, key.read_bytes().hex()) == key.read_bytes().hex()

    def text_of(self, launch: str, words: tuple[int, str]) -> str:
        number, owner = words
        return words_of(number, CONFIGS[launch].discovery.epsilon0, self.keys[owner])

    @invariant()
    def nothing_private_is_outside_its_folder(self) -> None:
        hidden = [PRIVATE_WORD.encode(), *(key.encode() for key in self.keys.values())]
        hidden += [bytes.fromhex(key) for key in self.keys.values()]
        for path in self.here.runs_dir.rglob("*"):
            parts = path.relative_to(self.here.runs_dir).parts
            if path.is_file() and "private" not in parts[1:2]:
                content = path.read_bytes()
                assert not any(each in content for each in hidden), path


def begin(act: Callable[[], object]) -> int:
    """Act in a process of its own, which ends with a code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except StageBusy:
            code = BUSY
        except (PermanentError, OSError):
            code = REFUSED
        finally:
            os._exit(code)
    return child


def ended(act: Callable[[], object]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(begin(act), 0)[1])


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template") / "home"
    installed(home)
    return home


@pytest.mark.slow
def test_the_runner_does_what_a_plain_model_of_it_does(template: Path, tmp_path: Path):
    numbers = itertools.count()
    run_state_machine_as_test(
        lambda: RunnerMachine(template, tmp_path / str(next(numbers))),
        # Shrinking a failure takes minutes; the steps as they were found are printed.
        settings=examples(max_examples=20, stateful_step_count=12, deadline=None, phases=[Phase.generate]),
    )
