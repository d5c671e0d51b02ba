"""The tree of a transparency log as a folder of tiles, in the format of C2SP (tlog-tiles).

    checkpoint              size and root of the tree, signed (``note``)
    witnessed               the last checkpoint that the witness cosigned
    tile/0/000              hashes of 256 leaves; tile/1/000 the roots of 256 such tiles, and so on
    tile/entries/000        the leaves' contents, each after its length in two bytes
    tile/0/000.p/7          a tile of 7 hashes, as of a tree of that size; gone once the tile is full

Guarantee: a tile of a checkpoint is written before the checkpoint, and never changed. After a crash the tiles may be
ahead of the checkpoint, and the next call writes the same ones.
"""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path

from pipeline.ground.errors import LedgerTampered, PermanentError
from pipeline.ledger.log import merkle
from pipeline.ledger.log.note import Signed
from pretrain.files import remove_leavings, write_bytes, write_text

WIDTH, _LEVELS, _HASH_BYTES, _LENGTH_BYTES = 256, 8, 32, 2
CHECKPOINT, WITNESSED = "checkpoint", "witnessed"
_ENTRIES = "entries"


class Log:
    """A log's folder, which a web server could serve as it lies.

    Args:
      root: the folder; it need not exist.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def checkpoint(self, name: str = CHECKPOINT) -> Signed | None:
        """Read the log's checkpoint, or the last that was witnessed; None without one.

        Raises:
          PermanentError: the file is damaged.
        """
        path = self.root / name
        try:
            return Signed.parsed(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise PermanentError(
                f"{path}: damaged, so the ledger cannot be held against it; restore it from a backup ({error})"
            ) from error

    @property
    def size(self) -> int:
        """Number of leaves of the checkpoint."""
        signed = self.checkpoint()
        return signed.checkpoint.size if signed else 0

    def keep(self, signed: Signed, name: str = CHECKPOINT) -> None:
        """Write a checkpoint, whose tiles are there."""
        write_text(self.root / name, signed.note)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude every other writer of this folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            remove_leavings(self.root)
            yield

    def require_undamaged(self) -> int:
        """Return the checkpoint's size, after checking what a longer tree grows from.

        Guarantee: the tiles give the root of the checkpoint, and the last entries are those of its hashes.

        Raises:
          LedgerTampered: they do not.
        """
        signed, size = self.checkpoint(), self.size
        last = [merkle.leaf_hash(each) for each in _entries(self._tile(_ENTRIES, size // WIDTH, size))]
        whole = signed is None or self.root_at(size, size) == signed.checkpoint.root
        if not whole or last != self._hashes(size, 0, size // WIDTH):
            raise LedgerTampered(
                f"{self.root}: its tiles are not those of its checkpoint, so nothing is signed over them; set the "
                "folder aside, and the next command makes it again from the ledger"
            )
        return size

    def extend(self, size: int, leaves: Sequence[bytes]) -> bytes:
        """Write the tiles of further leaves, and return the tree's root; the caller writes the checkpoint.

        Args:
          size: number of leaves before these.
          leaves: their contents.
        """
        lengthened = [len(leaf).to_bytes(_LENGTH_BYTES, "big") + leaf for leaf in leaves]
        self._append(_ENTRIES, size, lengthened)
        level, begin, hashes = 0, size, [merkle.leaf_hash(leaf) for leaf in leaves]
        while hashes:
            full = self._append(str(level), begin, hashes)
            level, begin = level + 1, begin // WIDTH
            hashes = [merkle.root_of(_cut(tile)) for tile in full]
        return self.root_at(size + len(leaves), size + len(leaves))

    def damaged(self, leaves: Sequence[bytes], hashes: Sequence[bytes]) -> Iterator[Path]:
        """List the tiles that are not those of the checkpoint's leaves.

        Args:
          leaves: their contents.
          hashes: their hashes.

        Raises:
          PermanentError: a tile is gone.
        """
        levels = {_ENTRIES: [len(leaf).to_bytes(_LENGTH_BYTES, "big") + leaf for leaf in leaves]}
        items = list(hashes)
        while items:
            levels[str(len(levels) - 1)] = items
            full = len(items) // WIDTH
            items = [merkle.root_of(items[at * WIDTH : (at + 1) * WIDTH]) for at in range(full)]
        for level, items in levels.items():
            for number in range(-(-len(items) // WIDTH)):
                expected = b"".join(items[number * WIDTH : (number + 1) * WIDTH])
                if self._tile(level, number, len(items)) != expected:
                    yield self.path(level, number)

    def _append(self, level: str, begin: int, items: Sequence[bytes]) -> list[bytes]:
        """Write the tiles of a level that further items fill or begin; return the full ones among them."""
        full, content, count = [], self._tile(level, begin // WIDTH, begin), begin % WIDTH
        for number, item in enumerate(items, start=begin + 1):
            content, count = content + item, count + 1
            if count == WIDTH:
                path = self.path(level, (number - 1) // WIDTH)
                write_bytes(path, content)
                shutil.rmtree(_partial(path, 0).parent, ignore_errors=True)
                full.append(content)
                content, count = b"", 0
        if count:
            write_bytes(_partial(self.path(level, (begin + len(items)) // WIDTH), count), content)
        return full

    def root_at(self, size: int, of: int) -> bytes:
        """Root of the tree of the first ``size`` leaves, read from the tiles of a tree of ``of`` leaves."""
        return merkle.subtree(self.nodes(of), 0, size)

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Proof that the tree of ``old`` leaves begins the one of ``new``, which has a checkpoint."""
        return merkle.consistency(self.nodes(new), old, new)

    def inclusion(self, place: int, size: int) -> list[bytes]:
        """Proof that the tree of ``size`` leaves, which has a checkpoint, has its leaf at ``place``."""
        return merkle.inclusion(self.nodes(size), place, size)

    def leaves(self, size: int) -> Iterator[bytes]:
        """Contents of the first ``size`` leaves, in order, of a tree of that size."""
        for number in range(-(-size // WIDTH)):
            yield from _entries(self._tile(_ENTRIES, number, size))

    def nodes(self, size: int) -> merkle.Nodes:
        """Hashes of complete subtrees, read from the tiles of a tree of a size."""
        read = lru_cache(maxsize=None)(partial(self._hashes, size))

        @cache
        def node(level: int, index: int) -> bytes:
            if level % _LEVELS == 0:
                return read(level // _LEVELS, index // WIDTH)[index % WIDTH]
            return merkle.node_hash(node(level - 1, 2 * index), node(level - 1, 2 * index + 1))

        return node

    def _hashes(self, size: int, level: int, number: int) -> list[bytes]:
        return _cut(self._tile(str(level), number, size // WIDTH**level))

    def _tile(self, level: str, number: int, count: int) -> bytes:
        """A tile of a level that has ``count`` items; empty if it has none.

        Raises:
          PermanentError: it is gone.
        """
        width = min(count - number * WIDTH, WIDTH)
        if width <= 0:
            return b""
        path = self.path(level, number)
        for each in (path, _partial(path, width)) if width < WIDTH else (path,):
            if each.is_file():
                return _first(each.read_bytes(), width, level)
        raise PermanentError(f"{path}: missing, so the ledger cannot be held against its log; restore it from a backup")

    def path(self, level: str, number: int) -> Path:
        """File of a full tile, or of a bundle of entries."""
        digits = f"{number:03d}"
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
        return self.root.joinpath("tile", level, *(f"x{part}" for part in parts[:-1]), parts[-1])


def _partial(path: Path, width: int) -> Path:
    return path.with_name(f"{path.name}.p") / str(width)


def _first(tile: bytes, width: int, level: str) -> bytes:
    """The first items of a tile, which is full where a crash left it ahead of the checkpoint."""
    if level != _ENTRIES:
        return tile[: width * _HASH_BYTES]
    return tile[: sum(_LENGTH_BYTES + len(each) for each in islice(_entries(tile), width))]


def _entries(tile: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(tile):
        length = int.from_bytes(tile[at : at + _LENGTH_BYTES], "big")
        at += _LENGTH_BYTES + length
        yield tile[at - length : at]


def _cut(tile: bytes) -> list[bytes]:
    return [tile[at : at + _HASH_BYTES] for at in range(0, len(tile), _HASH_BYTES)]
