"""Files that the running work may open: an audit hook refuses every other file below guarded folders.

The threat is a wrong line of this project, not malice. The hook sees files that Python opens, lists, links or moves,
and SQLite databases, in every thread; ``processes.pool`` gives the rule to its processes. What a library opens by
itself in C or Rust (Arrow, safetensors) the kernel tells afterwards (``pretrain.opens``), of this process and of files
in folders that stood when the work began. Neither sees another program.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pretrain import opens

_LISTS = ("os.listdir", "os.scandir")
# Audit events whose first argument is a path that is read; copies open their source.
_READS = ("open", "sqlite3.connect", "os.link", "os.rename", *_LISTS)


@dataclass(frozen=True)
class Access:
    """Guarded files and folders, and those of them that a piece of work may open.

    Attributes:
      who: the work, for messages.
      guarded, allowed: real paths, each with everything below it.
      refused: paths that were refused, as a caller may have caught the error.
    """

    who: str
    guarded: frozenset[str]
    allowed: frozenset[str]
    refused: list[str] = field(default_factory=list, compare=False)

    def forbids(self, real: str, listing: bool) -> bool:
        """Return whether a path may not be opened; a folder above an allowed one may be listed."""
        above = {real, *map(str, Path(real).parents)}
        if self.guarded.isdisjoint(above) or not self.allowed.isdisjoint(above):
            return False
        return not (listing and any(each.startswith(real + os.sep) for each in self.allowed))

    def error(self, path: str) -> PermissionError:
        """Return the refusal of a file."""
        return PermissionError(errno.EACCES, f"{self.who} does not declare that it opens this file", path)

    def apart(self) -> Iterator[str]:
        """Yield guarded folders that hold nothing allowed, those below them too, and other files that it forbids."""
        yield from (top for top in self.guarded if self.forbids(top, listing=False) and not Path(top).is_dir())
        for top in self.guarded:
            for folder, below, files in os.walk(top):
                if self.forbids(folder, listing=True):
                    yield folder
                elif self.forbids(folder, listing=False):
                    yield from (path for file in files if self.forbids(path := f"{folder}/{file}", listing=False))
                else:
                    below.clear()


# Of this process, which works on one stage at a time; its threads inherit no context.
_standing: list[Access] = []


@contextmanager
def confined(access: Access) -> Iterator[Access]:
    """Refuse every file that ``access`` forbids, in addition to the rules of the work around it.

    Raises:
      PermissionError: from the call that opens a forbidden file, or at the end if it was not Python that opened it.
    """
    _watch()
    # Work within other work is watched by the rule of that one, which forbids to look around here.
    watch = None if _standing else opens.watch(access.apart())
    _standing.append(access)
    try:
        yield access
    finally:
        _standing.remove(access)
        if watch is not None and (seen := watch.ended()):
            access.refused.extend(seen)
            raise access.error(seen[0])


def standing() -> tuple[Access, ...]:
    """Return the rules of the running work, for processes that it starts."""
    return tuple(_standing)


def adopt(accesses: tuple[Access, ...]) -> None:
    """Obey the rules of the process that started this one, until the end."""
    if accesses:
        _watch()
        _standing.extend(accesses)


@cache
def _watch() -> None:
    sys.addaudithook(_refuse)


def _refuse(event: str, given: tuple[object, ...]) -> None:
    if not _standing or event not in _READS or not given or not isinstance(given[0], str | bytes | os.PathLike):
        return
    path = os.fsdecode(given[0])
    if event == "sqlite3.connect":
        path = path.removeprefix("file:").partition("?")[0]
    real = os.path.realpath(path)
    for access in _standing:
        if access.forbids(real, event in _LISTS):
            access.refused.append(real)
            raise access.error(real)
