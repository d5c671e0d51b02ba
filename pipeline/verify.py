"""Re-derive what a launch disclosed, from its files, its records and the ledger."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from pydantic import BaseModel, ConfigDict

from evaluation.audit import canaries
from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.accounting.composition import compose
from federated.devices import store as population
from federated.participation.observed import Observed, observe
from federated.participation.records import load_records
from federated.rounds.rule import RoundRule
from federated.secagg.bounds import plan_encoding
from pipeline.config import STAGE_NAMES, LaunchConfig, config_digest
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run_dir import RunDir, StageRecord
from pipeline.settings import Settings
from pipeline.stage import Spend, StageContext
from pipeline.stages import artifacts, gates
from pipeline.stages.decide import evidence
from pipeline.stages.fine_tune import participation as participation_shown
from pretrain.files import sha256

_TOLERANCE = 1e-9
_ACCOUNTED = ("rounds", "min_sep", "max_participations", "violations", "synthetic_devices")
_TURNOUT = ("rounds_below_goal", "mean_devices", "check_ins", "fewest_check_ins")
# What the first three look at goes on changing with every later launch on the population; 0.1 had the last.
_OTHER_GATES = frozenset({"population_budget", "population_discovery", "ledger", "simulated"})


class Check(BaseModel):
    """One thing that was derived again; ``passed`` is None if what it needs is not on this machine."""

    model_config = ConfigDict(frozen=True)

    id: str
    passed: bool | None
    detail: str


def verify(config: LaunchConfig, run: RunDir, settings: Settings) -> list[Check]:
    """All checks of one launch; it verifies if none of them failed."""
    records = {name: record for name in STAGE_NAMES if (record := run.record(name))}
    return [
        *_files(config, run, records),
        *_guarantee(config, run, records),
        _participation(config, run, records),
        *_ledger(run, settings, records),
        _decision(config, run, settings, records),
        _disclosure(config, run, records),
    ]


def _files(config: LaunchConfig, run: RunDir, records: dict[str, StageRecord]) -> Iterator[Check]:
    for name in STAGE_NAMES:
        record = records.get(name)
        if record is None and name == "count" and config.counts is None:
            continue  # A launch of before there were counts.
        if record is None:
            yield Check(id=f"files:{name}", passed=False, detail="the stage has not finished")
            continue
        wrong = [file for file, digest in record.outputs.items() if not run.available(name, file, digest)]
        if record.config_digest != config_digest(config):
            yield Check(id=f"files:{name}", passed=False, detail="made from another configuration")
        elif wrong:
            yield Check(id=f"files:{name}", passed=False, detail=f"changed or lost: {', '.join(wrong)}")
        else:
            made = f", made by {record.reused_from}" if record.reused_from else ""
            yield Check(id=f"files:{name}", passed=True, detail=f"{len(record.outputs)} files have their digests{made}")


def _guarantee(config: LaunchConfig, run: RunDir, records: dict[str, StageRecord]) -> Iterator[Check]:
    if "fine_tune" not in records or "plan" not in records:
        return
    stated = records["fine_tune"].result
    again = guarantee_again(config, run)
    yield _mechanism(config, artifacts.mechanism(run))
    derived = [("rho", again.rho, stated["rho"]), ("epsilon", again.epsilon[config.mechanism.delta], stated["epsilon"])]
    if again.amplified is not None and stated["amplified"] is not None:
        amplified = again.amplified.epsilon[config.mechanism.delta]
        derived.append(("amplified epsilon", amplified, stated["amplified"]["epsilon"]))
    for name, value, said in derived:
        yield Check(
            id=name,
            passed=math.isclose(value, said, rel_tol=_TOLERANCE),
            detail=f"stated {said:.6g}, derived again from observed participation {value:.6g}",
        )


def with_counts(config: LaunchConfig, trained: accounting.Guarantee) -> accounting.Guarantee:
    """The guarantee of training and counts together; that of training where nothing was counted."""
    if config.counts is None:
        return trained
    together = compose((config.counts.rho, trained.rho), trained.epsilon)
    return replace(
        trained,
        rho=together.rho,
        mu=together.mu,
        epsilon=together.epsilon,
        epsilon_pld=together.epsilon_pld,
        methods=(*trained.methods, f"counts of rho {config.counts.rho:.6g} are included"),
        amplified=None,
    )


def _mechanism(config: LaunchConfig, mechanism: mechanisms.Mechanism) -> Check:
    """The file that the noise came from is what the launch file asks for."""
    same = mechanisms.fits(config.mechanism, mechanism)
    detail = "the mechanism file is what the launch file asks for" if same else "not what the launch file asks for"
    return Check(id="mechanism", passed=same, detail=detail)


def _participation(config: LaunchConfig, run: RunDir, records: dict[str, StageRecord]) -> Check:
    path = run.path / "private" / "fine_tune" / "rounds" / "participation.parquet"
    store = run.path / "private" / "ingest_private" / "store"
    if "fine_tune" not in records or not path.exists() or not store.exists():
        return Check(id="participation", passed=None, detail="the private records are not on this machine")
    stated = records["fine_tune"].result
    train = int((population.open_store(store).split_D == 0).sum())
    synthetic = stated["synthetic_devices"]
    stress_D = None
    if "stress" in config.audit.populations:
        planted = canaries.load(run.input("fine_tune", "canaries.json"))
        stress_D = np.concatenate([np.zeros(train, dtype=bool), planted.stress_D])
    synthetic_D = np.arange(train + synthetic) >= train
    try:
        cohorts = RoundRule(config.mechanism, config.seed).cohorts(synthetic_D, stress_D)
        rounds_joined = load_records(path, stated["rounds"])
    except (OSError, ValueError) as error:
        return Check(id="participation", passed=False, detail=str(error))
    seen = observe(rounds_joined, stated["rounds"], cohorts, synthetic_D)
    said, again = observed(stated), participation_shown(seen)
    same = all(getattr(seen, name) == getattr(said, name) for name in _ACCOUNTED)
    # Histograms may have been published coarser than they are; a secret sample has no turnout.
    same = same and all(stated[name] in (None, getattr(again, name)) for name in _TURNOUT)
    return Check(
        id="participation",
        passed=same,
        detail=f"{seen.rounds} rounds, min_sep {seen.min_sep}, max_participations {seen.max_participations}, "
        f"{seen.violations} violations from the records",
    )


def _ledger(run: RunDir, settings: Settings, records: dict[str, StageRecord]) -> Iterator[Check]:
    ledger = PrivacyLedger(settings.ledger_url)
    anchors = [receipt for record in records.values() for receipt in record.ledger.values()]
    problems = ledger.verify(anchors)
    yield Check(id="ledger", passed=not problems, detail="; ".join(problems) or "the hash chain is whole")
    entries = {entry.stage: entry for entry in ledger.entries() if entry.launch_id == run.launch_id}
    for name, record in records.items():
        if record.result.get("spend") is None:
            continue
        spend, entry = record.result["spend"], entries.get(name)
        same = entry is not None and entry.kind == "commit" and entry.spend == Spend.model_validate(spend)
        detail = "the ledger holds what the stage states" if same else "the ledger does not hold what the stage states"
        yield Check(id=f"spend:{name}", passed=same, detail=detail)


def _decision(config: LaunchConfig, run: RunDir, settings: Settings, records: dict[str, StageRecord]) -> Check:
    if "decide" not in records:
        return Check(id="decision", passed=False, detail="the launch has not been decided")
    stated = records["decide"].result
    context = StageContext(config, run, settings, "decide", None)
    again = {gate.id: gate.passed for gate in gates.decide(evidence(context), config.policy).gates}
    passed = {gate["id"]: gate["passed"] for gate in stated["gates"]}
    differ = [name for name in passed | again if name not in _OTHER_GATES and passed.get(name) != again.get(name)]
    follows = stated["decision"] == ("launch" if all(passed.values()) else "hold")
    detail = f"{stated['decision']}; " + (f"gates that differ: {', '.join(differ)}" if differ else "every gate again")
    return Check(id="decision", passed=follows and not differ, detail=detail)


def _disclosure(config: LaunchConfig, run: RunDir, records: dict[str, StageRecord]) -> Check:
    if "report" not in records or "fine_tune" not in records:
        return Check(id="disclosure", passed=False, detail="there is no report")
    path = run.public("report") / "disclosure.json"
    stated, rho = records["report"].result["disclosure_sha256"], records["fine_tune"].result["rho"]
    if config.counts is not None:
        rho = with_counts(config, guarantee_again(config, run)).rho
    if not path.is_file() or sha256(path) != stated:
        return Check(id="disclosure", passed=False, detail="disclosure.json is not the one the report stage wrote")
    same = any(
        math.isclose(rho, told, rel_tol=_TOLERANCE) for told in _numbers(json.loads(path.read_text(encoding="utf-8")))
    )
    return Check(id="disclosure", passed=same, detail=f"SHA-256 {stated[:12]}..., names rho {rho:.6g}")


def _numbers(content: object) -> set[float]:
    if isinstance(content, dict):
        return set().union(*(_numbers(value) for value in content.values()))
    if isinstance(content, list):
        return set().union(*(_numbers(value) for value in content))
    return {content} if isinstance(content, float) else set()


def guarantee_again(config: LaunchConfig, run: RunDir, deltas: Iterable[float] = ()) -> accounting.Guarantee:
    """The guarantee of a launch that has trained, from what happened and its mechanism file.

    Raises:
      StageInputMissing: it has not trained, or a file is lost.
    """
    stated = run.result("fine_tune")
    agreed, encoding = config.mechanism.secagg, None
    if agreed is not None:
        # Made again from the launch file; only the sizes are taken from what was stated.
        sizes = (stated["secagg"]["num_parameters"], stated["secagg"]["devices"])
        encoding = plan_encoding(*sizes, agreed.bits)
    mechanism = artifacts.mechanism(run)
    return accounting.from_records(config.mechanism, observed(stated), deltas, mechanism, encoding)


def observed(result: dict) -> Observed:
    """The accountant's input as the fine-tuning stage stated it."""
    min_sep = result["observed_min_sep"]
    return Observed(
        rounds=result["rounds"],
        min_sep=min_sep,
        mins=None if min_sep is None else min_sep - 1,
        max_participations=result["observed_max_participations"],
        participation_histogram={int(key): value for key, value in result["participation_histogram"].items()},
        separation_histogram={int(key): value for key, value in result["separation_histogram"].items()},
        violations=result["violations"],
        synthetic_devices=result["synthetic_devices"],
    )
