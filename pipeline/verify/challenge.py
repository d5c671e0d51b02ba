"""Challenge of training: rounds that somebody chose afterwards are run again, and held against their commitments.

Training ends with the root of a Merkle tree over all rounds, {cohort, released sum, model}, in its record: the ledger
holds that record's digest, and the disclosure states the root. A round whose sum, noise or model is not the committed
one is named. This is no new release: cohorts and noise are those of the same key, and nothing is written.
"""

from collections.abc import Collection, Iterator, Sequence

from federated.rounds import commitments, kept_rounds
from federated.rounds.commitments import FIELDS, Commitment
from federated.rounds.server import flat_weights
from pipeline.ground.errors import LaunchError
from pipeline.ground.settings import Settings, processor
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import artifacts
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.stage import StageContext
from pipeline.stages.fine_tune import ROUNDS, root_of_rounds
from pipeline.stages.graph import STAGES
from pipeline.stages.training.fine_tune_inputs import open_inputs
from pipeline.stages.training.fine_tune_workers import train_again
from pipeline.verify.check import Check
from pipeline.verify.files import is_gone, missing
from pipeline.verify.replay import beside
from pipeline.verify.report import of_this_code

_STAGE = "fine_tune"
_CALLED = {"cohort": "cohort", "released": "released sum", "model": "model"}
_HERE = "cannot be compared bit by bit here"


def challenge(config: LaunchConfig, run: RunDir, settings: Settings, rounds: Collection[int]) -> Iterator[Check]:
    """Run rounds of a launch's training again, and yield a check of each.

    Each is run from the nearest earlier start that training kept, so up to an eighth of all rounds are run for one.

    Args:
      rounds: their numbers, from 1.

    Raises:
      ValueError: the launch has no such rounds.
    """
    record = run.record(_STAGE)
    last = 0 if record is None else record.result["rounds"]
    if record is None or not last:
        raise ValueError(f"launch: {run.launch_id} has trained on no devices, so it has no rounds; name another launch")
    wrong = sorted(number for number in rounds if not 1 <= number <= last)
    if wrong or not rounds:
        raise ValueError(f"rounds: {wrong or 'none'} given; give some of 1 to {last}, as in --rounds 1,{last}")
    return _checks(config, run, settings, record, sorted(number - 1 for number in rounds))


def _checks(
    config: LaunchConfig, run: RunDir, settings: Settings, record: StageRecord, rounds: Sequence[int]
) -> Iterator[Check]:
    committed = commitments.read(run.public(_STAGE) / ROUNDS)
    ledger = PrivacyLedger.of(settings)
    held = len(committed) == record.result["rounds"]
    held = held and root_of_rounds(committed) == record.result["rounds_root"]
    detail = "the root in the ledger's record" if held else f"{ROUNDS} does not give the root in the ledger's record"
    yield Check(id="root", passed=held, detail=detail)
    if is_gone(run, _STAGE) or is_gone(run, "ingest_private"):
        passed, detail = missing(run, ledger)
        yield Check(id="rounds", passed=passed and None, detail=detail)
        return
    excuse = None if of_this_code(run, settings, ledger) else "other code made it"
    if record.processor != (here := processor()):
        excuse = excuse or f"made on {record.processor}; this is {here}"
    with beside(config, run, settings, STAGES[_STAGE]) as ctx:
        try:
            yield from _compared(ctx, run, committed, rounds, excuse)
        except OSError as error:
            yield Check(id="rounds", passed=None, detail=f"{_HERE}: {error}")
        except (LaunchError, ValueError, ArithmeticError) as error:
            yield Check(id="rounds", passed=None if excuse else False, detail=f"they cannot be run again: {error}")


def _compared(
    ctx: StageContext, run: RunDir, committed: Sequence[Commitment], rounds: Sequence[int], excuse: str | None
) -> Iterator[Check]:
    published = StageContext(ctx.config, run, ctx.settings, _STAGE, None)
    final = commitments.model_digest(flat_weights(artifacts.model(published, _STAGE)))
    yield _equal("published", [] if final == committed[-1].model else ["the model is not that of the last round"], None)
    for start in kept_rounds.starts(len(committed)):
        if any(start <= number for number in rounds):
            kept = kept_rounds.load_start(ctx.private / "rounds", start).server.weights_P
            same = commitments.model_digest(kept) == committed[start - 1].model
            wrong = [] if same else [f"the model kept after round {start} is not the committed one"]
            yield _equal(f"start:{start + 1}", wrong, None)
    for number, made in train_again(ctx, open_inputs(ctx), rounds):
        differ = [name for name in FIELDS if getattr(made, name) != getattr(committed[number], name)]
        yield _equal(f"round:{number + 1}", [f"another {_CALLED[name]} than was committed" for name in differ], excuse)


def _equal(check_id: str, wrong: Sequence[str], excuse: str | None) -> Check:
    if wrong and excuse:
        return Check(id=check_id, passed=None, detail=f"{_HERE} ({excuse}): {'; '.join(wrong)}")
    return Check(id=check_id, passed=not wrong, detail="; ".join(wrong) or "equal")
