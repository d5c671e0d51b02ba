"""Stage ``report``: collect the stages' results into one disclosure, and render it."""

from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from federated.accounting.gaussian import curve
from federated.planning.gain import Forecast
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.statement import composition
from pipeline.preflight.frontier import around
from pipeline.preflight.gains import measured_on, without_privacy
from pipeline.releases.release import Results
from pipeline.releases.spent import launch_loss, spent
from pipeline.releases.total import of_group, spent_alone, total
from pipeline.releases.uses import accesses, limits, releases
from pipeline.run import artifacts
from pipeline.run.cache import reused_commit
from pipeline.run.population import asked
from pipeline.run.public_fields import require_listed
from pipeline.run.run_dir import GIVEN, RunDir, StageRecord
from pipeline.run.second_run import differences
from pipeline.run.stage import StageContext, StageResult
from pipeline.stages.graph import SPENDING, STAGES, is_evidence
from pipeline.stages.remade import fields
from pipeline.telemetry.allowed import this_hour
from pretrain.config import BEARING, Config
from pretrain.files import write_text
from reports import front, render
from reports.disclosure.document import Artifact, DecisionBlock, Disclosure, Launch, Tool, Verification
from reports.disclosure.findings import AddedWords, AuditBlock, NewWordAdaptation
from reports.disclosure.guarantee import (
    Accounting,
    Composition,
    Curves,
    ForecastGain,
    Gain,
    Population,
    PublicText,
    ReusedRelease,
)
from reports.disclosure.total import Total
from reports.disclosure.utility import Utility

_Block = TypeVar("_Block", bound=Config)
_GROUPS = (2, 3)  # devices of one person
_CURVE_DELTAS = tuple(10.0**-power for power in range(3, 13))
# Whom the guarantee trusts; reports state it once.
_SERVER = {
    "server": "The server sees what each device sends before noise: it is trusted to clip it, add it up, add the noise "
    "and keep only the noisy sums.",
    "secure sum": "The server sees what devices send as masked sums alone: it is trusted to add the noise and keep "
    "only the noisy sums, and with the measures of each held-out device.",
}
_ASSUMPTIONS = (
    "Devices follow the protocol.",
    "The timer of each device is honest, so that no device joins two rounds closer than enforced.",
    "One person uses one device. A person with several devices gets group privacy, which is weaker.",
    "Noise is pseudo-random under a secret 256-bit key (AES-256-CTR): the guarantee is computational.",
)
_TUNED_HERE = "Hyperparameters were chosen on this population before this launch, which no guarantee covers."
_TUNED_ELSEWHERE = (
    "Hyperparameters were chosen before this launch; choosing them on this population would not be covered."
)
_SIMULATED = "Devices were simulated on stored text: the participation figures are not those of devices in the field."


# Time, software and state of the ledger at writing; ``verify`` compares the ledger's state with the ledger itself.
_OF_ITS_TIME: dict[str, Any] = {"tool": True, "composition": True, "verification": True, "launch": {"created_at"}}


# Blocks that the ledger and the installation give.
_OF_LEDGER = ("tool", "composition", "reused", "verification")


class Report(StageResult):
    """Names of the report's files, and the digest of its disclosure."""

    files: tuple[str, ...]
    disclosure_sha256: str
    summary: tuple[str, ...] = Field(description="the launch in a few lines, for reviewers")
    concerns: tuple[str, ...] = Field(description="warnings and main concerns; an approval accepts each")


def report(ctx: StageContext) -> Report:
    """Write the disclosure and its renderings, also for a held launch."""
    disclosed = disclosure(ctx, decision_of(ctx))
    require_listed(disclosed)
    # Written first, so that it exists even if rendering figures or pages fails.
    write_text(ctx.public / "disclosure.json", render.as_json(disclosed))
    files = render.render(disclosed, ctx.public, prints=ctx.settings.prints)
    return Report(
        files=tuple(sorted(str(path.relative_to(ctx.public)) for path in files)),
        disclosure_sha256=ctx.run.manifest("report")["disclosure.json"],
        summary=front.summary(disclosed),
        concerns=front.concerns(disclosed),
    )


def block(model: type[_Block], result: Mapping[str, Any], **more: object) -> _Block:
    """Build a block of the disclosure from a stage's result and further fields."""
    return model.model_validate({**result, **more}, extra="ignore")


def decision_of(ctx: StageContext) -> DecisionBlock:
    """Return the launch's decision, of stage ``decide``."""
    return block(DecisionBlock, ctx.run.result("decide"))


def disclosure(ctx: StageContext, decision: DecisionBlock) -> Disclosure:
    """Build the whole document, also for a held launch."""
    return Disclosure(
        **_derived(ctx, decision),
        tool=Tool(
            name="tacit",
            version=metadata.version("tacit-keyboard"),
            git_commit=ctx.settings.git_commit,
            lock_digests=dict(ctx.settings.lock_digests),
        ),
        composition=_composition(ctx),
        reused=_reused(ctx),
        verification=_verification(ctx),
    )


def _derived(ctx: StageContext, decision: DecisionBlock) -> dict[str, Any]:
    """Blocks of the document that follow from the launch file and public results."""
    config, result = ctx.config, ctx.run.result
    public, private, trained = result("ingest_public"), result("ingest_private"), result("fine_tune")
    spends = spent(config, ctx.run)
    whole = total(config, spends)
    forecast = around(config, private["devices_by_split"]["train"], spends, whole.epsilon)
    return {
        "launch": Launch(
            id=ctx.run.launch_id,
            name=config.name,
            locale=config.locale,
            feature=config.feature,
            features=config.features,
            created_at=this_hour(),
            contact=config.report.contact,
            intended_use=config.report.intended_use,
            reviewers=config.reviewers,
            approvals=config.policy.approvals,
            synthetic_population=private["synthetic"],
            seeded_randomness=config.mechanism.randomness == "seeded",
            ships=config.ships,
            trust=config.trust,
            tuning=config.tuning,
        ),
        "decision": decision,
        "data_accesses": accesses(config),
        "unit": "device",
        "adjacency": _adjacency(config),
        "output": _output(config, whole),
        "assumptions": (
            _SERVER[config.trust],
            *_ASSUMPTIONS,
            *(line for release in releases(config) for line in release.trusts(config, whole)),
        ),
        "public_text": block(PublicText, public),
        "population": block(Population, private, name=private["population"]),
        "accounting": _accounting(ctx, trained, whole, forecast, _groups(config, spends, result)),
        "releases": tuple(release.disclosed(config, result) for release in releases(config)),
        "words": _words(ctx),
        "audit": block(AuditBlock, audited) if (audited := ctx.run.optional("audit")) else None,
        "release_audits": ctx.run.optional("audit_releases").get("release_audits"),
        "utility": block(Utility, compared) if (compared := ctx.run.optional("ab_test")) else None,
        "curves": Curves(
            pretraining=result("pretrain")["curve"],
            adaptation=result("adapt")["curve"],
            fine_tuning=trained["curve"],
        ),
        "limitations": _limitations(config, private),
        "artifacts": _artifacts(ctx),
    }


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The document of the public results, with the stated state of the ledger, and its renderings.

    Raises:
      ValueError: a field of the document does not follow.
    """
    stated = Disclosure.model_validate_json((released / "disclosure.json").read_bytes())
    derived = _derived(ctx, decision_of(ctx))
    derived["launch"] = derived["launch"].model_copy(update={"created_at": stated.launch.created_at})
    again = Disclosure(**derived, **{name: getattr(stated, name) for name in _OF_LEDGER})
    said, made = (each.model_dump(mode="json") for each in (stated, again))
    if wrong := list(fields(stated, said, made)):
        raise ValueError(f"disclosure.json: {'; '.join(wrong)}")
    write_text(ctx.public / "disclosure.json", render.as_json(again))
    render.render(again, ctx.public)
    return {
        "disclosure_sha256": ctx.run.manifest("report")["disclosure.json"],
        "summary": front.summary(again),
        "concerns": front.concerns(again),
    }


def _adjacency(config: LaunchConfig) -> str:
    made = releases(config)
    train, test = ([release.neighbour for release in made if release.split == split] for split in BEARING)
    return f"zero-out: one device's {', its '.join(train)}" + "".join(f"; or {each}" for each in test)


def _output(config: LaunchConfig, whole: Total) -> str:
    return ", ".join(output for release in releases(config) if (output := release.output(config, whole)))


def _accounting(
    ctx: StageContext,
    trained: dict[str, Any],
    whole: Total,
    forecast: Mapping[float, Forecast],
    group: tuple[Total, ...],
) -> Accounting:
    loss, trains = launch_loss(ctx.config, ctx.run), ctx.run.result("ingest_private")["devices_by_split"]["train"]
    return block(
        Accounting,
        loss.model_dump(),
        randomness=ctx.config.mechanism.randomness,
        agree=trained["accountants_agree"],
        methods=trained["accounting_methods"],
        total=whole,
        curve=curve(loss.rho, _CURVE_DELTAS, loss.failure),
        group=group,
        forecast=tuple(ForecastGain(epsilon=at, **vars(gained)) for at, gained in forecast.items()),
        forecast_of=measured_on(ctx.config, trains) if forecast else "",
        without_privacy=Gain(**vars(free)) if (free := without_privacy(ctx.config)) else None,
    )


def _groups(config: LaunchConfig, spends: Mapping[str, Spend], results: Results) -> tuple[Total, ...]:
    losses = (of_group(config, spends, results, devices) for devices in _GROUPS)
    return tuple(loss for loss in losses if loss is not None)


def _words(ctx: StageContext) -> AddedWords:
    shown = artifacts.shown_words(ctx) if ctx.config.report.show_new_words else None
    discovered, built = ctx.run.result("discover"), ctx.run.result("build_vocabulary")
    compared = ctx.run.optional("ab_test")
    coverage = {name: compared.get(name) for name in ("coverage", "coverage_low", "coverage_high")}
    return block(
        AddedWords,
        built | coverage,
        words_found=discovered["words_found"],
        words_added=built["added"],
        words=shown,
        given_files=_given_files(ctx),
        adaptation=block(NewWordAdaptation, ctx.run.result("adapt")),
    )


def _given_files(ctx: StageContext) -> dict[str, str]:
    """Digests of the blocklist and of the reviewers' sheet, by file name."""
    record = ctx.run.record("build_vocabulary")
    read = record.inputs if record else {}
    return {Path(name).name: digest for name, digest in read.items() if name.startswith(f"{GIVEN}/")}


def _composition(ctx: StageContext) -> Composition:
    ledger, population = PrivacyLedger.of(ctx.settings), ctx.config.population
    return composition(ledger.entries(population), population, asked(ctx.config), spent_alone)


def _reused(ctx: StageContext) -> tuple[ReusedRelease, ...]:
    """Reused releases, with the spends that cover them, from the ledger."""
    entries = PrivacyLedger.of(ctx.settings).entries(ctx.config.population)
    records = [record for name in SPENDING if (record := ctx.run.record(name)) and record.reused_from]
    commits = [commit for record in records if (commit := reused_commit(record, entries))]
    return tuple(block(ReusedRelease, commit.model_dump()) for commit in commits)


def _limitations(config: LaunchConfig, private: dict[str, Any]) -> tuple[str, ...]:
    more = []
    if private["synthetic"]:
        more.append("The population is synthetic: the results say nothing about real typists.")
    if config.mechanism.randomness == "seeded":
        more.append("Noise was seeded: anyone with the launch file can subtract it, so there is no privacy at all.")
    if not config.private_text.simulated:
        more.append(
            "A person who withdraws is excluded from later launches, and their stored text is erased. Earlier releases "
            "stay, this model included: it cannot be made to forget one device."
        )
    tuned = _TUNED_HERE if config.tuning == "this population" else _TUNED_ELSEWHERE
    return (*more, *limits(config), tuned, _SIMULATED)


def _artifacts(ctx: StageContext) -> tuple[Artifact, ...]:
    opened = {"ingest_public", "pretrain", "build_vocabulary", "adapt", *SPENDING}
    names = (name for name in STAGES if name in opened and not is_evidence(name))
    records = [record for name in names if (record := ctx.run.record(name))]
    return tuple(
        Artifact(stage=record.stage, file=file, sha256=digest, made_by=record.reused_from)
        for record in records
        for file, digest in record.outputs.items()
        if not file.startswith("corpus/")  # the corpus' own manifest has its digest
    )


def _verification(ctx: StageContext) -> Verification:
    count, head = PrivacyLedger.of(ctx.settings).head()
    return Verification(
        ledger_head=head if count else None,
        ledger_entries=count,
        command=f"tacit verify {ctx.run.launch_id}",
    )


def disclosed(run: RunDir) -> Disclosure | None:
    """Read the disclosure in a launch's folder; None if it is missing or unreadable."""
    try:
        return Disclosure.model_validate_json((run.path / "public" / "report" / "disclosure.json").read_bytes())
    except (OSError, ValidationError):
        return None


def same_launch(one: Disclosure, other: Disclosure) -> bool:
    """Return whether two disclosures state the same about a launch, regardless of when they were written."""
    return not any(says_otherwise(one, other))


def says_otherwise(one: Disclosure, other: Disclosure) -> Iterator[str]:
    """Yield fields in which two disclosures differ, except those about the time of writing."""
    said, again = (value.model_dump(mode="json", exclude=_OF_ITS_TIME) for value in (one, other))
    return differences(said, again)
