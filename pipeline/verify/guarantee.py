"""Verify the guarantee of a launch, from its mechanism file and its participation records."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from evaluation.audit import canaries
from evaluation.config import STRESS_RATE
from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.accounting.composition import CombinedGuarantee, compose
from federated.devices import store as population
from federated.participation.observation import observe
from federated.participation.records import load_records, require_by_the_rule
from federated.rounds.rule import RoundRule
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend
from pipeline.releases.ceiling import in_words as in_parts
from pipeline.releases.release import Outlook
from pipeline.releases.spent import is_sum
from pipeline.releases.total import total
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import planned, releases
from pipeline.run import artifacts
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import differences
from pipeline.run.stage import stage_key
from pipeline.stages import fine_tune
from pipeline.stages.fine_tune import participation as participation_shown
from pipeline.stages.report import disclosed
from pipeline.verify.check import TOLERANCE, Check, in_words
from pretrain.config import BEARING, bears
from reports.disclosure.document import Disclosure


def guarantee(config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord]) -> Iterator[Check]:
    """Check that the mechanism is that of the launch file, and derive every number of its accounting again."""
    if "fine_tune" not in records or "plan" not in records:
        return
    stated = records["fine_tune"].result
    if not TRAINING.asked(config):
        yield Check(
            id="untrained", passed=_untrained(stated), detail="counts ship alone: nothing trained, no device read"
        )
        return
    same = mechanisms.fits(config.mechanism, artifacts.mechanism(run))
    detail = "the mechanism file fits the launch file" if same else "the mechanism file does not fit the launch file"
    yield Check(id="mechanism", passed=same, detail=detail)
    again, delta = guarantee_again(config, run), config.mechanism.delta
    derived = {
        "rho": again.rho,
        "epsilon": again.epsilon[delta],
        "mu": again.mu,
        "epsilon_pld": again.epsilon_pld[delta],
    }
    derived |= {"sensitivity_squared": again.sensitivity_squared, "norm_inflation": again.norm_inflation}
    compared = [(name, value, stated[name]) for name, value in derived.items() if name in stated]
    if again.amplified is not None and stated["amplified"] is not None:
        compared.append(("amplified epsilon", again.amplified.epsilon[delta], stated["amplified"]["epsilon"]))
    for name, value, said in compared:
        yield Check(
            id=name,
            passed=math.isclose(value, said, rel_tol=TOLERANCE),
            detail=f"stated {said:.6g}, derived again from observed participation {value:.6g}",
        )


def _untrained(stated: Mapping[str, object]) -> bool:
    """Return whether a stage states the figures of a launch without training: no round, no loss, no device."""
    nothing = ("rounds", "rho", "epsilon", "observed_max_participations", "violations", "synthetic_devices")
    return stated["spend"] is None and all(stated[name] == 0 for name in nothing)


def participation(
    config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord], gone: tuple[bool | None, str]
) -> Iterator[Check]:
    """Check that the rule, by the launch's key, picks the recorded devices, which give the stated figures."""
    if not TRAINING.asked(config) or "fine_tune" not in records:
        return  # No device took part, as ``guarantee`` checks, or training has not begun.
    path = run.path / "private" / "fine_tune" / "rounds" / "participation.parquet"
    store = run.path / "private" / "ingest_private" / "store"
    if not path.exists() or not store.exists():
        yield Check(id="participation", passed=gone[0], detail=gone[1])
        return
    stated = records["fine_tune"].result
    train = int((population.open_store(store).split_D == 0).sum())
    synthetic = stated["synthetic_devices"]
    stress_D = None
    if "stress" in config.audit.launched:
        planted = canaries.load(run.input("fine_tune", "canaries.json"))
        stress_D = np.concatenate([np.zeros(train, dtype=bool), planted.stress_D])
    synthetic_D = np.arange(train + synthetic) >= train
    try:
        rule = RoundRule(config.mechanism, config.seed, stage_key(config, run, "fine_tune"))
        cohorts = rule.cohorts(synthetic_D, stress_D, STRESS_RATE)
        rounds_joined = load_records(path, stated["rounds"])
        require_by_the_rule(rounds_joined, stated["rounds"], cohorts)
    except (OSError, ValueError) as error:
        yield Check(id="participation", passed=False, detail=str(error))
        return
    seen = observe(rounds_joined, stated["rounds"], cohorts, synthetic_D)
    again = participation_shown(seen).model_dump(mode="json")
    again["synthetic_participations"] = rounds_joined.participations(train + synthetic)[synthetic_D].tolist()
    wrong = list(differences({name: stated[name] for name in again}, again))
    detail = (
        f"{seen.rounds} rounds, min_sep {seen.min_sep}, max_participations {seen.max_participations}, "
        f"{seen.violations} violations; every cohort is the one that its key picks"
    )
    yield Check(id="participation", passed=not wrong, detail=f"not as stated: {in_words(wrong)}" if wrong else detail)


def by_the_file(config: LaunchConfig, records: Mapping[str, StageRecord]) -> Iterator[Check]:
    """Check statements about releases that the launch file alone decides, independent of participation."""
    for release in releases(config):
        if release.by_file is None or release.certain or release.stage not in records:
            continue
        stated = records[release.stage].result
        derived = {name: value for name, value in release.by_file(config) if isinstance(value, float | int)}
        for name, again in derived.items():
            said = stated.get(name)
            yield Check(
                id=f"{release.name} {name}",
                passed=said is not None and math.isclose(said, again, rel_tol=TOLERANCE),
                detail=f"stated {said}, derived again from the launch file {again}",
            )


def of_launch(config: LaunchConfig, trained: accounting.Guarantee) -> accounting.Guarantee:
    """Guarantee of all noised releases of a launch, for one device of the split that loses most.

    Guarantee: releases about training devices add up; a held-out device loses only to evaluation, so the larger of the
    two counts. If training is the only release, it is that of training.
    """
    spends = planned(config, Outlook(trained.rho, None))
    splits = {split: _noised(config, spends, split) for split in BEARING}
    if not splits["test"] and set(splits["train"]) <= {TRAINING.block}:
        return trained
    losses = [_together(trained, noised.values()) for noised in splits.values() if noised]
    rho = max(loss.rho for loss in losses)
    others = ((name, spend) for name, spend in splits["train"].items() if name != TRAINING.block)
    beside = (f"{name} of rho {spend.rho:.6g} included" for name, spend in others)
    most = (f"held-out devices lose most, rho {rho:.6g}",) if rho > losses[0].rho else ()
    return replace(
        trained,
        rho=rho,
        mu=max(loss.mu for loss in losses),
        epsilon={delta: max(loss.epsilon[delta] for loss in losses) for delta in losses[0].epsilon},
        epsilon_pld={delta: max(loss.epsilon_pld[delta] for loss in losses) for delta in losses[0].epsilon},
        methods=(*trained.methods, *beside, *most),
        amplified=None,
    )


def _noised(config: LaunchConfig, spends: Mapping[str, Spend], split: str) -> dict[str, Spend]:
    """Spends of noised releases about a split's devices, by the block of the launch file with the noise."""
    made = (release for release in releases(config) if bears(release.split, split))
    return {release.block: spends[release.stage] for release in made if spends[release.stage].rho is not None}


def _together(trained: accounting.Guarantee, spends: Collection[Spend]) -> CombinedGuarantee:
    """Total loss to noised releases on the same devices, at each delta of a guarantee that includes their failures."""
    failure = math.fsum(spend.failure for spend in spends)
    deltas = [delta for delta in trained.epsilon if delta > failure]
    made = compose([spend.rho for spend in spends if spend.rho is not None], [delta - failure for delta in deltas])
    return replace(
        made,
        epsilon={delta: made.epsilon[delta - failure] for delta in deltas},
        epsilon_pld={delta: made.epsilon_pld[delta - failure] for delta in deltas},
    )


def whole(config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord]) -> Iterator[Check]:
    """Check the disclosure's total loss of one device, derived from the launch file and the participation records."""
    stated = disclosed(run)
    if stated is None or not {"fine_tune", "plan"} <= records.keys():
        return
    yield from _one_number(config, run, records, stated)
    if not is_sum(config):
        return
    again, delta = of_launch(config, guarantee_again(config, run)), config.mechanism.delta
    said = stated.accounting
    right = math.isclose(again.rho, said.rho, rel_tol=TOLERANCE)
    right = right and math.isclose(again.epsilon[delta], said.epsilon, rel_tol=TOLERANCE)
    detail = f"stated rho {said.rho:.6g}, derived again for the devices that lose most {again.rho:.6g}"
    yield Check(id="whole_launch", passed=right, detail=detail)
    for release in releases(config):
        if release.by_file is not None:
            spend, made = release.paid(config, {}), records.get(release.stage) if release.certain else None
            same = release.by_file(config) in stated.releases
            same = same and (made is None or made.result["spend"] == spend.model_dump(mode="json"))
            detail = f"rho {spend.rho:.6g} of the launch file's noise, for {release.split} devices"
            yield Check(id=release.name, passed=same, detail=detail if same else f"stated is not {detail}")


def _one_number(
    config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord], stated: Disclosure
) -> Iterator[Check]:
    """Check the total over all releases, composed from the recorded layers and rounds."""
    if "discover" not in records:
        return
    delta, said = config.mechanism.delta, stated.accounting.total
    spends = planned(config, Outlook(guarantee_again(config, run).rho, None))
    for release in releases(config):
        if release.again is None:
            continue
        happened, block = records[release.stage].result, getattr(config, release.block)
        spends[release.stage] = release.again(config, happened)
        asked = {name: getattr(block, name) for name in release.asks}
        same = all(happened[name] == value for name, value in asked.items())
        detail = f"{', '.join(asked)} are the launch file's" if same else f"differs from the launch file's {asked}"
        yield Check(id=f"{release.name} asked", passed=same, detail=detail)
    whole = total(config, spends)
    wrong = list(differences(said.model_dump(mode="json"), whole.model_dump(mode="json"), "total"))
    detail = f"{in_parts(whole)} make epsilon {whole.epsilon:.6g} at delta {delta:g}"
    yield Check(id="one_number", passed=not wrong, detail=detail if not wrong else f"not as stated: {detail}")


def guarantee_again(config: LaunchConfig, run: RunDir, deltas: Iterable[float] = ()) -> accounting.Guarantee:
    """Derive the guarantee of a trained launch again, from its participation records and its mechanism file.

    Raises:
      StageInputMissing: the launch has not trained, or a file is lost.
    """
    if not TRAINING.asked(config):
        return accounting.untrained(tuple(deltas) or (config.mechanism.delta,))
    return fine_tune.guarantee_again(config, run, run.result("fine_tune"), deltas)
