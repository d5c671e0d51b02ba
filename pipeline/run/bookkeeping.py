"""Hidden files that the pipeline keeps in a stage's folder, the one list; and digests of the files that are not.

A hidden file is no output: no record names it, no seal covers it, and it is never logged. A name that is not on this
list was written by somebody else, and ``verify`` says so.
"""

from collections.abc import Mapping
from pathlib import Path

from pretrain import progress
from pretrain.files import sha256

LOCK = ".lock"  # held while the stage runs
ATTEMPT, ATTEMPT_LOCK = ".attempt", ".attempt.lock"  # the newest attempt's number (``run.fence``)
FAILED = ".failed.json"  # what a worker met
STOPPED = ".stopped"  # how the last try ended, where it ended badly
OUTCOME = ".outcome.json"  # a computation that ended, until its record is written
SEAL = ".manifest.json"  # digests of the stage's private files
AUDIT = "audit.json"  # of a release that was taken over, the audit that is cited
CONTENT = ".content"  # the content key by which launches share what a stage made
PROCESSORS = ".processors"  # those that the attempts at the stage ran on (``settings.processor``)
PLANTED = ".planted.json"  # canaries that training planted
WINDOW = ".window.json"  # the last day for which the text beside it may be kept
PARTS = ".parts"  # folder of text that several workers read, until it is joined

# Of whichever stage, finished or not. They hold nothing of anybody's, and nothing that could be verified.
TRACES = frozenset({LOCK, ATTEMPT, ATTEMPT_LOCK, FAILED, STOPPED, OUTCOME, WINDOW, PROCESSORS, progress.FILE})
# What a finished stage may leave; besides, its private files are sealed.
_FINISHED = TRACES | {SEAL, CONTENT, PLANTED}
# Tokens of devices in a vocabulary's ids; whoever maps them writes them, and may remove them.
_MAPPED = "ingest_private/store/.encoded-*.bin"


def is_known(path: Path, folder: Path) -> bool:
    """True for a hidden file that a finished stage may leave, in the stage's ``folder`` or in its store."""
    return (path.parent == folder and path.name in _FINISHED) or path.match(_MAPPED)


def is_in_progress(path: Path) -> bool:
    """True for a path in a stage's folder that work under way leaves: unfinished files, parts of text."""
    return path.parts[0] == PARTS or any(part.startswith(".") and part.endswith(".tmp") for part in path.parts)


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


def is_same(path: Path, digest: str) -> bool:
    """Return whether a file is there and has these bytes."""
    return path.is_file() and not path.is_symlink() and sha256(path) == digest


def differences(recorded: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Files that were changed, lost or added, in words; from path to digest, as recorded and as present."""
    changed = [f"{name} was changed" for name in recorded if present.get(name, recorded[name]) != recorded[name]]
    lost = [f"{name} is lost" for name in recorded if name not in present]
    return changed + lost + [f"{name} was added" for name in present if name not in recorded]
