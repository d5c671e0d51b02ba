"""A whole launch: every stage in order in this process."""

import logging
from collections.abc import Callable

from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import MAY_PUBLISH, standing
from pipeline.run import runner
from pipeline.run.stage import Stages, of_launch

_log = logging.getLogger(__name__)


def run_launch(
    config: LaunchConfig,
    run_id: str,
    settings: Settings,
    stages: Stages,
    tracker: runner.Tracker | None = None,
    on_stage: Callable[[runner.StageOutcome], None] = lambda outcome: None,
) -> dict[str, runner.StageOutcome]:
    """Every stage in order in this process; ``on_stage`` hears of each as it ends.

    Where the launch names reviewers it is published once one of them has approved its report. Where
    evidence cannot be had after the spend, the launch is held for it, its report is written all the
    same, and then the error is raised.
    """
    outcomes: dict[str, runner.StageOutcome] = {}
    failed: Exception | None = None
    evidence = {other for stage in stages.values() for other in stage.evidence}
    for name in of_launch(config, stages):
        if name == "publish" and failed:
            raise failed
        if name == "publish" and config.reviewers:
            run = runner.open_run(config, run_id, settings, tracker)
            now = standing(config, run, PrivacyLedger.of(settings).entries())
            if now.state not in MAY_PUBLISH:
                _log.warning("publish: left out, the launch is %s: %s", now.state, now.detail)
                continue
        done = runner.find_done(name, config, run_id, settings, tracker)
        try:
            outcomes[name] = done or runner.run_stage(name, config, run_id, settings, stages, tracker)
        except (PermanentError, ValueError, ArithmeticError) as error:
            if name not in evidence:
                raise failed or error from error
            _log.error("%s: %s; the launch is held without it, and reported", name, error)
            failed = failed or error
            continue
        on_stage(outcomes[name])
    return outcomes
