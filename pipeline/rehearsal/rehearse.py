"""A dress rehearsal of a launch file: all that happens to such a launch, done to made-up people of this machine.

It runs commands as a user would, each in a process of its own, in an installation of its own: ledger, keys, log,
MLflow and populations lie in the rehearsal's folder and are nobody else's. So nothing that it publishes can reach a
keyboard, and it speaks of nothing but what it ran.
"""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pipeline.ground import keys, settings
from pipeline.ground.errors import DONE, PERMANENT, LaunchHeld, PermanentError
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.publication.gates.words import words_of
from pipeline.rehearsal import made_up
from pipeline.rehearsal.stand_ins import NOT_EXERCISED, Rehearsed, StandIn, rehearsed
from pipeline.run.known import run_folder
from pipeline.run.stage import of_launch
from pipeline.stages.graph import STAGES
from pretrain.files import PRIVATE, private_directory, sha256, write_bytes, write_text
from reports.disclosure.document import GateResult

_STEPS, _BIN = "steps.jsonl", Path(sys.executable).parent


@dataclass(frozen=True)
class Step:
    """A command of the rehearsal that ended as it must.

    Attributes:
      command: empty where this process did it.
      memory_mib: largest resident memory of its process, at least what this one has as it begins it; None where this
        one did it.
      answer: of the command, kept for a rehearsal that goes on.
    """

    name: str
    command: str
    seconds: float
    memory_mib: float | None
    seen: str = ""
    answer: Any = field(default=None, metadata={"json": False})


@dataclass(frozen=True)
class Prepared:
    """A rehearsal whose launch is still to be run, with the variables that place it."""

    launch_file: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Report:
    """All that was rehearsed, and stand-ins.

    Attributes:
      people, own_people: made-up devices, and those that the launch file counts on.
      scale: of the network, its vocabulary and its public training.
      noise: of each sum, as a share of the file's own.
      loss: of a made-up device, to the first launch.
      not_exercised: titles of gates that let everything through.
    """

    launch_file: str
    file_sha256: str
    commit: str | None
    processor: str
    memory_gib: float
    people: int
    own_people: int
    scale: float
    noise: float
    launches: tuple[str, ...]
    loss: str
    stand_ins: tuple[StandIn, ...]
    steps: tuple[Step, ...]
    gates: tuple[GateResult, ...]
    not_exercised: tuple[str, ...]


class Rehearsal:
    """The folder of one rehearsal; a step that stands in its list of steps is not done again."""

    def __init__(self, made: Rehearsed, folder: Path, program: Sequence[str], tell: Callable[[Step], None]) -> None:
        name = f"{made.fields['name']}.yaml"
        self.made, self.folder, self.program, self.tell = made, folder, program, tell
        self.environment = settings.apart(folder)
        self.file, self.second = folder / name, folder / "second" / name
        self.steps: dict[str, Step] = {}
        if (kept := folder / _STEPS).exists():
            read = [Step(**json.loads(line)) for line in kept.read_text(encoding="utf-8").splitlines()]
            self.steps = {each.name: each for each in read}

    def step(
        self,
        name: str,
        *words: str,
        program: Sequence[str] = (),
        codes: Sequence[int] = (DONE,),
        cwd: Path | None = None,
    ) -> Any:
        """Run a command unless it was run, and return its answer.

        Args:
          program: another than ``tacit``.
          codes: exit codes that are as expected.

        Raises:
          PermanentError: it ended with another code.
        """
        if name in self.steps:
            return self.steps[name].answer
        began, shown = time.monotonic(), " ".join([Path(program[0]).name if program else "tacit", *words])
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            command = [*(program or self.program), *words]
            process = subprocess.Popen(
                command, env=self.environment, cwd=cwd, stdout=subprocess.PIPE, stderr=log, text=True
            )
            assert process.stdout
            with process.stdout as output:
                answered = output.read()
            # Of this process and those that it waited for.
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in codes:
            raise PermanentError(
                f"{name}: '{shown}' ended with {process.returncode}: {answered[-2000:].strip()}; see {log.name}, then "
                "rehearse again, which begins at this step"
            )
        answer = json.loads(answered) if words[-1] == "--json" else answered
        self.done(Step(name, shown, time.monotonic() - began, usage.ru_maxrss / 1024, answer=answer))
        return answer

    def timed(self, name: str, make: Callable[[], object], seen: str) -> None:
        """Do a step in this process, unless it was done."""
        if name not in self.steps:
            began = time.monotonic()
            make()
            self.done(Step(name, "", time.monotonic() - began, None, seen))

    def done(self, step: Step) -> None:
        """Note a step, and say so."""
        self.steps[step.name] = step
        with (self.folder / _STEPS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(step)) + "\n")
        self.tell(step)

    def public(self, run_id: str) -> Path:
        """The public folder of a launch."""
        return self.folder / "runs" / run_id / "public"

    def write(self) -> None:
        """Write the launch files of both launches, and what they name; the second learns faster, so that it is better.

        Raises:
          ValueError: the folder holds the rehearsal of another file, or at another size.
        """
        fields, second = self.made.fields, deepcopy(self.made.fields)
        second["server"]["learning_rate"] = self.made.own.server.learning_rate
        content = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
        if self.file.exists() and self.file.read_text(encoding="utf-8") != content:
            raise ValueError(f"--folder: {self.folder} holds a rehearsal of another file or size; name an empty folder")
        private_directory(self.folder)
        write_text(self.file, content)
        self.second.parent.mkdir(exist_ok=True)
        write_text(self.second, yaml.safe_dump(second, sort_keys=False, allow_unicode=True))
        listed = fields["discovery"].get("blocklist", "")
        if listed.startswith(str(self.folder)):
            write_text(Path(listed), "nobodysword\n")

    def prepare(self, config: LaunchConfig) -> None:
        """Make text and an installation, and register the made-up people."""
        seed, words = config.seed, config.public_text.max_tokens + config.public_text.max_validation_tokens
        make = partial(made_up.people, self.folder / "people", config.locale, self.made.people, seed)
        self.timed("made-up people", make, f"{self.made.people:,} devices")
        if str(self.folder) in str(self.made.fields["public_text"].get("train", "")):
            make = partial(
                made_up.public, self.folder / "public", config.locale, words, config.vocabulary.base_size, seed
            )
            self.timed("made-up public text", make, f"at most {words:,} words")
        self.step("ledger", "ledger", "init", "--json")
        policy = config.policy
        budget = policy.budget.rho if policy.budget else policy.population_max_rho
        terms = {
            "max-rho": budget,
            "delta": policy.population_delta,
            "max-words-epsilon": policy.population_max_words_epsilon,
            "max-discovery-epsilon": policy.population_max_discovery_epsilon,
            "window-days": policy.budget.days if policy.budget else None,
        }
        options = [
            word for name, value in terms.items() if value is not None for word in (f"--{name}", f"{value:.17g}")
        ]
        reviewers = [word for name in config.reviewers for word in ("--reviewer", name)]
        self.step("register", "ledger", "register", config.population, *options, *reviewers, "--json")
        if config.reviewers:
            self.step("reviewer", "ledger", "reviewer", config.population, settings.account(), "--json")
        self.step("check", "check", str(self.file), "--json")

    def launch(self, config: LaunchConfig, file: Path, run_id: str, which: str) -> None:
        """Run every stage of a launch, answer for its words and its report, and publish it.

        Raises:
          LaunchHeld: gates hold it.
        """
        for stage in of_launch(config, STAGES):
            words = ("stage", stage, str(file), "--json")
            if stage == "publish":
                self.approve(config, run_id, which)
            if stage == "build_vocabulary" and config.vocabulary.review:
                # It waits for a person if there is a word.
                self.step(f"{which}words, before a review", *words, codes=(DONE, PERMANENT))
                self.timed(f"{which}review of words", partial(self.keep_words, run_id), "every word is kept")
            self.step(f"{which}{stage}", *words)
            if stage == "report" and (failed := [gate.title for gate in self.gates(run_id) if not gate.passed]):
                raise LaunchHeld(f"{which}gates hold the launch: {', '.join(failed)}; its report says why")

    def keep_words(self, run_id: str) -> None:
        """Mark every discovered word as a person would who objects to none; none was found where there is no sheet."""
        sheet = self.folder / "runs" / run_id / "private" / "build_vocabulary" / "review" / "review.csv"
        if not sheet.exists():
            return
        with sheet.open(encoding="utf-8", newline="") as source:
            rows = list(csv.DictReader(source))
        writer = csv.DictWriter(filled := io.StringIO(newline=""), rows[0])
        writer.writeheader()
        writer.writerows(row | {"decision": "keep"} for row in rows)
        write_text(sheet, filled.getvalue(), PRIVATE)

    def decision(self, run_id: str) -> dict[str, Any]:
        """Result of a launch's decision."""
        return run_folder(settings.load(self.environment), run_id).result("decide")

    def gates(self, run_id: str) -> list[GateResult]:
        """Gates of a launch that has decided."""
        return [GateResult.model_validate(gate) for gate in self.decision(run_id)["gates"]]

    def approve(self, config: LaunchConfig, run_id: str, which: str) -> None:
        """Approve a launch that has reviewers, and accept all concerns of its report."""
        if config.reviewers:
            concerns = self.step(f"{which}review", "review", run_id, "--json")["concerns"]
            accepted = [word for number in range(len(concerns)) for word in ("--accept", str(number + 1))]
            answer = ("--answer", "approve", "--reason", "rehearsed", *accepted)
            self.step(f"{which}approval", "review", run_id, *answer, "--json")

    def prove(self, run_id: str) -> None:
        """Check a copy of the public folder by others' tools, and by tacit without anything private."""
        got, here = self.folder / "got", settings.load(self.environment)
        trusted = {role: self.folder / f"{role}.pub" for role in ("launch", "model")}
        shutil.rmtree(got, ignore_errors=True)
        shutil.copytree(self.public(run_id), got)
        for role, path in trusted.items():
            write_bytes(path, keys.pem(keys.public_keys_in(here.keys_dir, role)[-1]))
        layout = ("--layout", "proof/root.layout", "--link-dir", "proof", "--verification-keys", str(trusted["launch"]))
        model = ("verify", "key", "publish/bundle", "--signature", "proof/model.sig", "--public_key")
        self.step("proof, by in-toto", *layout, program=(str(_BIN / "in-toto-verify"),), cwd=got)
        self.step(
            "proof, by model-signing", *model, str(trusted["model"]), program=(str(_BIN / "model_signing"),), cwd=got
        )
        (got / "public.link").unlink(missing_ok=True)  # of in-toto's inspection
        self.step(
            "public files, verified", "verify", "--public", str(got), "--key", sha256(trusted["launch"]), "--json"
        )

    def withdraw(self, config: LaunchConfig, first: str) -> None:
        """Roll the second launch back, then erase the first, which verifies it, and verify what is left."""
        for feature in config.features:
            of = ("--feature", feature, "--population", config.population)
            self.step(f"rollback of {feature}", "rollback", config.locale, *of, "--reason", "rehearsed", "--json")
            self.step(f"champion of {feature} predicts", "predict", config.locale, "", *of, "--json")
        self.step("erasure, which verifies", "erase", first, "--json")
        self.step("what is left, verified", "verify", first, "--json")

    def report(self, config: LaunchConfig, path: Path, launches: tuple[str, ...]) -> Report:
        """The steps, with a stage's seconds where another process ran it."""
        made, here, gates = self.made, settings.load(self.environment), tuple(self.gates(launches[0]))
        loosened = {each.field for each in made.stand_ins} & {f"policy.{name}" for name in NOT_EXERCISED}
        return Report(
            launch_file=path.name,
            file_sha256=sha256(path),
            commit=here.git_commit,
            processor=settings.processor(),
            memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
            people=made.people,
            own_people=made.own_people,
            scale=made.scale,
            noise=made.noise,
            launches=launches,
            loss=self.decision(launches[0])["headline"]["loss"],
            stand_ins=made.stand_ins,
            steps=tuple(self.steps.values()),
            gates=gates,
            not_exercised=tuple(gate.title for gate in gates if words_of(gate.id).field in loosened),
        )


def rehearse(
    path: Path,
    folder: Path,
    *,
    people: int | None,
    scale: float,
    public: tuple[str, ...] = (),
    prepare: bool = False,
    program: Sequence[str] = (sys.executable, "-m", "tacit"),
    tell: Callable[[Step], None] = lambda step: None,
) -> Report | Prepared:
    """Rehearse a launch file in ``folder``; one that was interrupted goes on where it ended.

    Args:
      people, scale, public: as ``stand_ins.rehearsed``.
      prepare: make text, launch files and the installation, and stop before the launch.
      program: runs ``tacit``.
      tell: called with each step when it has ended.

    Raises:
      ValueError: as ``stand_ins.rehearsed``; or ``folder`` holds another rehearsal.
      PermanentError: a command ended with another exit code than such a launch's.
      LaunchHeld: gates hold one of the launches.
    """
    folder = folder.resolve()
    environment = settings.apart(folder)
    by, mirror = settings.account(), "HF_ENDPOINT" in environment
    work = Rehearsal(rehearsed(path, folder, people, scale, public, by=by, mirror=mirror), folder, program, tell)
    work.write()
    config = load_launch(work.file)
    work.prepare(config)
    if prepare:
        return Prepared(work.file, {name: environment[name] for name in ("TACIT_RUNS_DIR", "TACIT_REVIEW_KEY")})
    first, second = launch_id(config), launch_id(load_launch(work.second))
    work.launch(config, work.file, first, "")
    work.prove(first)
    work.launch(config, work.second, second, "second: ")
    work.withdraw(config, first)
    return work.report(config, path, (first, second))
