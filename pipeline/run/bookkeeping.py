"""List of the hidden files that the pipeline keeps in a stage's folder, and digests of the visible files.

A hidden file is no output: no record names it, no seal covers it, and it is never logged. ``verify`` reports a hidden
file that is not on this list.
"""

from collections.abc import Mapping
from pathlib import Path

from pretrain import progress
from pretrain.files import sha256

LOCK = ".lock"  # held while the stage runs
ATTEMPT, ATTEMPT_LOCK = ".attempt", ".attempt.lock"  # the newest attempt's number (``run.fence``)
FAILED = ".failed.json"  # error of a worker
STOPPED = ".stopped"  # end of the last attempt, if it failed
OUTCOME = ".outcome.json"  # a finished computation, until its record is written
SEAL = ".manifest.json"  # digests of the stage's private files
AUDIT = "audit.json"  # the cited audit of a reused release
CONTENT = ".content"  # the content key by which launches share a stage's outputs
PROCESSORS = ".processors"  # processors of all attempts at the stage (``settings.processor``)
PLANTED = ".planted.json"  # canaries that training planted
WINDOW = ".window.json"  # retention window of the text beside it
PARTS = ".parts"  # folder of text that several workers read, until it is merged

# Files of any stage, finished or not. They hold nothing private, and nothing to verify.
TRACES = frozenset({LOCK, ATTEMPT, ATTEMPT_LOCK, FAILED, STOPPED, OUTCOME, WINDOW, PROCESSORS, progress.FILE})
# Hidden files that a finished stage may leave; its private files are sealed.
_FINISHED = TRACES | {SEAL, CONTENT, PLANTED}
# Caches of device tokens as a vocabulary's ids; readers write them, and may remove them.
_MAPPED = "ingest_private/store/.encoded-*.bin"


def is_known(path: Path, folder: Path) -> bool:
    """True for a hidden file that a finished stage may leave, in the stage's ``folder`` or in its store."""
    return (path.parent == folder and path.name in _FINISHED) or path.match(_MAPPED)


def is_in_progress(path: Path) -> bool:
    """True for a path that a running stage leaves in its folder: unfinished files, parts of text."""
    return path.parts[0] == PARTS or any(part.startswith(".") and part.endswith(".tmp") for part in path.parts)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder except unfinished and hidden ones, by relative path.

    Raises:
      ValueError: a symbolic link, which could carry private bytes out.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise ValueError(f"{path}: an output must be a file, not a symbolic link; copy the file")
        name = path.relative_to(folder).as_posix()
        hidden = any(part.startswith(".") for part in name.split("/"))  # unfinished files are hidden too
        if path.is_file() and not hidden:
            files[name] = sha256(path)
    return files


def is_same(path: Path, digest: str) -> bool:
    """Return whether a file exists with these bytes."""
    return path.is_file() and not path.is_symlink() and sha256(path) == digest


def differences(recorded: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """List files that were changed, lost or added, as messages; both arguments map paths to digests."""
    changed = [f"{name} was changed" for name in recorded if present.get(name, recorded[name]) != recorded[name]]
    lost = [f"{name} is lost" for name in recorded if name not in present]
    return changed + lost + [f"{name} was added" for name in present if name not in recorded]
