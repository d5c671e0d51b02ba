"""Whole tiny launches with a fault of ours in them, many in a process that has imported everything once.

Each fault is code that runs before a launch, as a wrong line in the product would. A launch covers everything: words
found by an aggregator, counts that move the start, training, and an evaluation under a budget.
"""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from federated.config.population import population_key
from pipeline.ground.errors import DONE, HELD
from pipeline.ledger.budget import Budget, Ceilings
from pipeline.ledger.entries import Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.stages.graph import STAGES, before
from tests.golden import seeded_launch
from tests.helpers.launches.installed import at, registered

_EVALUATION = {"noise_multiplier": 0.05}
_RHO, _EPSILON = 250.0, 1e4
_FILE, _WARM = "tiny-central.yaml", 1_000_000
POPULATION = "made_up_files:tiny-clients-central"
ONE_DEVICES_WORD = "zqtypedbyone"
OVERSPENT = "a ledger that lets any spend through"
MOVED = "a start that un-noised counts moved"
# Gates that judge the model: on fifteen test devices they hold honest launches by chance.
QUALITY = {"typing", "utility", "top3_guardrail", "ngram", "new_words", "variety", "champion", "typists", "attempts"}

FAULTS: Mapping[str, str] = {
    "none": "",
    OVERSPENT: """
from pipeline.ledger import budget
budget.Ceiling.holds = lambda self, *given: True
""",
    "a word that one device typed": f"""
from functools import wraps
from discovery.results import FoundWord
from pipeline.stages import build_vocabulary as stage
from pipeline.run import artifacts
build, found = stage.build_vocabulary, artifacts.discovered_words
@wraps(build)
def with_one_more(ctx):
    one = FoundWord(word="{ONE_DEVICES_WORD}", layer=1, share=0.2, low=0.1, high=0.3)
    artifacts.discovered_words = lambda ctx: [*found(ctx), one]
    try:
        return build(ctx)
    finally:
        artifacts.discovered_words = found
stage.build_vocabulary = with_one_more
""",
    "exact frequencies of train devices": """
from functools import wraps
import numpy as np
from pipeline.run import artifacts
from pipeline.stages import build_vocabulary, discover as stage
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from tests.helpers.launches.tiny_launch import SHARED_NEW
discover, typed = stage.discover, {}
@wraps(discover)
def counting(ctx):
    new = Vocabulary((*SPECIALS, *SHARED_NEW))
    tokens = artifacts.store(ctx).encode(new, "train").tokens_N
    typed.update(zip(new.words, np.bincount(tokens, minlength=len(new)) / len(tokens), strict=True))
    return discover(ctx)
stage.discover = counting
build_vocabulary._frequencies = lambda ctx, base, discovered: {
    each.word: float(typed.get(each.word, 1e-3)) for each in discovered
}
""",
    "adapt trained on the people's text": """
from federated.devices import store
from pipeline.run import artifacts
from pipeline.stages import public_model
adapt = public_model.adapt
def on_people(ctx):
    honest = artifacts.public_streams
    def streams(ctx, words):
        opened = store.open_store(ctx.run.path / "private" / "ingest_private" / "store")
        return opened.encode(words, "train"), honest(ctx, words)[1]
    artifacts.public_streams = streams
    try:
        return adapt(ctx)
    finally:
        artifacts.public_streams = honest
public_model.adapt = on_people
""",
    "adapt trained on the people's text as Arrow reads it": """
from functools import wraps
import numpy as np
import pyarrow.parquet as pq
from pipeline.run import artifacts
from pipeline.stages import public_model
from pretrain.text.vocabulary import EOS, TokenStream
adapt = public_model.adapt
@wraps(adapt)
def on_people(ctx):
    honest = artifacts.public_streams
    def streams(ctx, words):
        texts = pq.read_table("clients.parquet")["text"].to_pylist()
        ids = [np.append(words.ids(text.split()), np.int32(EOS)) for text in texts]
        return TokenStream(np.concatenate(ids), np.cumsum([0, *map(len, ids)])), honest(ctx, words)[1]
    artifacts.public_streams = streams
    try:
        return adapt(ctx)
    finally:
        artifacts.public_streams = honest
public_model.adapt = on_people
""",
    "an estimate of the noise as an audit's power": """
from dataclasses import replace
from pipeline.stages import audit
honest, noise_audit, told = audit.verdicts, audit.noise_audit, []
def kept(*given):
    told.append(float(abs(given[0].projections_TN).mean()))
    return noise_audit(*given)
audit.noise_audit = kept
def telling(rows, tested):
    shown = honest(rows, tested)
    return tuple(replace(row, least_noise=told[-1]) if row.type == "noise_added" else row for row in shown)
audit.verdicts = telling
""",
    "an estimate of the noise as a canary's loss": """
from dataclasses import replace
from pipeline.stages import audit
noise_audit, told = audit.noise_audit, []
attacked = audit._attack
def kept(*given):
    told.append(float(abs(given[0].projections_TN).mean()))
    return noise_audit(*given)
audit.noise_audit = kept
validate = audit.Audit.model_validate.__func__
@classmethod
def telling(cls, content, **more):
    if told:
        content = {**content, "canaries": [{**row, "loss": told[-1]} for row in content["canaries"]]}
    return validate(cls, content, **more)
audit.Audit.model_validate = telling
""",
    MOVED: """
import numpy as np
from federated.counts import release
from pipeline.run import artifacts
from pipeline.stages import count
from pipeline.stages.training import fine_tune_inputs
honest = fine_tune_inputs.moved_start
def moved(ctx, public):
    from evaluation.config import NGRAM_ORDER
    from federated.counts import cells as counted_cells
    from federated.counts.posterior import counted_ngram
    from pretrain.ngrams.ngram import NGram
    words, base = artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.vocabulary(ctx, "ingest_public")
    asked = ctx.config.counts
    shares = artifacts.frequencies(ctx)
    cells = counted_cells.choose(public, words, asked.contexts, frequency_N=shares, start_weight=1.0)
    exact = release.released_counts(artifacts.store(ctx).encode(words, "train"), cells, 1e-6, bytes(32))
    fitted = NGram.fit(public, words, NGRAM_ORDER, ctx.private)
    model = counted_ngram(exact, cells, fitted, len(base), 1e-6)
    kept, artifacts.counts = artifacts.counts, lambda ctx: model
    try:
        return honest(ctx, public)
    finally:
        artifacts.counts = kept
fine_tune_inputs.moved_start = moved
""",
    "figures of an evaluation from un-noised sums": """
from pipeline.stages import kept_release
honest = kept_release.ReleaseFile.release
def quiet(self, config, key, had, devices):
    release = honest(self, config, key, had, devices)
    def released(size, vectors):
        release(size, vectors)
        bound = kept_release.clip_norm(config)
        return kept_release.released_sum(vectors(), size, 1e-6, key, kept_release.STREAM, bound)
    return released
kept_release.ReleaseFile.release = quiet
""",
    "an audit's row that is missing": """
from pipeline.stages import audit_releases
honest = audit_releases._audits
audit_releases._audits = lambda ctx: (row for row in honest(ctx) if row.stage != "count")
""",
    "a release that no list declares": """
from pipeline.stages import audit_releases, decide
listed, audits = decide.releases, audit_releases._audits
decide.releases = lambda config: tuple(each for each in listed(config) if each.stage != "count")
audit_releases._audits = lambda ctx: (row for row in audits(ctx) if row.stage != "count")
""",
    "validation devices that train": """
from federated.devices import store
split = store._split
store._split = lambda client, key, config: 0 if split(client, key, config) == 1 else split(client, key, config)
""",
    "a disclosure that cannot be written": """
from pipeline.stages import report
report._output = lambda config, whole: None
""",
}
# Faults that stand in one launch together.
TOGETHER: Mapping[str, tuple[str, ...]] = {
    "five together": (
        OVERSPENT,
        "a word that one device typed",
        "exact frequencies of train devices",
        "adapt trained on the people's text",
        "an estimate of the noise as an audit's power",
    ),
}
NAMES = (*FAULTS, *TOGETHER)
# Stages after which an honest launch is copied.
_POINTS = ("pretrain", "fine_tune", "ab_test", "decide")
# Faults that touch no stage up to this one; the others touch none up to the public model's.
_FROM = {
    "none": "decide",
    "an estimate of the noise as an audit's power": "fine_tune",
    "an estimate of the noise as a canary's loss": "fine_tune",
    "figures of an evaluation from un-noised sums": "fine_tune",
    "an audit's row that is missing": "ab_test",
    "a release that no list declares": "ab_test",
    "a disclosure that cannot be written": "ab_test",
}


@dataclass(frozen=True)
class Ending:
    """The end of a launch with a fault.

    Attributes:
      decision: ``launch`` or ``hold``, without the gates of ``QUALITY``; ``refused`` if a stage refused to go on.
      why: the gates that failed, or the last line of its messages.
    """

    decision: str
    why: str


def warm(home: Path, database: Path) -> None:
    """Run an honest launch of another seed in this process, so that forks of it have nothing to import or compile."""
    _install(home, _WARM, database)
    if code := _staged(home, STAGES):
        raise RuntimeError(f"exit code {code}")
    os.chdir(home.parent)


def begun(home: Path, seed: int, database: Path, copies: Path) -> None:
    """Run a launch without a fault, and copy its home after each stage of ``_POINTS``.

    Args:
      home: where launches of the copies will be, as it is in their addresses; it does not exist, before or after.
      database: tables of MLflow.
      copies: a folder, which does not exist.
    """
    _install(home, seed, database)
    done = set[str]()
    for point in _POINTS:
        through = {point, *before(point)}
        code, said = _run(home, "none", [name for name in STAGES if name in through - done])
        if code:
            raise RuntimeError(said)
        shutil.copytree(home, copies / point)
        done |= through
    shutil.rmtree(home)


def launched(home: Path, fault: str, seed: int, database: Path, copies: Path) -> Ending:
    """Run a launch with a fault, from the honest stages that it does not touch; through the decision, if that holds it.

    The stages run one by one, as Airflow runs them, in a fork of this process.

    Args:
      home, database, copies: as of ``begun``.
    """
    if fault == MOVED:  # its launch file is another
        _install(home, seed, database, model="network")
    else:
        shutil.copytree(copies / _FROM.get(fault, "pretrain"), home)
    if OVERSPENT in _each(fault):
        _spend_by_another(home)
    *judging, report, publish = STAGES
    code, said = _run(home, fault, judging)
    ending = _refused(said) if code else _ending(home)
    if ending.decision == "launch":
        code, said = _run(home, fault, [report, publish])
        ending = _refused(said) if code else ending
    shutil.rmtree(home)
    return ending


def _refused(said: str) -> Ending:
    if not said.startswith("error: "):
        raise RuntimeError(f"the planted code failed by itself: {said}")  # which is not what it would do
    return Ending("refused", said)


def _ending(home: Path) -> Ending:
    (run,) = (home / "runs").glob("tiny-central-*")
    decided = json.loads((run / "public" / "decide" / "result.json").read_text(encoding="utf-8"))["result"]
    failed = [gate for gate in decided["gates"] if not gate["passed"] and gate["id"] not in QUALITY]
    return Ending("hold" if failed else "launch", "; ".join(f"{gate['id']}: {gate['evidence']}" for gate in failed))


def _each(fault: str) -> tuple[str, ...]:
    return TOGETHER.get(fault, (fault,))


def _install(home: Path, seed: int, database: Path, model: str = "mixture") -> None:
    """Write data and launch file, and make a ledger.

    Args:
      model: what is made of counts; moving the start takes as long as all else together.
    """
    home.mkdir()
    seeded_launch.write_data(home)
    ledger = PrivacyLedger.create(at(home))
    # One launch fits the budget, and a second one does not.
    registered(ledger, POPULATION, budget=Budget(max_rho=_RHO, max_words_epsilon=_EPSILON, delta=0.1))
    file = seeded_launch.write_launch(home, "central")
    launch = yaml.safe_load(file.read_text(encoding="utf-8"))
    launch |= {"seed": seed, "evaluation": _EVALUATION}
    launch["counts"]["model"] = model
    launch["policy"] |= dict.fromkeys(("max_rho", "population_max_rho"), _RHO)
    launch["policy"] |= dict.fromkeys(("max_total_epsilon", "population_max_words_epsilon"), _EPSILON)
    file.write_text(yaml.safe_dump(launch, sort_keys=False), encoding="utf-8")
    shutil.copy(database, home / "runs" / "mlflow.db")


def _spend_by_another(home: Path) -> None:
    """Let another launch on the population spend so much that no room is left."""
    spend = Spend(unit="device", adjacency="zero-out", rho=100.0, epsilon=1.0, delta=1e-6)
    key = population_key(POPULATION)
    PrivacyLedger.of(at(home)).reserve(
        population=key, launch_id="another", stage="fine_tune", spend=spend, asked=Ceilings(), binding={}
    )


def _run(home: Path, fault: str, stages: Iterable[str]) -> tuple[int, str]:
    """Run stages with a fault; return the exit code of the first that ended the launch, and its last line."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _forked(home, [FAULTS[each] for each in _each(fault)], stages)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = (home / "said").read_text(encoding="utf-8").strip().splitlines()
    return code, said[-1] if said else f"exit code {code}"


def _forked(home: Path, faults: list[str], stages: Iterable[str]) -> NoReturn:
    code = 1
    try:
        with (home / "said").open("w", encoding="utf-8") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        for each in faults:
            exec(each, {})
        code = _staged(home, stages)
    except BaseException:  # noqa: BLE001 - shown as Python would at the end of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _staged(home: Path, stages: Iterable[str]) -> int:
    """Run stages in this process by ``tacit stage``; return the exit code of the first that ends the launch, or 0."""
    from tacit.__main__ import main

    os.chdir(home)
    os.environ |= {"TACIT_HOME": str(home), "TACIT_PDF": "no"}
    for name in stages:
        sys.argv = ["tacit", "stage", name, _FILE]
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if code not in (DONE, HELD) and name not in STAGES["decide"].evidence:
                return code
    return DONE
