"""Objects of S3 and Google Cloud Storage as external files: found by address or glob, and read a megabyte at a time.

Credentials, region and the server's address come from the environment, as the clients of both stores read them
(``AWS_ACCESS_KEY_ID``, ``AWS_REGION``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``): no code of ours reads
or shows them, and an address that holds any is refused. Where rows are read an object stands beside a ``Path``: it has
a name, an ending, a state and an ``open``.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from pretrain.config import ADDRESS
from pretrain.reading.paths import LOGS, is_data, require_no_table, shown

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_MAGIC = re.compile(r"[*?[]")
_GLOB = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)
_BUFFER_BYTES = 1 << 20
# In Arrow's words for what no retry changes: the rest of a message may hold more than we would say.
_LASTING = {
    "ACCESS_DENIED": "may not be read with these credentials",
    "INVALID_ACCESS_KEY_ID": "may not be read with these credentials",
    "SIGNATURE_DOES_NOT_MATCH": "may not be read with these credentials",
    "NO_SUCH_BUCKET": "names a bucket that does not exist",
    "NO_SUCH_KEY": "does not exist",
    "RESOURCE_NOT_FOUND": "does not exist",
    "Status(PERMISSION_DENIED": "may not be read with these credentials",
    "Status(UNAUTHENTICATED": "may not be read with these credentials",
}
# Google's client would try for a quarter of an hour, in silence.
_SETTINGS = {"s3": "", "gs": "?retry_limit_seconds=30"}


def is_address(text: str) -> bool:
    """True if a path or glob is an address with a scheme."""
    return ADDRESS.fullmatch(text) is not None


def require_address(text: str) -> None:
    """Check an address; a path of this machine is none, and passes.

    Raises:
      ValueError: another scheme, no bucket, no key, or a login, which the message does not repeat.
    """
    found = ADDRESS.fullmatch(text)
    if found is None:
        return
    scheme, rest = found.groups()
    bucket, _, key = rest.partition("/")
    if "@" in bucket or ":" in bucket or re.search(r"[?&](access_key|secret_key|session_token)=", rest, re.IGNORECASE):
        raise ValueError(
            "an address holds a login; set it in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or "
            "GOOGLE_APPLICATION_CREDENTIALS), and write s3://BUCKET/KEY"
        )
    if scheme not in _SETTINGS:
        raise ValueError(f"{shown(text)}: {scheme}:// is not read; write a path, s3://BUCKET/KEY or gs://BUCKET/KEY")
    if not bucket or _MAGIC.search(bucket) or not key:
        raise ValueError(f"{shown(text)}: no bucket with a key; write it as in {scheme}://BUCKET/folder/*.parquet")


@dataclass(frozen=True)
class ObjectState:
    """State of an object, in the words of ``os.stat_result``."""

    st_size: int


@dataclass(frozen=True, order=True)
class StoredObject:
    """One object, by its address.

    Attributes:
      field: source of the address, for errors.
    """

    address: str
    size: int
    field: str

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]

    def stat(self) -> ObjectState:
        """State of the object when it was found."""
        return ObjectState(self.size)

    def open(self, mode: Literal["rb"]) -> BufferedReader:
        """Open the object for reading at any position, a megabyte at a time; use it within ``answering``."""
        scheme, _, path = self.address.partition("://")
        return BufferedReader(_store(scheme, path.partition("/")[0]).open_input_file(path), _BUFFER_BYTES)


def matching(pattern: str, field: str) -> Iterator[StoredObject]:
    """Objects that an address or a glob names, in the order of their addresses.

    ``*`` and ``?`` stop at a slash and ``**`` does not, as for paths.

    Raises:
      ValueError: not an address that is read, or one that may not be.
      OSError: the store does not answer.
    """
    from pyarrow.fs import FileSelector, FileType

    try:
        require_address(pattern)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error
    scheme, _, path = pattern.partition("://")
    magic = _MAGIC.search(path)
    with answering(pattern, field):
        store = _store(scheme, path.partition("/")[0])
        exact = store.get_file_info(path)
        found, folder = [exact], path.rpartition("/")[0]
        if magic is not None and exact.type != FileType.File:
            folder = path[: magic.start()].rpartition("/")[0]
            found = store.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
    wanted = _expression(path)
    files = {info.path: info.size for info in found if info.type == FileType.File}
    taken = [
        name
        for name in sorted(files)
        if name == exact.path or (wanted.fullmatch(name) and is_data(name[len(folder) + 1 :].split("/")))
    ]
    above = {parent for name in taken for parent in PurePosixPath(name).parents}
    logs = [name for name in files if PurePosixPath(name).parent.parent in above]
    top = PurePosixPath(folder)
    for parent in (top, *top.parents[:-1]) if taken else ():
        logs += table_logs(scheme, parent)
    require_no_table((f"{scheme}://{name}" for name in logs), field)
    yield from (StoredObject(f"{scheme}://{name}", files[name], field) for name in taken)


def _expression(pattern: str) -> re.Pattern[str]:
    """Regular expression of a glob."""
    simple = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = [
        simple.get(part)
        or (f"[{'^' * (part[1] == '!')}{re.escape(part[1:-1].lstrip('!'))}]" if len(part) > 2 else "")
        or re.escape(part)
        for part in _GLOB.findall(pattern)
    ]
    return re.compile("".join(parts), re.DOTALL)


@cache
def table_logs(scheme: str, folder: PurePosixPath) -> list[str]:
    """Files of tables' logs in a folder; none if these credentials may not list it, as it may be above the objects."""
    from pyarrow.fs import FileSelector

    names: list[str] = []
    for log in LOGS:
        with suppress(OSError):
            selected = FileSelector(str(folder / log), allow_not_found=True)
            names += [info.path for info in _store(scheme, folder.parts[0]).get_file_info(selected)]
    return names


@cache
def _store(scheme: str, bucket: str) -> "FileSystem":
    """Client of a bucket's store, with the environment's settings, which Arrow reads only for an address."""
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(f"{scheme}://{bucket}/{_SETTINGS[scheme]}")[0]


@contextmanager
def answering(address: str, field: str) -> Iterator[None]:
    """Report a store's errors as our own: what lasts as ValueError, the rest as OSError with a number.

    An error that no store made passes as it is.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise ValueError(f"{field}: {shown(address)} does not exist; check the address") from error
    except OSError as error:
        if error.errno is not None and not isinstance(error, PermissionError):
            raise
        text = str(error)
        for name, what in _LASTING.items():
            if name in text:
                raise ValueError(
                    f"{field}: {shown(address)} {what}; check the address, and AWS_ACCESS_KEY_ID and AWS_REGION, or "
                    "GOOGLE_APPLICATION_CREDENTIALS, in the environment"
                ) from None
        code = re.search(r"(?:AWS Error |Status\()([A-Z_]+)", text)
        if code is None:
            raise
        raise OSError(errno.EIO, f"{field}: {shown(address)}: the store does not answer ({code[1]})") from None
