"""Stage ``report``: what the stages found as one disclosure, and its renderings."""

import json
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from discovery.config import PROJECTED_WORDS
from federated.accounting.gaussian import curve
from pipeline.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run_dir import GIVEN
from pipeline.stage import StageContext, StageResult
from pipeline.stages.decide import optional
from reports import render
from reports.disclosure import document as d


class Report(StageResult):
    """The files of the report."""

    files: list[str]
    disclosure_sha256: str


_CURVE_DELTAS = tuple(10.0**-power for power in range(3, 13))


_ASSUMPTIONS = (
    "Devices follow the protocol: they clip nothing themselves, and the server that clips, sums and adds noise is "
    "trusted and keeps only the noisy sum.",
    "The timer of each device is honest, so that no device joins two rounds closer than enforced.",
    "One person uses one device. A person with several devices gets group privacy, which is weaker.",
    "Noise is pseudo-random under a secret 256-bit key (AES-256-CTR): the guarantee is computational.",
)


_WITHOUT_PRIVACY = d.DataAccess(
    stage="ab_test: an arm trained without privacy",
    data="private",
    covered=False,
    reason="simulation only: the population is a public data set or made up, so nobody's secret is at stake; the model "
    "is deleted once it has been compared",
)


_LIMITATIONS = (
    "Hyperparameters were chosen before this launch; choosing them on this population would not be covered.",
    "Evaluation on validation and test devices is not differentially private: it releases aggregate metrics of "
    "devices whose text trains nothing.",
    "Discovery and training are stated for different units and are never added up.",
    "The participation figures are those of a simulation on stored text, not of devices in the field.",
)


def report(ctx: StageContext) -> Report:
    """The disclosure and its renderings, for a launch and for a hold."""
    files = render.render(disclosure(ctx), ctx.public)
    return Report(
        files=sorted(str(path.relative_to(ctx.public)) for path in files),
        disclosure_sha256=ctx.run.manifest("report")["disclosure.json"],
    )


def disclosure(ctx: StageContext) -> d.Disclosure:
    """The whole document, for a launch and for a hold."""
    config, result = ctx.config, ctx.run.result
    public, private, trained = result("ingest_public"), result("ingest_private"), result("fine_tune")
    decided = result("decide")
    return d.Disclosure(
        tool=d.Tool(
            name="tacit",
            version=metadata.version("tacit"),
            git_commit=ctx.settings.git_commit,
            lock_digests=dict(ctx.settings.lock_digests),
        ),
        launch=d.Launch(
            id=ctx.run.launch_id,
            name=config.name,
            locale=config.locale,
            feature=config.feature,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            contact=config.report.contact,
            intended_use=config.report.intended_use,
            synthetic_population=private["synthetic"],
            seeded_randomness=config.mechanism.randomness == "seeded",
        ),
        decision=d.DecisionBlock(
            decision=decided["decision"],
            reasons=decided["reasons"],
            gates=[d.GateResult(**gate) for gate in decided["gates"]],
        ),
        data_accesses=_data_accesses(config),
        unit="device",
        adjacency="zero-out: one device's updates replaced by zeros in every round",
        output=(
            "the final model and, by post-processing, every noisy intermediate model, with the vocabulary given; the "
            "discovered words are an output of their own, under their guarantee per typed word"
        ),
        assumptions=_ASSUMPTIONS,
        public_text=d.PublicText(**{name: public[name] for name in d.PublicText.model_fields}),
        population=d.Population(
            name=private["population"],
            source=private["source"],
            synthetic=private["synthetic"],
            devices_at_least=private["devices_at_least"],
            devices_by_split=private["devices_by_split"],
        ),
        mechanism=_mechanism(config),
        participation=_participation(config, trained),
        accounting=_accounting(config, trained, result("plan")),
        discovery=_discovery(ctx),
        composition=_composition(ctx),
        audit=_audit(optional(ctx, "audit")),
        utility=_utility(optional(ctx, "ab_test")),
        curves=d.Curves(
            pretraining=result("pretrain")["curve"],
            adaptation=result("adapt")["curve"],
            fine_tuning=trained["curve"],
        ),
        limitations=_limitations(config, private),
        artifacts=_artifacts(ctx),
        verification=_verification(ctx),
    )


def _data_accesses(config: LaunchConfig) -> tuple[d.DataAccess, ...]:
    held_out = "aggregate metrics of held-out devices, released without noise; their text trains nothing"
    training = f"{config.mechanism.kind} noise, multiplier {config.mechanism.noise_multiplier:g}"
    return (
        d.DataAccess(stage="pretrain, adapt", data="public", covered=False),
        d.DataAccess(
            stage="ingest_private",
            data="private",
            covered=False,
            reason="the store stays private; counts of devices rounded down to tens and a digest leave it",
        ),
        d.DataAccess(
            stage="discover", data="private", covered=True, mechanism="LDP TrieHH, Subset Selection", unit="item"
        ),
        d.DataAccess(
            stage="build_vocabulary: coverage",
            data="private",
            covered=False,
            reason="one share over validation devices, released without noise; their text trains nothing",
        ),
        d.DataAccess(stage="fine_tune", data="private", covered=True, mechanism=training, unit="device"),
        d.DataAccess(stage="fine_tune: validation curve", data="private", covered=False, reason=held_out),
        d.DataAccess(stage="ab_test", data="private", covered=False, reason=held_out),
        *((_WITHOUT_PRIVACY,) if config.ab_test.non_private_upper_bound else ()),
        d.DataAccess(
            stage="hyperparameter tuning",
            data="public",
            covered=False,
            reason="settings come from the launch file; this launch tunes nothing on private data",
        ),
    )


def _mechanism(config: LaunchConfig) -> d.MechanismBlock:
    mechanism = config.mechanism.model_dump()
    known = {*d.MechanismBlock.model_fields, "min_sep", "max_participations"}
    return d.MechanismBlock(
        **{name: mechanism[name] for name in d.MechanismBlock.model_fields if name in mechanism},
        parameters={name: _shown(value) for name, value in mechanism.items() if name not in known and value},
        local_training=config.local_training.model_dump(),
        server=config.server.model_dump(),
    )


def _shown(value: object) -> str:
    if isinstance(value, dict):
        given = {name: inner for name, inner in value.items() if inner is not None}
        return ", ".join(f"{name.replace('_', ' ')} {_shown(inner)}" for name, inner in given.items())
    return ", ".join(map(_shown, value)) if isinstance(value, tuple | list) else str(value)


def _participation(config: LaunchConfig, trained: dict) -> d.Participation:
    return d.Participation(
        enforced_min_sep=config.mechanism.min_sep,
        enforced_max_participations=config.mechanism.max_participations,
        observed_min_sep=trained["observed_min_sep"],
        observed_mins=trained["observed_mins"],
        observed_max_participations=trained["observed_max_participations"],
        violations=trained["violations"],
        synthetic_devices=trained["synthetic_devices"],
        participation_histogram=trained["participation_histogram"],
        separation_histogram=trained["separation_histogram"],
        **{name: trained[name] for name in ("rounds_below_goal", "mean_devices", "check_ins", "fewest_check_ins")},
    )


def _accounting(config: LaunchConfig, trained: dict, planned: dict) -> d.Accounting:
    names = ("sensitivity_squared", "rho", "mu", "delta", "epsilon", "epsilon_pld")
    return d.Accounting(
        **{name: trained[name] for name in names},
        agree=trained["accountants_agree"],
        methods=trained["accounting_methods"],
        planned_rho=planned["rho"],
        secagg=_secagg(config, trained),
        amplified=trained["amplified"],
        curve=curve(trained["rho"], _CURVE_DELTAS),
    )


def _secagg(config: LaunchConfig, trained: dict) -> d.SecAgg | None:
    agreed, encoding = config.mechanism.secagg, trained["secagg"]
    if agreed is None or encoding is None:
        return None
    stated = {name: encoding[name] for name in d.SecAgg.model_fields if name in encoding}
    return d.SecAgg(neighbours=agreed.neighbours, threshold=agreed.threshold, **stated)


def _discovery(ctx: StageContext) -> d.DiscoveryBlock:
    found = ctx.run.result("discover")
    words = None
    if ctx.config.report.show_new_words:
        entries = json.loads(ctx.run.input("discover", "words.json").read_text(encoding="utf-8"))
        words = tuple(entry["word"] for entry in entries)
    built, adapted = ctx.run.result("build_vocabulary"), ctx.run.result("adapt")
    return d.DiscoveryBlock(
        **{name: found[name] for name in d.DiscoveryBlock.model_fields if name in found},
        words_added=built["added"],
        words=words,
        **{name: built[name] for name in ("reviewed", "coverage", "coverage_low", "coverage_high", "projection")},
        projected_words=PROJECTED_WORDS,
        given_files=_given_files(ctx),
        adaptation=d.NewWordAdaptation(**{name: adapted[name] for name in d.NewWordAdaptation.model_fields}),
    )


def _given_files(ctx: StageContext) -> dict[str, str]:
    """Digests of the blocklist and of the sheet a person decided on, by file name."""
    record = ctx.run.record("build_vocabulary")
    read = record.inputs if record else {}
    return {Path(name).name: digest for name, digest in read.items() if name.startswith(f"{GIVEN}/")}


def _composition(ctx: StageContext) -> d.Composition:
    ledger, population = PrivacyLedger(ctx.settings.ledger_url), ctx.config.private_text.name
    latest = {(entry.launch_id, entry.stage): entry for entry in ledger.entries(population) if entry.rho is not None}
    return d.Composition(
        spends=[
            d.PopulationSpend(launch_id=entry.launch_id, stage=entry.stage, kind=entry.kind, rho=entry.rho)
            for entry in latest.values()
        ],
        total_rho=ledger.total(population),
        ceiling_rho=ctx.config.policy.population_max_rho,
    )


def _audit(audited: dict) -> d.AuditBlock | None:
    if not audited:
        return None
    given = {name: audited[name] for name in d.AuditBlock.model_fields if name not in ("canaries", "audits")}
    rows = [{name: row[name] for name in d.CanaryResult.model_fields} for row in audited["canaries"]]
    audits = [{name: row[name] for name in d.AuditRow.model_fields} for row in audited["audits"]]
    return d.AuditBlock(**given, canaries=rows, audits=audits)


def _utility(compared: dict) -> d.Utility | None:
    return d.Utility(**{name: compared[name] for name in d.Utility.model_fields}) if compared else None


def _limitations(config: LaunchConfig, private: dict) -> tuple[str, ...]:
    more = []
    if private["synthetic"]:
        more.append("The population is synthetic: nothing here says how real typists would fare.")
    if config.ab_test.non_private_upper_bound:
        more.append(
            "One arm of the comparison was trained without noise. That is allowed because this population is a "
            "simulation; on people's own text it would be a release without any guarantee."
        )
    if config.mechanism.randomness == "seeded":
        more.append("Noise was seeded: anyone with the launch file can subtract it, so there is no privacy at all.")
    return (*more, *_LIMITATIONS, _item_losses(config))


def _item_losses(config: LaunchConfig) -> str:
    ceiling = config.policy.population_max_discovery_epsilon
    told = "Every launch discovers words anew: what a typed word loses to several launches on one population adds up. "
    if ceiling is None:
        return told + "The ledger lists these losses, but this launch file names no ceiling on their sum."
    return told + f"The ledger refuses a launch that would take their sum above epsilon {ceiling:g}."


def _artifacts(ctx: StageContext) -> tuple[d.Artifact, ...]:
    names = ("ingest_public", "pretrain", "discover", "build_vocabulary", "adapt", "fine_tune")
    records = [record for name in names if (record := ctx.run.record(name))]
    return tuple(
        d.Artifact(stage=record.stage, file=file, sha256=digest)
        for record in records
        for file, digest in record.outputs.items()
        if not file.startswith("corpus/")  # its digest stands in the corpus' own manifest
    )


def _verification(ctx: StageContext) -> d.Verification:
    entries = PrivacyLedger(ctx.settings.ledger_url).entries()
    return d.Verification(
        ledger_head=entries[-1].hash if entries else None,
        ledger_entries=len(entries),
        command=f"tacit verify {ctx.run.launch_id}",
    )
