"""Positive control of every audit: the attack must find canaries that a model has certainly learnt."""

from collections.abc import Callable, Sequence
from pathlib import Path

from evaluation.audit.canaries import CanarySet
from evaluation.audit.memorisation import CanaryRow, completed
from evaluation.config import BEAM_WIDTH
from pipeline.launch.config import LaunchConfig
from pipeline.stages.training.twin import CONTROL_ROUNDS, train_control
from pretrain.files import remove_folder
from pretrain.model.keyboard_lm import KeyboardLM
from reports.disclosure.findings import ControlBlock, ControlRow

# Canaries that are not found by then cannot be found by the search or the ranks.
MOST_ROUNDS = 512


def control(
    start: KeyboardLM,
    planted: CanarySet,
    config: LaunchConfig,
    attack: Callable[[KeyboardLM, CanarySet, str], Sequence[CanaryRow]],
    directory: Path,
) -> ControlBlock:
    """Train without noise on the canaries with the fewest devices, until those with the most copies are found.

    It uses the audit's words and devices, its clipping, and the same code to search and rank.

    Args:
      attack: the audit's attack on a model and its canaries, with the name of the model.
      directory: for checkpoints; removed at the end.

    Returns:
      Canaries found at the end, by copies; after ``MOST_ROUNDS`` the result may be incomplete.
    """
    chosen, model = planted.on_fewest(), start
    for rounds in range(CONTROL_ROUNDS, MOST_ROUNDS + 1, CONTROL_ROUNDS):
        model = train_control(model, chosen, config, directory / str(rounds))
        summary = summed_up(attack(model, chosen, f"the control after {rounds} rounds"), rounds, len(chosen.devices))
        if summary.passed:
            break
    remove_folder(directory)
    return summary


def summed_up(rows: Sequence[CanaryRow], rounds: int, devices: int) -> ControlBlock:
    """Count the canaries found, by number of copies: completed by the search, and ranked within its list."""
    copies = sorted({row.n_e for row in rows})
    table = []
    for n_e in copies:
        alike = [row for row in rows if row.n_e == n_e]
        completed_rows = sum(completed(row) and row.rank <= BEAM_WIDTH for row in alike)
        table.append(
            ControlRow(n_e=n_e, canaries=len(alike), found=completed_rows, worst_rank=max(row.rank for row in alike))
        )
    return ControlBlock(rounds=rounds, devices=devices, rows=tuple(table))
