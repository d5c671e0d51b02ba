"""Verify the guarantee of a launch, from its mechanism file and its participation records."""

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from evaluation.audit import canaries
from evaluation.config import STRESS_RATE
from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.devices import store as population
from federated.participation.observation import observe
from federated.participation.records import load_records, require_by_the_rule
from federated.rounds.rule import RoundRule
from pipeline.launch.config import LaunchConfig
from pipeline.releases.ceiling import in_words as in_parts
from pipeline.releases.release import Outlook, Results
from pipeline.releases.spent import is_sum, loss_together
from pipeline.releases.total import totals
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
from pretrain.config import BEARING
from reports.disclosure.document import Disclosure
from reports.disclosure.total import Total


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


def whole(config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord]) -> Iterator[Check]:
    """Check the disclosure's total loss of one device, derived from the launch file and the participation records."""
    stated = disclosed(run)
    if stated is None or not {"fine_tune", "plan"} <= records.keys():
        return
    yield from _one_number(config, run, records, stated)
    if not is_sum(config):
        return
    spends = planned(config, Outlook(guarantee_again(config, run).rho, None)).values()
    noised = ([spend for spend in spends if spend.rho is not None and spend.split == split] for split in BEARING)
    losses = [loss_together(split, config.mechanism.delta) for split in noised if split]
    rho, epsilon = (max(getattr(loss, name) for loss in losses) for name in ("rho", "epsilon"))
    said = stated.accounting
    right = math.isclose(rho, said.rho, rel_tol=TOLERANCE)
    right = right and math.isclose(epsilon, said.epsilon, rel_tol=TOLERANCE)
    detail = f"stated rho {said.rho:.6g}, derived again for the devices that lose most {rho:.6g}"
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
    for release in releases(config):
        if release.again is None:
            continue
        happened, block = records[release.stage].result, getattr(config, release.block)
        asked = {name: getattr(block, name) for name in release.asks}
        same = all(happened[name] == value for name, value in asked.items())
        detail = f"{', '.join(asked)} are the launch file's" if same else f"differs from the launch file's {asked}"
        yield Check(id=f"{release.name} asked", passed=same, detail=detail)
    whole = losses_again(config, guarantee_again(config, run), lambda stage: records[stage].result)[delta]
    wrong = list(differences(said.model_dump(mode="json"), whole.model_dump(mode="json"), "total"))
    detail = f"{in_parts(whole)} make epsilon {whole.epsilon:.6g} at delta {delta:g}"
    yield Check(id="one_number", passed=not wrong, detail=detail if not wrong else f"not as stated: {detail}")


def losses_again(config: LaunchConfig, trained: accounting.Guarantee, results: Results) -> dict[float, Total]:
    """Loss of one device to all releases, at each delta of training's guarantee, from records and the launch file.

    Args:
      results: returns the result of a stage.

    Raises:
      ValueError: a delta is not above what words found locally and failures take of it.
    """
    spends = planned(config, Outlook(trained.rho, None))
    for release in releases(config):
        if release.again is not None:
            spends[release.stage] = release.again(config, results(release.stage), 1)
    return totals(config, spends, trained.epsilon)


def guarantee_again(config: LaunchConfig, run: RunDir, deltas: Iterable[float] = ()) -> accounting.Guarantee:
    """Derive the guarantee of a trained launch again, from its participation records and its mechanism file.

    Raises:
      StageInputMissing: the launch has not trained, or a file is lost.
    """
    if not TRAINING.asked(config):
        return accounting.untrained(tuple(deltas) or (config.mechanism.delta,))
    return fine_tune.guarantee_again(config, run, run.result("fine_tune"), deltas)
