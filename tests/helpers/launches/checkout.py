"""The files of this checkout."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def tracked() -> list[Path]:
    """Files that belong to the repository, also those not yet committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / line for line in listing.splitlines() if (ROOT / line).is_file()]
