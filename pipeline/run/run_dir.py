"""The files of one launch: a public half that may be shown and a private half that never leaves.

    runs/<launch_id>/public/<stage>/     logged to MLflow; result.json is written last
    runs/<launch_id>/private/<stage>/    mode 0700: client data, keys, noise state, records
    runs/<launch_id>/launch_folder       the folder of the launch file, which differs between machines

A file appears whole or not at all (``pretrain.files``). A file from a tracking server replaces a local one only if it
has the digest that the stage's record names. ``RunDir.record`` is the only reader of records: a record counts, local or
from the server, only if the ledger holds its digest (``pipeline.run.known``).
"""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.ground.errors import StageBusy, StageInputMissing
from pipeline.run.bookkeeping import LOCK, SEAL, differences, digests
from pretrain.config import placed
from pretrain.files import PRIVATE, private_directory, sha256, text_sha256, write_bytes, write_text
from pretrain.randomness.entropy import fresh_bytes
from pretrain.reading.paths import shown

_log = logging.getLogger(__name__)
RESULT = "result.json"
GIVEN = "given"
KEY = "key"
ERASED = "erased.json"  # beside launch.json: statement of the erasure of the private half
STATE = "state.svg"  # beside launch.json: a picture of the launch's progress
ABSENT = "absent"  # in place of a digest, for a stage that had not finished
KEY_BYTES = 32

# (stage, file name, destination) -> True if the file was found and copied to the destination.
Fetch = Callable[[str, str, Path], bool]
# True if a record counts.
Belief = Callable[["StageRecord"], bool]


class StageRecord(BaseModel):
    """``result.json``: the public record of a finished stage."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    launch_id: str
    stage: str
    config_digest: str
    inputs: dict[str, str]  # "stage/file", or "given/path" of a person's file -> digest, or ABSENT
    outputs: dict[str, str]  # file -> SHA-256
    private_outputs: bool  # True if the stage left files in its private folder
    private_digest: str | None = None  # SHA-256 of the manifest of the private folder, which holds a secret
    ledger: dict[str, str] = {}  # "reserve", "commit", "reuse", "result" -> hash of the ledger's entry
    started_at: str
    seconds: float
    processor: str  # of the computation (``settings.processor``), or several
    result: dict
    content: str | None = None  # content key of a stage (``cache``), by which other launches find it
    reused_from: str | None = None  # the launch that made the outputs, if they are reused


def unasked(record: StageRecord) -> bool:
    """Refuse records in a folder that was opened only for its paths, keys and locks."""
    raise ValueError(
        f"{record.launch_id}/{record.stage}: the folder was opened without a ledger to check its records; open it "
        "with known.run_folder"
    )


@dataclass(frozen=True)
class RunDir:
    """Paths of one launch under ``root``; ``used`` collects the digests of the inputs that a stage opened.

    Attributes:
      believes: returns True for a record that counts.
      fetch: restores lost or damaged files, as from MLflow.
      folder: of the launch file, from which its paths are meant; None if no launch file's path is looked at.
    """

    root: Path
    launch_id: str
    believes: Belief = unasked
    fetch: Fetch | None = None
    folder: Path | None = None
    used: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{,127}", self.launch_id):
            raise ValueError(
                f"run: {shown(repr(self.launch_id))} is not a launch id; use at most 128 letters, digits, '.', '_' and "
                "'-' ('tacit check FILE --json' prints the id of a launch file)"
            )

    @property
    def path(self) -> Path:
        """Folder of the launch."""
        return self.root / self.launch_id

    def folder_of(self, stage: str) -> Path:
        """Folder of the launch that holds a stage's files: this one."""
        return self.path

    def public(self, stage: str) -> Path:
        """Folder of a stage's public files, created if missing."""
        path = self.path / "public" / stage
        path.mkdir(parents=True, exist_ok=True)
        return path

    def private(self, stage: str) -> Path:
        """Folder of a stage's private files, created if missing, readable by this user only."""
        self.path.mkdir(parents=True, exist_ok=True)
        return private_directory(private_directory(self.path / "private") / stage)

    def secret(self, stage: str) -> bytes:
        """The stage's 256-bit key, drawn from the operating system once and kept in the private folder."""
        path = self.private(stage) / KEY
        if not path.exists():
            write_bytes(path, fresh_bytes(KEY_BYTES), PRIVATE)
        key = path.read_bytes()
        if len(key) != KEY_BYTES:
            raise ValueError(f"{path}: {len(key)} bytes, but a key has {KEY_BYTES}; restore the file")
        return key

    def left_by_devices(self, stage: str) -> bool:
        """Return whether a spending stage left private files other than its key."""
        return any(path.name != KEY and not path.name.startswith(".") for path in self.private(stage).iterdir())

    def manifest(self, stage: str) -> dict[str, str]:
        """SHA-256 of every public file of a stage except ``result.json`` and hidden files; see ``digests``."""
        return {name: digest for name, digest in digests(self.public(stage)).items() if name != RESULT}

    def seal_private(self, stage: str) -> str | None:
        """Seal a stage's private files: write their digests and a secret beside them, and return the seal's digest.

        Guarantee: the published digest reveals nothing about the files, as a 256-bit secret is part of the hash.
        """
        files = digests(self.private(stage))
        if not files:
            return None
        sealed = json.dumps({"secret": fresh_bytes(KEY_BYTES).hex(), "files": files}, sort_keys=True)
        write_text(self.private(stage) / SEAL, sealed, PRIVATE)
        return text_sha256(sealed)

    def unseal_private(self, stage: str) -> None:
        """Remove the seal of an earlier attempt, before the files under it change."""
        (self.private(stage) / SEAL).unlink(missing_ok=True)

    def sealed(self, stage: str, names: Iterable[str]) -> dict[str, str]:
        """Digests, from the seal, of a stage's private files that are named, or are in a folder named, in ``names``."""
        path = self.path / "private" / stage / SEAL
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {
            name: digest
            for name, digest in files.items()
            if any(name == wanted or name.startswith(f"{wanted}/") for wanted in names)
        }

    def private_problems(self, stage: str, digest: str) -> list[str]:
        """List changes to a stage's private folder since the stage sealed it, as messages."""
        path = self.path / "private" / stage / SEAL
        if not path.is_file() or sha256(path) != digest:
            return [f"{SEAL} is lost or changed"]
        sealed, files = json.loads(path.read_text(encoding="utf-8"))["files"], digests(path.parent)
        return differences(sealed, files)

    def record(self, stage: str) -> StageRecord | None:
        """Read the record of a finished stage, from disk or else from MLflow; None if it has not finished.

        Guarantee: a record that ``believes`` refuses counts as absent, from any source. One from MLflow replaces it if
        ``believes`` accepts that one.

        Raises:
          ValueError: it is damaged, and MLflow has no other.
        """
        path, damaged = self.path / "public" / stage / RESULT, None
        try:
            record = read_record(path)
            if self.counts(stage, record):
                return record
            _log.warning("%s", self._unknown(stage))
        except FileNotFoundError:
            pass
        except ValidationError as error:
            damaged = error
        fetched = self._fetched(stage, path)
        if fetched is None and damaged:
            raise ValueError(f"{path}: not a stage record; delete it and run the stage again") from damaged
        return fetched

    def records(self) -> Iterator["StageRecord"]:
        """Yield the records of all finished stages, as ``record`` reads them, folder by folder."""
        public = self.path / "public"
        # Not by a glob: in Python 3.12 it opens folders that a stage has not declared.
        for folder in sorted(public.iterdir()) if public.is_dir() else ():
            if (folder / RESULT).is_file() and (record := self.record(folder.name)):
                yield record

    def counts(self, stage: str, record: StageRecord) -> bool:
        """True if a record belongs to this stage and launch, and ``believes`` accepts it."""
        return record.stage == stage and record.launch_id == self.launch_id and self.believes(record)

    def _fetched(self, stage: str, path: Path) -> StageRecord | None:
        """Fetch MLflow's record over the local one, if ``believes`` accepts it."""
        if self.fetch is None:
            return None
        fetched = path.with_name(f".{RESULT}.{os.getpid()}.tmp")
        try:
            if not self.fetch(stage, RESULT, fetched):
                return None
            record = read_record(fetched)
            if not self.counts(stage, record):
                _log.warning("%s/%s: the record in MLflow does not match the ledger", self.launch_id, stage)
                return None
            fetched.replace(path)
            return record
        except ValidationError:
            _log.warning("%s/%s: the file in MLflow is not a valid record, so it does not count", self.launch_id, stage)
            return None
        finally:
            fetched.unlink(missing_ok=True)

    def _unknown(self, stage: str) -> str:
        return (
            f"{self.launch_id}/{stage}: {RESULT} does not match the ledger (it was edited, or is that of another "
            f"launch or of an older attempt), so it counts as absent; run stage {stage!r} again"
        )

    def result(self, stage: str) -> dict:
        """Return the result of an earlier stage.

        Raises:
          StageInputMissing: the stage has not finished.
        """
        record = self._require(stage)
        self.used[f"{stage}/{RESULT}"] = record_digest(record)
        return record.result

    def optional(self, stage: str) -> dict:
        """Return a stage's result; empty if it has not finished."""
        try:
            return self.result(stage)
        except StageInputMissing:
            # Recorded as absent: once the stage finishes, results made without it no longer hold.
            self.used[f"{stage}/{RESULT}"] = ABSENT
            return {}

    def outputs(self, stage: str) -> dict[str, str]:
        """Digests of an earlier stage's public files.

        Raises:
          StageInputMissing: the stage has not finished.
        """
        return self._require(stage).outputs

    def input(self, stage: str, filename: str) -> Path:
        """Path of a public file (or folder) of an earlier stage, fetched from MLflow by digest if it is missing.

        Raises:
          StageInputMissing: the stage has not finished, wrote no such file, or its bytes are lost.
        """
        record = self._require(stage)
        names = [name for name in record.outputs if name == filename or name.startswith(filename + "/")]
        if not names:
            wrote = ", ".join(record.outputs) or "nothing"
            raise StageInputMissing(f"{self.launch_id}: stage {stage!r} wrote no {filename!r}; it wrote {wrote}")
        for name in names:
            if not self.available(stage, name, record.outputs[name]):
                raise StageInputMissing(
                    f"{self.launch_id}: {stage}/{name} with SHA-256 {record.outputs[name][:12]}... is neither on this "
                    f"machine nor in MLflow; run stage {stage!r} again"
                )
            self.used[f"{stage}/{name}"] = record.outputs[name]
        return self.path / "public" / stage / filename

    def use_file(self, path: Path, written: str = "") -> Path:
        """Record a person's file, such as a blocklist, as an input, so that a change makes the stage run again.

        Args:
          written: the path in the launch file, if it stands there.
        """
        name = written or (path.relative_to(self.path) if path.is_relative_to(self.path) else path).as_posix()
        keyed = self.given_digest(name) if path.is_relative_to(self.path) else None
        self.used[f"{GIVEN}/{name}"] = keyed or sha256(path)  # ``sha256`` raises if the file is gone
        return path

    def given_digest(self, name: str) -> str | None:
        """Digest of a person's file; keyed in the private half, so that it reveals no content. None if it is gone."""
        half, _, inside = name.partition("/")
        if half == "private" and (self.path / name).is_file():
            secret = self.secret(inside.partition("/")[0])
            return hmac.digest(secret, sha256(self.path / name).encode(), hashlib.sha256).hex()
        path = Path(placed(name, self.folder))
        return sha256(path) if path.is_file() else None

    def available(self, stage: str, name: str, digest: str) -> bool:
        """Return whether an output exists with this digest, after fetching it if it was lost or damaged."""
        path = self.path / "public" / stage / name
        if path.is_file() and sha256(path) == digest:
            return True
        if self.fetch is None:
            return False
        fetched = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            if not self.fetch(stage, name, fetched) or sha256(fetched) != digest:
                return False
            fetched.replace(path)
        finally:
            fetched.unlink(missing_ok=True)
        return True

    @property
    def erased(self) -> bool:
        """True if the private half was erased on purpose (``pipeline.verify``)."""
        return (self.path / "public" / "launch" / ERASED).is_file()

    @contextmanager
    def lock(self, stage: str) -> Iterator[None]:
        """Lock a stage; the operating system releases the lock when the process ends for any reason.

        Raises:
          StageBusy: another process holds the lock.
        """
        path = self.private(stage) / LOCK
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                raise StageBusy(
                    f"{self.launch_id}: stage {stage!r} is being run by process {file.read().strip() or '?'}; "
                    "wait for it or stop it"
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def _require(self, stage: str) -> StageRecord:
        record = self.record(stage)
        if record is None:
            there = (self.path / "public" / stage / RESULT).is_file()
            unfinished = f"{self.launch_id}: stage {stage!r} has not finished; run it first"
            raise StageInputMissing(self._unknown(stage) if there else unfinished)
        return record


def read_record(path: Path) -> StageRecord:
    """Parse a record without checking that it counts; raises ``ValidationError`` for an invalid one."""
    return StageRecord.model_validate_json(path.read_bytes())


def has_private_files(run: RunDir, stage: str) -> bool:
    """Return whether a stage left visible files in its private folder; hidden ones are bookkeeping."""
    return any(not path.name.startswith(".") for path in run.private(stage).iterdir())


def record_digest(record: StageRecord) -> str:
    """SHA-256 of a stage's result and outputs.

    Times, ledger receipts and curves are left out: a rerun with the same outputs must have the same
    digest, and points of a curve may hold seconds.
    """
    result = {name: value for name, value in record.result.items() if name != "curve"}
    content = {"stage": record.stage, "outputs": record.outputs, "result": result}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def receipt_digest(record: StageRecord) -> str:
    """SHA-256 of a record without its receipts: the digest that the ledger holds."""
    content = {name: value for name, value in record.model_dump(mode="json").items() if value is not None}
    del content["ledger"]
    return text_sha256(json.dumps(content, sort_keys=True, separators=(",", ":")))


def record_text(record: StageRecord) -> str:
    """``result.json`` as text.

    Raises:
      ArithmeticError: a number is not finite; JSON cannot hold it, and no gate can compare it.
    """
    content = record.model_dump(mode="json")
    # Optional fields: not every stage has all of them.
    content = {name: value for name, value in content.items() if value is not None}
    try:
        return json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except ValueError as error:
        raise ArithmeticError(f"{record.stage}: the result holds a number that is not finite: {content}") from error
