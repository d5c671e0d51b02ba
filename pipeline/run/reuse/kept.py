"""The configuration that a launch keeps beside its results."""

from pathlib import Path

from pipeline.launch.config import LaunchConfig
from pretrain.files import undamaged


def read_kept(path: Path) -> LaunchConfig:
    """Configuration that ``runner.open_run`` wrote.

    Raises:
      ValueError: damaged, gone, or with fields that this version does not know.
    """
    again = "restore it (MLflow has it too), or go on with the launch file, which writes it again"
    with undamaged(path, f"{again}; where a newer tacit wrote it, use that one"):
        return LaunchConfig.model_validate_json(path.read_bytes())
