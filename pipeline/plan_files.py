"""A plan as files: ``plan.json``, ``plan.png`` and ``plan.svg``."""

import json
from dataclasses import asdict
from pathlib import Path

from federated.config.planning import PlanningConfig
from federated.planning.proposal import Proposal, to_yaml
from federated.planning.sweep import Sweep
from pretrain.files import write_text
from reports.figures import plan as figures_plan

_AXES = {"rounds": "rounds", "report_goal": "report goal", "population_estimate": "population (devices)"}


def as_json(proposal: Proposal, swept: tuple[Sweep, ...]) -> dict:
    """Everything about a proposal as plain values, with the launch file's block as text."""
    return {
        **asdict(proposal.chosen),
        "feasible": proposal.feasible,
        "target_rho": proposal.target.rho,
        "target_epsilon": proposal.target.epsilon,
        "delta": proposal.target.delta,
        "mins": proposal.chosen.min_sep - 1,
        "timer_hours": proposal.timer_hours,
        "rehearsed": proposal.rehearsed,
        "reasons": list(proposal.reasons),
        "changes": [asdict(change) for change in proposal.changes],
        "alternatives": [asdict(row) for row in proposal.alternatives],
        "mechanism": proposal.mechanism.model_dump(mode="json", exclude_defaults=True),
        "yaml": to_yaml(proposal.mechanism),
        "sweeps": [asdict(sweep) for sweep in swept],
    }


def write(proposal: Proposal, swept: tuple[Sweep, ...], planning: PlanningConfig, directory: Path) -> list[Path]:
    """The plan's files in ``directory``; PNG and SVG show the same picture."""
    path = directory / "plan.json"
    write_text(path, json.dumps(as_json(proposal, swept), indent=1) + "\n")
    panels = [
        figures_plan.Panel(
            x_label=_AXES[sweep.over],
            at=sweep.at,
            limit=planning.max_report_goal if sweep.over == "report_goal" else None,
            curves={curve.label: curve.points for curve in sweep.curves},
        )
        for sweep in swept
    ]
    figure = figures_plan.plan_figure(panels, proposal.target.rho, proposal.chosen.rho)
    return [path, *figures_plan.write(figure, directory, "plan")]
