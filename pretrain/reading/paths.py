"""Reader of external paths, with their text and JSON.

What is no ordinary file of a bearable size is refused before it is opened: a pipe would wait for ever, a device
would never end. Every error names the field, the path and the fix, and is a ``ValueError`` unless a retry can help.
"""

import errno
import glob
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Errors of the file system that persist until a person changes the path.
LASTING = frozenset(
    (
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM),
        *(errno.EINVAL, errno.EEXIST, errno.EROFS, errno.EILSEQ, errno.ENOTEMPTY, errno.ENXIO, errno.ENODEV),
    )
)
MOST_JSON_BYTES = 1 << 28
_MOST_SHOWN = 120
# Folders of file systems that hold no text: their files have no size, and some wait or go on for ever.
KERNEL = (("proc",), ("sys",))
_MAGIC = re.compile(r"[*?[]")
# Logs of tables, beside or above their files.
LOGS = ("_delta_log", "metadata")
_TABLES = {
    re.compile(r"(.*)/_delta_log/[^/]*\.json"): "Delta",
    re.compile(r"(.*)/metadata/[^/]*\.metadata\.json"): "Iceberg",
}
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def shown(value: object) -> str:
    """Text for one line of an error: short, and without characters that would break the line or a terminal."""
    text = str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}... ({len(text):,} characters)"


def kind_of(value: object) -> str:
    """Kind and length of a value of people's data, for errors, which never show the value itself."""
    match value:
        case None | bool():
            return "null" if value is None else "true or false"
        case int() | float():
            return "a number"
        case str():
            return f"text of {len(value):,} characters"
        case _:
            return f"a {'list' if isinstance(value, list) else type(value).__name__} of {len(value):,}"  # type: ignore[arg-type]


def require_file(path: Path, field: str, hint: str, most_bytes: int | None = None) -> Path:
    """The path, if an ordinary file is there that this user can read.

    Args:
      field: source of the path, for errors.
      hint: the fix, as in ``give the path of the list``.

    Raises:
      ValueError: nothing is there, or no ordinary file, or one above ``most_bytes``.
      OSError: the disk does not answer.
    """
    about = _about(path, field, hint)
    kind = stat.S_IFMT(about.st_mode)
    if kind != stat.S_IFREG:
        raise ValueError(f"{field}: {shown(path)} is {_KINDS.get(kind, 'no ordinary file')}, not a file; {hint}")
    if path.resolve().parts[1:2] in KERNEL:
        raise ValueError(f"{field}: {shown(path)} is a file of the kernel, which may never end; {hint}")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{field}: {shown(path)} may not be read by this user; change its mode or owner")
    if most_bytes is not None and about.st_size > most_bytes:
        raise ValueError(
            f"{field}: {shown(path)} has {about.st_size:,} bytes, and at most {most_bytes:,} are read; {hint}"
        )
    return path


def as_glob(path: Path) -> tuple[Path, str]:
    """The part of a path that exists, taken as it is, and the path as a glob in its rest alone."""
    there = next((each for each in (path, *path.parents) if os.path.lexists(each)), Path(path.anchor))
    return there, str(Path(glob.escape(str(there))) / path.relative_to(there))


def require_walkable(pattern: str, field: str) -> None:
    """Check that a glob walks no whole machine and no file system of the kernel, where a match may never come.

    Raises:
      ValueError: its first folder is one of them.
    """
    magic = _MAGIC.search(pattern)
    if magic is None:
        return
    folder = Path(os.path.dirname(pattern[: magic.start()])).resolve()  # noqa: PTH120 - of a text
    if folder.parts[1:2] in KERNEL or (folder == Path("/") and "**" in pattern):
        raise ValueError(
            f"{field}: {shown(repr(pattern))} looks through {folder}; begin it with the folder of the text"
        )


def is_data(parts: Iterable[str]) -> bool:
    """Return whether no name below a glob's folder is one that systems give to files of their own, as ``_SUCCESS``."""
    return not any(part.startswith(("_", ".")) and part != ".." for part in parts)


def require_no_table(names: Iterable[str], field: str) -> None:
    """Refuse a table whose log is among these files: it may have removed rows that the files beside it still hold.

    Raises:
      ValueError: with the way to export the table.
    """
    for name in names:
        for log, kind in _TABLES.items():
            if table := log.fullmatch(name):
                raise ValueError(
                    f"{field}: {shown(table[1])} is a table of {kind}, whose log may have removed rows that its files "
                    f"still hold; export it by spark.read.format({kind.lower()!r}).load(TABLE).write.parquet(FOLDER), "
                    "and name the export"
                )


def require_folder(path: Path, field: str, hint: str) -> Path:
    """The path, if a folder is there.

    Raises:
      ValueError: nothing is there, or no folder.
      OSError: the disk does not answer.
    """
    if not stat.S_ISDIR(_about(path, field, hint).st_mode):
        raise ValueError(f"{field}: {shown(path)} is no folder; {hint}")
    return path


def _about(path: Path, field: str, hint: str) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        if error.errno not in LASTING:
            raise
        why = "does not exist" if error.errno == errno.ENOENT else f"cannot be opened ({error.strerror})"
        raise ValueError(f"{field}: {shown(path)} {why}; {hint}") from error
    except ValueError as error:  # a null character
        raise ValueError(f"{field}: {shown(path)} is no path ({error}); {hint}") from error


def read_text(path: Path, field: str, hint: str, most_bytes: int) -> str:
    """The whole of a UTF-8 file.

    Raises:
      ValueError: as ``require_file``, or not UTF-8.
      OSError: the disk does not answer.
    """
    content = require_file(path, field, hint, most_bytes).read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{field}: {shown(path)} is not UTF-8 text (byte {error.start:,}); save it as UTF-8"
        ) from error


def read_json(path: Path, field: str, hint: str, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """The value of a JSON file.

    Raises:
      ValueError: as ``read_text``, or not JSON, or nested deeper than Python reads.
      OSError: the disk does not answer.
    """
    text = read_text(path, field, hint, most_bytes)
    try:
        return json.loads(text)
    except ValueError as error:  # with a number of too many digits, too
        raise ValueError(f"{field}: {shown(path)} is not JSON ({error}); {hint}") from error
    except RecursionError as error:
        raise ValueError(f"{field}: {shown(path)} is JSON nested too deep; {hint}") from error
