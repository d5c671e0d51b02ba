"""The stages of a launch, in order, and their graph.

The runner, verification, the command line and Airflow (by ``dags/stages.json``, which ``python -m
pipeline.stages.graph`` writes) all use this list. A new stage is a function, a value in this list, and its result.

This module imports no numeric code: a stage's function is imported when the stage runs.
"""

import json
import sys

from discovery.config import AFTERWARDS, FALSE_DISCOVERY_RATE
from federated.config.counts import START_WEIGHT
from pipeline.launch.config import AFTER_APPROVAL, LaunchConfig
from pipeline.releases.counts import COUNTS
from pipeline.releases.evaluation import EVALUATION
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import RELEASES
from pipeline.run.bookkeeping import AUDIT
from pipeline.run.run_dir import KEY
from pipeline.run.stage import SOURCES, Replay, Stage, Stages, everything, later

# Code of public stages. Too much rather than too little: a change here only costs computation.
_CODE = ("pretrain", "pipeline/run/stage.py", "pipeline/stages", "reports/disclosure")
# Modules of ``discovery`` that decide devices' answers and the words found: a new filter of words asks nobody again.
_ANSWERS = (
    *("discovery/central", "discovery/certificates", "discovery/device"),
    *("discovery/config.py", "discovery/discover.py", "discovery/participation.py", "discovery/results.py"),
    *("discovery/selection.py", "discovery/state.py", "discovery/trie.py"),
)
# Third-party imports of ``pretrain``.
_LIBRARIES = (
    "cryptography",
    "datasets",
    "gensim",
    "huggingface_hub",
    "langcodes",
    "llvmlite",
    "numba",
    "numpy",
    "onnx",
    "onnxruntime",
    "protobuf",
    "pyarrow",
    "pydantic",
    "PyYAML",
    "regex",
    "safetensors",
    "torch",
    "wordfreq",
)


def _always(config: LaunchConfig) -> bool:
    return True


# Blocks that decide the releases of a launch and their spends (``pipeline.releases``).
_RELEASES = (*dict.fromkeys(release.block for release in RELEASES), "private_text", "policy")
# Blocks that decide all uses of private data, also those without a budget.
_USES = (*_RELEASES, "ab_test", "audit", *AFTER_APPROVAL)
# Stages of optional releases; those of words, training and the comparison are in every launch.
_IN_EVERY_LAUNCH = ("discover", "fine_tune", "ab_test")
_ASKED_FOR = tuple(release.stage for release in RELEASES if release.stage not in _IN_EVERY_LAUNCH)
# Blocks of training on devices, here or on a twin.
_TRAINING = ("seed", "model", "mechanism", "local_training", "server", "audit", "counts", "evaluation")


# The device store.
_DEVICES = ("ingest_private/store",)


def _seed(config: LaunchConfig) -> tuple[str, ...]:
    """Fields that decide a release's random bits: the seed in tests, none for secret randomness."""
    return ("seed",) if config.mechanism.randomness == "seeded" else ()


def _private_text_reads(config: LaunchConfig) -> tuple[str, ...]:
    """All fields of the private text except file paths; the seed only for synthetic typists."""
    population = config.private_text
    described = (f"private_text.{name}" for name in type(population).model_fields if name != "paths")
    # It refuses devices that a comparison without a budget cannot use.
    compared = () if config.evaluation else ("ab_test.buckets", "public_text.source")
    return ("locale", "evaluation", *described, *compared, *(("seed",) if population.source == "synthetic" else ()))


def _discovery_reads(config: LaunchConfig) -> tuple[str, ...]:
    """Fields that decide devices' answers, without those that only filter the words afterwards."""
    asked = (f"discovery.{name}" for name in type(config.discovery).model_fields if name not in AFTERWARDS)
    summed = ("mechanism.secagg",) if config.mechanism.secagg else ()
    return ("locale", "mechanism.randomness", *summed, *asked, *_seed(config))


def _count_reads(config: LaunchConfig) -> tuple[str, ...]:
    """Fields that decide the released counts, and the model made from them."""
    return ("counts", "mechanism.delta", "mechanism.randomness", *_seed(config))


_LIST = (
    Stage(
        name="ingest_public",
        line="{train_tokens:,} words of public text",
        run="pipeline.stages.ingest:ingest_public",
        reads=lambda config: ("locale", "public_text", "vocabulary.base_size"),
        given=later("pipeline.stages.identity:public_text"),
        code=_CODE,
        libraries=_LIBRARIES,
        replay=Replay(again="pipeline.stages.ingest:public_text_again", in_full=_always),
        remade="pipeline.stages.ingest:public_text_remade",
    ),
    Stage(
        name="ingest_private",
        line="{devices_at_least:,} devices or more",
        run="pipeline.stages.ingest:ingest_private",
        reads=_private_text_reads,
        sees=("name", "seed", "private_text", "policy", "mechanism", "evaluation", "runtime"),
        given=later("pipeline.stages.identity:private_text"),
        code=(
            "federated/devices",
            "pretrain",
            "pipeline/stages/ingest.py",
        ),
        libraries=_LIBRARIES,
        private=(SOURCES,),
        replay=Replay(again="pipeline.stages.ingest:store_again", anywhere=True),
        remade="pipeline.stages.ingest:private_text_remade",
        salted="pipeline.stages.ingest:committed",
    ),
    Stage(
        name="pretrain",
        line="{validation_top1:.1%} of next words right on public text",
        run="pipeline.stages.public_model:pretrain",
        needs=("ingest_public",),
        # A GPU multiplies in bfloat16, so the training device decides the model's bits.
        reads=lambda config: ("seed", "model", "pretrain", "runtime.device"),
        code=(*_CODE, "evaluation"),
        libraries=_LIBRARIES,
        device=True,
        replay=Replay(again="pipeline.stages.public_model:pretrained_again", in_full=_always),
        remade="pipeline.stages.public_model:pretrained_remade",
        repeated="pipeline.stages.public_model:pretrained_repeated",
    ),
    Stage(
        name="plan",
        line="training costs rho {rho:.3g}",
        run="pipeline.stages.plan:plan",
        needs=("ingest_private",),
        may_need=("pretrain",),  # what gates need is known of public text before the first spend
        # It refuses before the first spend, also by the schedule.
        reads=lambda config: (
            *("locale", "seed", "vocabulary", "schedule", "audit", "ab_test", "model"),
            *(*_RELEASES, "server", "public_text.source"),
        ),
        replay=Replay(afresh=True),
        sees=("reviewers",),  # held against the registration; no output says them
        remade="pipeline.stages.plan:remade",
    ),
    Stage(
        name="discover",
        line="{words_found:,} words found",
        run="pipeline.stages.discover:discover",
        needs=("ingest_public", "ingest_private"),
        follows=("plan",),
        reads=_discovery_reads,
        sees=("discovery", "runtime", "mechanism.secagg", "seed"),
        given=later("pipeline.stages.identity:words"),
        code=(
            *_ANSWERS,
            "pretrain/randomness",
            "pretrain/writing/case.py",
            "pipeline/stages/discover.py",
        ),
        private=_DEVICES,
        says={"false_discovery_rate": repr(FALSE_DISCOVERY_RATE)},
        planned=later("pipeline.preflight.readiness:planned_discovery"),
        audit=later("pipeline.stages.audit_releases:of_another"),
        replay=Replay(anywhere=True, afresh=True),
        remade="pipeline.stages.discover:remade",
    ),
    Stage(
        name="build_vocabulary",
        line="{added:,} new words, {size:,} in all",
        run="pipeline.stages.build_vocabulary:build_vocabulary",
        needs=("ingest_public", "discover"),
        follows=("pretrain",),
        private=("discover/words.json",),
        reads=lambda config: ("locale", "vocabulary", "discovery"),
        given=later("pipeline.stages.identity:vocabulary"),
        code=("discovery", "pretrain", "pipeline/stages", "reports/disclosure"),
        libraries=_LIBRARIES,
        replay=Replay(anywhere=True),
        remade="pipeline.stages.build_vocabulary:remade",
        asks_people=True,
    ),
    Stage(
        name="adapt",
        line="{new_words:,} new words learned from public text",
        run="pipeline.stages.public_model:adapt",
        needs=("ingest_public", "pretrain", "build_vocabulary"),
        reads=lambda config: ("seed", "model", "adapt", "pretrain.sequence_words", "runtime.device"),
        # Trained on public text, in a vocabulary that includes discovered words.
        given=later("pipeline.stages.identity:public_training"),
        code=_CODE,
        libraries=_LIBRARIES,
        device=True,
        replay=Replay(again="pipeline.stages.public_model:adapted_again", in_full=_always),
        remade="pipeline.stages.public_model:adapted_remade",
        repeated="pipeline.stages.public_model:adapted_repeated",
    ),
    Stage(
        name="count",
        line="rho {spend[rho]:.3g}",
        run="pipeline.stages.count:count",
        block="counts",
        needs=("ingest_public", "ingest_private", "build_vocabulary", "plan"),
        follows=("adapt",),
        reads=_count_reads,
        given=later("pipeline.stages.identity:counts"),
        code=("federated", "pretrain", "pipeline/stages/count.py"),
        private=_DEVICES,
        planned=COUNTS.reserved,
        says={"start_weight": repr(START_WEIGHT)},
        audit=later("pipeline.stages.audit_releases:of_another"),
        replay=Replay(),
        remade="pipeline.stages.count:remade",
    ),
    Stage(
        name="fine_tune",
        line="{rounds:,} rounds of {report_goal:,} devices",
        run="pipeline.stages.fine_tune:fine_tune",
        needs=("ingest_public", "ingest_private", "build_vocabulary", "adapt", "plan"),
        # Where the counts move the start of training.
        may_need=("count",),
        reads=lambda config: _TRAINING,
        sees=("runtime",),
        private=_DEVICES,
        device=True,
        planned=later("pipeline.releases.spent:planned_training"),
        replay=Replay(again="pipeline.stages.fine_tune:trained_again", in_full=_always),
        remade="pipeline.stages.fine_tune:remade",
        repeated="pipeline.stages.fine_tune:start_repeated",
    ),
    Stage(
        name="audit",
        line="{max_exposure_bits:.1f} bits of exposure at most",
        run="pipeline.stages.audit:audit",
        # Without training on devices it opens nothing.
        may_need=("ingest_public", "ingest_private", "plan", "build_vocabulary", "adapt", "fine_tune"),
        reads=lambda config: _TRAINING,
        sees=("runtime",),
        device=True,
        private=(*_DEVICES, *(f"fine_tune/{name}" for name in (KEY, *TRAINING.keeps))),
        replay=Replay(in_full=lambda config: bool(config.audit.on_twin)),
        remade="pipeline.stages.audit:remade",
        repeated="pipeline.stages.audit:attacks_repeated",
    ),
    Stage(
        name="ab_test",
        line="{top1_recall[private]:.1%} of next words right, the start {top1_recall[start]:.1%}",
        run="pipeline.stages.comparison:ab_test",
        needs=("ingest_public", "ingest_private", "build_vocabulary", "adapt", "fine_tune"),
        may_need=("plan", "count"),
        reads=lambda config: (
            *("name", "locale", "features", "seed", "model", "ab_test", "mechanism", "counts", "evaluation"),
            "private_text",
            *(("local_training", "server") if config.ab_test.non_private_upper_bound else ()),
        ),
        sees=("runtime",),
        private=_DEVICES,
        device=True,
        planned=EVALUATION.reserved,
        replay=Replay(again="pipeline.stages.comparison:compared_again"),
        remade="pipeline.stages.comparison:remade",
    ),
    Stage(
        name="audit_releases",
        run="pipeline.stages.audit_releases:audit_releases",
        needs=("ingest_private",),
        may_need=(
            *("ingest_public", "plan", "discover", "build_vocabulary", "adapt", "fine_tune", "ab_test"),
            *_ASKED_FOR,
        ),
        follows=("audit", "ab_test"),
        private=(
            *(*_DEVICES, "discover/words.json"),
            *(f"{each.stage}/{name}" for each in RELEASES for name in (KEY, AUDIT, *each.keeps)),
        ),
        # No noise key may follow from the launch file, so each key is tested against the file's digest.
        reads=everything,
        device=True,
        replay=Replay(),
    ),
    Stage(
        name="decide",
        line="{decision}",
        run="pipeline.stages.decide:decide",
        needs=("discover", "fine_tune"),
        # It makes the public half of earlier stages again from their public files.
        may_need=("ingest_public", "ingest_private", "pretrain", "plan", "build_vocabulary", "adapt", *_ASKED_FOR),
        evidence=("audit", "ab_test", "audit_releases"),
        reads=everything,
        replay=Replay(again="pipeline.stages.decide:decided_again", anywhere=True),
        remade="pipeline.stages.decide:remade",
    ),
    Stage(
        name="report",
        line="{summary[0]}",
        run="pipeline.stages.report:report",
        needs=(
            *("ingest_public", "ingest_private", "pretrain", "discover", "build_vocabulary", "adapt", "fine_tune"),
            "decide",
        ),
        may_need=("plan", *_ASKED_FOR),
        evidence=("audit", "ab_test", "audit_releases"),
        reads=lambda config: (
            *("name", "locale", "features", "trust", "tuning", "reviewers", "report"),
            *("local_training", "server", "model.hidden_dim", "vocabulary.base_size", *_USES),
            "public_text.source",  # its forecast depends on what the start has read
        ),
        remade="pipeline.stages.report:remade",
    ),
    Stage(
        name="publish",
        line="{reason}",
        run="pipeline.stages.publish:publish",
        needs=("decide",),
        # An approval covers the records of all stages before it.
        may_need=(
            *("ingest_public", "ingest_private", "pretrain", "plan", "discover", "build_vocabulary", "adapt"),
            *(*_ASKED_FOR, "fine_tune", "audit", "ab_test", "audit_releases", "report"),
        ),
        # MLflow shows the launch file beside the registered model.
        reads=everything,
        replay=Replay(again="pipeline.stages.publish:exported_again"),
        remade="pipeline.stages.publish:remade",
        attests="pipeline.publication.provenance:attest",
    ),
)
STAGES: Stages = {stage.name: stage for stage in _LIST}
# Stages that may make a release under a budget.
SPENDING = tuple(stage.name for stage in _LIST if stage.spends)


def before(name: str) -> frozenset[str]:
    """Names of all stages that must end before this one, directly or not."""
    direct = (*STAGES[name].opens, *STAGES[name].follows)
    return frozenset(direct).union(*(before(other) for other in direct))


def edges() -> dict[str, list[str]]:
    """Direct predecessors of each stage: those in ``before`` that none of the others waits for.

    A stage after evidence also follows the last stage that is none: without both it has nothing to hold.
    """
    reached = {}
    for name in STAGES:
        of_both = (before(name), {other for other in before(name) if not is_evidence(other)})
        last = {each for earlier in of_both for each in earlier if not any(each in before(e) for e in earlier)}
        reached[name] = [other for other in STAGES if other in last]
    return reached


def is_evidence(name: str) -> bool:
    """Return whether a launch is held and still reported if this stage fails permanently."""
    return any(name in stage.evidence for stage in STAGES.values())


def group(name: str) -> str:
    """Name of the task group that shows a stage."""
    if is_evidence(name):
        return "evidence"
    if any(is_evidence(other) for other in before(name)):
        return "decision"
    return "private" if {name, *before(name)} & {"ingest_private"} else "public"


def for_airflow() -> list[dict[str, object]]:
    """Return the stages as JSON values for ``dags/``, which imports no other package of tacit."""
    after = edges()
    return [
        {
            "name": name,
            "group": group(name),
            "after": after[name],
            "device": stage.device,
            "whatever_fails": any(is_evidence(other) for other in after[name]),
        }
        for name, stage in STAGES.items()
    ]


def require_order(stages: Stages) -> None:
    """ValueError if a stage precedes one that it waits for, or names a stage that does not exist."""
    seen: set[str] = set()
    for name, stage in stages.items():
        if missing := [other for other in (*stage.opens, *stage.follows) if other not in seen]:
            raise ValueError(f"{name}: {', '.join(missing)} must stand before it in the list of stages")
        seen.add(name)


require_order(STAGES)

if __name__ == "__main__":
    sys.stdout.write(json.dumps(for_airflow(), indent=1) + "\n")
