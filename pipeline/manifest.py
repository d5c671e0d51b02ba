"""Digests of the files below a folder, and how two such lists differ."""

from collections.abc import Mapping
from pathlib import Path

from pretrain.files import sha256


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder but unfinished and hidden ones, by its path from there.

    Raises:
      ValueError: a symbolic link, which could carry private bytes out.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise ValueError(f"{path}: an output must be a file, not a symbolic link; copy the file")
        name = path.relative_to(folder).as_posix()
        hidden = any(part.startswith(".") for part in name.split("/"))  # as unfinished files are
        if path.is_file() and not hidden:
            files[name] = sha256(path)
    return files


def differences(recorded: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Files that were changed, lost or added, in words; from path to digest, as recorded and as present."""
    changed = [f"{name} was changed" for name in recorded if present.get(name, recorded[name]) != recorded[name]]
    lost = [f"{name} is lost" for name in recorded if name not in present]
    return changed + lost + [f"{name} was added" for name in present if name not in recorded]
