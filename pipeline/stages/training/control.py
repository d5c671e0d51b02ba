"""A positive control beside every audit: canaries that were surely learnt must be found, or a pass says nothing."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from evaluation.audit.canaries import CanarySet
from evaluation.audit.memorisation import CanaryRow, completed
from evaluation.config import BEAM_WIDTH
from pipeline.launch.config import LaunchConfig
from pipeline.stages.training.twin import CONTROL_ROUNDS, train_control
from pretrain.model import KeyboardLM
from reports.disclosure.findings import ControlBlock, ControlRow

# What is not found by then, the search or the ranks cannot find.
MOST_ROUNDS = 512


def control(
    start: KeyboardLM,
    planted: CanarySet,
    config: LaunchConfig,
    attack: Callable[[KeyboardLM, CanarySet], Sequence[CanaryRow]],
    directory: Path,
) -> ControlBlock:
    """Train the canaries that the fewest devices share without noise, until those of most copies are found.

    The same words on the same devices as in the audit, clipped as always, searched for and ranked by the same code.

    Args:
      attack: what the audit does with a model and its canaries.
      directory: for checkpoints; removed at the end.

    Returns:
      What was found at the end, by copies; after ``MOST_ROUNDS`` whatever that is.
    """
    chosen, model = planted.on_fewest(), start
    for rounds in range(CONTROL_ROUNDS, MOST_ROUNDS + 1, CONTROL_ROUNDS):
        model = train_control(model, chosen, config, directory / str(rounds))
        summary = summed_up(attack(model, chosen), rounds, len(chosen.devices))
        if summary.passed:
            break
    shutil.rmtree(directory)
    return summary


def summed_up(rows: Sequence[CanaryRow], rounds: int, devices: int) -> ControlBlock:
    """Canaries found, by number of copies: completed by a search, and ranked among as many as a search lists."""
    copies = sorted({row.n_e for row in rows})
    table = []
    for n_e in copies:
        alike = [row for row in rows if row.n_e == n_e]
        completed_rows = sum(completed(row) and row.rank <= BEAM_WIDTH for row in alike)
        table.append(
            ControlRow(n_e=n_e, canaries=len(alike), found=completed_rows, worst_rank=max(row.rank for row in alike))
        )
    return ControlBlock(rounds=rounds, devices=devices, rows=tuple(table))
