"""Opened files as the kernel reports them: also those that a library opens by itself, in C or Rust.

A group of fanotify needs no privilege and tells this process' opens from others', whose process it hides. It needs
Linux 5.13, and a file system with handles; the usual system call filter of containers forbids it.
"""

import ctypes
import errno
import logging
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger(__name__)
# Flags of <sys/fanotify.h>: closed on exec, not blocking, events name folder and file.
_GROUP = 0x1 | 0x2 | 0xC00
_ADD, _THE_LINK_ITSELF, _HERE = 0x1, 0x4, -100
_OPEN, _OF_ITS_FILES, _LOST = 0x20, 0x0800_0000, 0x4000
_EVENT, _HANDLE = struct.Struct("=IBBHQii"), struct.Struct("=BBH8sIi")


@dataclass(frozen=True)
class Watch:
    """Opens by any code of this process, of files and of all files in folders, from its making to ``ended``.

    Attributes:
      group: a descriptor; negative where the kernel watches nothing for this process.
    """

    group: int

    def ended(self) -> list[str]:
        """Return the names of opened files, without their folders; the watch ends.

        Raises:
          OSError: the kernel dropped events, as of too many files at once.
        """
        names, data = list[str](), b""
        while self.group >= 0:
            try:
                data = os.read(self.group, 1 << 16)
            except BlockingIOError:
                os.close(self.group)
                break
            while data:
                length, _, _, start, mask, _, pid = _EVENT.unpack_from(data)
                if mask & _LOST:
                    os.close(self.group)
                    raise OSError(errno.EOVERFLOW, "too many files are opened at once to watch them; run it again")
                if pid == os.getpid():
                    *_, handle, _ = _HANDLE.unpack_from(data, start)
                    name = data[start + _HANDLE.size + handle : length].partition(b"\0")[0]
                    names.append(os.fsdecode(name))
                data = data[length:]
        return names


def watch(paths: Iterable[str]) -> Watch:
    """Watch files, and all files in folders (but not in folders below these)."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        group = libc.fanotify_init(_GROUP, os.O_RDONLY)
    except (AttributeError, OSError):  # another system
        return Watch(-1)
    missed = "" if group >= 0 else os.strerror(ctypes.get_errno())
    for path in paths if group >= 0 else ():
        mask = ctypes.c_uint64(_OPEN | (_OF_ITS_FILES if Path(path).is_dir() else 0))
        if libc.fanotify_mark(group, _ADD | _THE_LINK_ITSELF, mask, _HERE, os.fsencode(path)):
            # What is gone, and what this user may not read, is opened by nobody.
            number = ctypes.get_errno()
            missed = missed if number in (errno.ENOENT, errno.EACCES) else os.strerror(number)
    if missed:
        _log.warning("files that libraries open by themselves are not seen here: %s", missed)
    return Watch(group)
