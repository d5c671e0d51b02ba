"""The files of one launch: a public half that may be shown and a private half that never leaves.

    runs/<launch_id>/public/<stage>/     logged to MLflow; result.json is written last
    runs/<launch_id>/private/<stage>/    mode 0700: client data, keys, noise state, records

A file appears whole or not at all (``pretrain.files``). What a tracking server gives back replaces a file only if
it has the digest that the stage's record names. ``RunDir.record`` is the one reader of records: one counts, from here
or from the server, only if the ledger holds its digest (``pipeline.run.known``).
"""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.ground.errors import StageBusy, StageInputMissing
from pipeline.run.bookkeeping import LOCK, SEAL, differences, digests
from pretrain.files import PRIVATE, private_directory, sha256, text_sha256, write_bytes, write_text
from pretrain.reading.paths import shown

_log = logging.getLogger(__name__)
RESULT = "result.json"
GIVEN = "given"
KEY = "key"
ERASED = "erased.json"  # beside launch.json: what was erased of the private half, and when
STATE = "state.svg"  # beside launch.json: where the launch stands
ABSENT = "absent"  # in the place of a digest: the stage had not finished
KEY_BYTES = 32

# (stage, file name, destination) -> whether it was found; the file is then at the destination.
Fetch = Callable[[str, str, Path], bool]
# Whether a record counts.
Belief = Callable[["StageRecord"], bool]


class StageRecord(BaseModel):
    """``result.json``: what a finished stage says about itself. Public."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    launch_id: str
    stage: str
    config_digest: str
    inputs: dict[str, str]  # "stage/file", or "given/path" of a person's file -> digest, or ABSENT
    outputs: dict[str, str]  # file -> SHA-256
    private_outputs: bool  # whether something was left in the private folder
    private_digest: str | None = None  # SHA-256 of the manifest of the private folder, which holds a secret
    ledger: dict[str, str] = {}  # "reserve", "commit", "reuse", "result" -> hash of the ledger's entry
    started_at: str
    seconds: float
    processor: str  # that it was computed on (``settings.processor``), or several
    result: dict
    content: str | None = None  # content key of a stage (``cache``), by which other launches find it
    reused_from: str | None = None  # the launch that made it, where it was taken over


def unasked(record: StageRecord) -> bool:
    """Refuse to read a record from a folder that was opened for its paths, keys and locks alone."""
    raise ValueError(
        f"{record.launch_id}/{record.stage}: the folder was opened without a ledger to say whether its records count; "
        "open it with known.run_folder"
    )


@dataclass(frozen=True)
class RunDir:
    """Paths of one launch under ``root``; ``used`` collects the digests of the inputs a stage asked for.

    Attributes:
      believes: whether a record counts.
      fetch: brings back what was lost here, or damaged, as from MLflow.
    """

    root: Path
    launch_id: str
    believes: Belief = unasked
    fetch: Fetch | None = None
    used: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{,127}", self.launch_id):
            raise ValueError(
                f"run: {shown(repr(self.launch_id))} is not a launch id; use at most 128 letters, digits, '.', '_' and "
                "'-' ('tacit check FILE --json' prints the id of a launch file)"
            )

    @property
    def path(self) -> Path:
        """The launch's own folder."""
        return self.root / self.launch_id

    def public(self, stage: str) -> Path:
        """Folder of a stage's public files, made if missing."""
        path = self.path / "public" / stage
        path.mkdir(parents=True, exist_ok=True)
        return path

    def private(self, stage: str) -> Path:
        """Folder of a stage's private files, made if missing, readable by this user only."""
        self.path.mkdir(parents=True, exist_ok=True)
        return private_directory(private_directory(self.path / "private") / stage)

    def secret(self, stage: str) -> bytes:
        """The stage's 256-bit key, drawn from the operating system once and kept in the private folder."""
        path = self.private(stage) / KEY
        if not path.exists():
            write_bytes(path, secrets.token_bytes(KEY_BYTES), PRIVATE)
        key = path.read_bytes()
        if len(key) != KEY_BYTES:
            raise ValueError(f"{path}: {len(key)} bytes where a key has {KEY_BYTES}; restore the file")
        return key

    def left_by_devices(self, stage: str) -> bool:
        """Return whether a stage that spends left anything private but its key."""
        return any(path.name != KEY and not path.name.startswith(".") for path in self.private(stage).iterdir())

    def manifest(self, stage: str) -> dict[str, str]:
        """SHA-256 of every public file of a stage, ``result.json`` and hidden files apart; see ``digests``."""
        return {name: digest for name, digest in digests(self.public(stage)).items() if name != RESULT}

    def seal_private(self, stage: str) -> str | None:
        """Write the digests of a stage's private files beside them, with a secret; the digest of that, or None.

        Guarantee: what is published of it, one digest, tells nothing of the files: a 256-bit secret stands among what
        is hashed.
        """
        files = digests(self.private(stage))
        if not files:
            return None
        sealed = json.dumps({"secret": secrets.token_hex(KEY_BYTES), "files": files}, sort_keys=True)
        write_text(self.private(stage) / SEAL, sealed, PRIVATE)
        return text_sha256(sealed)

    def sealed(self, stage: str, names: Iterable[str]) -> dict[str, str]:
        """Digests of those private files of a stage that are, or are in, ``names``; from its seal."""
        path = self.path / "private" / stage / SEAL
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {
            name: digest
            for name, digest in files.items()
            if any(name == wanted or name.startswith(f"{wanted}/") for wanted in names)
        }

    def private_problems(self, stage: str, digest: str) -> list[str]:
        """Changes to a stage's private folder since the stage sealed it, in words."""
        path = self.path / "private" / stage / SEAL
        if not path.is_file() or sha256(path) != digest:
            return [f"{SEAL} is lost or changed"]
        sealed, files = json.loads(path.read_text(encoding="utf-8"))["files"], digests(path.parent)
        return differences(sealed, files)

    def record(self, stage: str) -> StageRecord | None:
        """Record of a finished stage, from disk or else from MLflow; None if it has not finished.

        Guarantee: a record that is not believed counts as absent, whoever wrote it. One from MLflow takes its place if
        that one is believed.

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
        """Records of all stages that have finished, as ``record`` finds them, those of one folder after another."""
        for path in sorted((self.path / "public").glob(f"*/{RESULT}")):
            if record := self.record(path.parent.name):
                yield record

    def counts(self, stage: str, record: StageRecord) -> bool:
        """True if a record is this stage's, and believed."""
        return record.stage == stage and record.launch_id == self.launch_id and self.believes(record)

    def _fetched(self, stage: str, path: Path) -> StageRecord | None:
        """The record that MLflow holds, in the place of the one here, if it is believed."""
        if self.fetch is None:
            return None
        fetched = path.with_name(f".{RESULT}.{os.getpid()}.tmp")
        try:
            if not self.fetch(stage, RESULT, fetched):
                return None
            record = read_record(fetched)
            if not self.counts(stage, record):
                _log.warning("%s/%s: the ledger does not know what MLflow holds of it", self.launch_id, stage)
                return None
            fetched.replace(path)
            return record
        except ValidationError:
            _log.warning("%s/%s: what MLflow holds is no record, so it does not count", self.launch_id, stage)
            return None
        finally:
            fetched.unlink(missing_ok=True)

    def _unknown(self, stage: str) -> str:
        return (
            f"{self.launch_id}/{stage}: {RESULT} is not what the ledger holds (it was edited, or is that of another "
            f"launch or of an older attempt), so it counts as absent; run stage {stage!r} again"
        )

    def result(self, stage: str) -> dict:
        """The result of an earlier stage.

        Raises:
          StageInputMissing: the stage has not finished.
        """
        record = self._require(stage)
        self.used[f"{stage}/{RESULT}"] = record_digest(record)
        return record.result

    def outputs(self, stage: str) -> dict[str, str]:
        """Digests of an earlier stage's public files.

        Raises:
          StageInputMissing: the stage has not finished.
        """
        return self._require(stage).outputs

    def input(self, stage: str, filename: str) -> Path:
        """A public file (or folder) of an earlier stage, fetched from MLflow by digest when missing here.

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

    def use_file(self, path: Path) -> Path:
        """A file that a person gave or wrote on, such as a blocklist: a change of it makes the stage run again."""
        name = (path.relative_to(self.path) if path.is_relative_to(self.path) else path).as_posix()
        self.used[f"{GIVEN}/{name}"] = self.given_digest(name) or sha256(path)  # which says that it is gone
        return path

    def given_digest(self, name: str) -> str | None:
        """Digest of a given file, in the private half keyed so that nobody can try what it says; None if it is gone."""
        half, _, inside = name.partition("/")
        if half == "private" and (self.path / name).is_file():
            secret = self.secret(inside.partition("/")[0])
            return hmac.digest(secret, sha256(self.path / name).encode(), hashlib.sha256).hex()
        return sha256(Path(name)) if Path(name).is_file() else None

    def available(self, stage: str, name: str, digest: str) -> bool:
        """Return whether an output is here with these bytes, after fetching it if it was lost or damaged."""
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
        """Hold a stage; the operating system lets go of it when the process ends, however it ends.

        Raises:
          StageBusy: another process holds it.
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
    """A record as it lies in a file: nobody has said yet that it counts. A ``ValidationError`` if it is none."""
    return StageRecord.model_validate_json(path.read_bytes())


def has_private_files(run: RunDir, stage: str) -> bool:
    """Return whether a stage left something in its private folder; hidden files are bookkeeping."""
    return any(not path.name.startswith(".") for path in run.private(stage).iterdir())


def record_digest(record: StageRecord) -> str:
    """SHA-256 of what a stage produced.

    Times, ledger receipts and curves are left out: a stage that is run again and produces the
    same must have the same digest, and points of a curve may carry seconds.
    """
    result = {name: value for name, value in record.result.items() if name != "curve"}
    content = {"stage": record.stage, "outputs": record.outputs, "result": result}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def receipt_digest(record: StageRecord) -> str:
    """SHA-256 of all that a record says but its receipts: what the ledger holds of it."""
    content = {name: value for name, value in record.model_dump(mode="json").items() if value is not None}
    del content["ledger"]
    return text_sha256(json.dumps(content, sort_keys=True, separators=(",", ":")))


def record_text(record: StageRecord) -> str:
    """``result.json`` as text.

    Raises:
      ArithmeticError: a number that is not finite, which JSON cannot hold and no gate can compare.
    """
    content = record.model_dump(mode="json")
    # Not every stage has all of them.
    content = {name: value for name, value in content.items() if value is not None}
    try:
        return json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except ValueError as error:
        raise ArithmeticError(f"{record.stage}: the result holds a number that is not finite: {content}") from error
