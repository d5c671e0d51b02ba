"""The first spend of a launch, refused where anything that is known by then speaks against the launch."""

from pipeline.ground.errors import StageInputMissing
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend
from pipeline.preflight.rehearsed import require_worth
from pipeline.preflight.shortfalls import of_file, parameters
from pipeline.releases.central_words import CENTRAL_WORDS
from pipeline.releases.policy import above_policy
from pipeline.releases.release import Outlook
from pipeline.releases.uses import planned
from pipeline.run.run_dir import RunDir
from pretrain.vocabulary import load as load_vocabulary


def planned_discovery(config: LaunchConfig, run: RunDir) -> Spend:
    """Cost to a device of a central discovery, or of a local one's messages among as few as its smallest layer has.

    The first spend of a launch: words for a model that a rehearsal found not worth training are not asked for. The plan
    knew no vocabulary yet, by which devices are shared out among layers, so the one number is held against its ceiling
    again.

    Raises:
      ValueError: a rehearsal of exactly this run says that it does not pay, or the one number would pass its ceiling.
      StageInputMissing: the plan, which knows every refusal that can be known, has not been made.
    """
    require_worth(config, run.root)
    plan = run.record("plan")
    if plan is None:
        raise StageInputMissing(f"{run.launch_id}: stage 'plan' has not finished; it comes before anything is spent")
    _require_parameters(config, run)
    if CENTRAL_WORDS.asked(config):
        return CENTRAL_WORDS.paid(config, {})
    devices = run.result("ingest_private")["devices_by_split"]["train"]
    known_words = load_vocabulary(run.input("ingest_public", "vocabulary.json")).words
    spends = planned(config, Outlook(plan.result["rho"], devices, known_words))
    if problems := above_policy(config, spends, devices, known_words):
        raise ValueError("\n".join((*problems, "nothing was spent on words")))
    return spends["discover"]


def _require_parameters(config: LaunchConfig, run: RunDir) -> None:
    """ValueError, before the first spend, if the model over the public vocabulary is too small for its audits."""
    made = run.record("ingest_public")
    if made is None:  # Then the stage itself refuses, for the same words.
        return
    words = made.result.get("vocabulary_size", config.vocabulary.base_size)
    if lines := of_file(config, parameters(config, words)):
        raise ValueError("\n".join(lines))
