"""Ask the log's witness to cosign its checkpoint: by HTTP, or a process of its own that answers and ends."""

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from pipeline.ground.errors import TEMPORARY, LedgerTampered, PermanentError, ServiceUnavailable
from pipeline.ledger.log import witness
from pipeline.ledger.log.note import MOST_BYTES, Signed
from pipeline.ledger.log.tiles import WITNESSED, Log
from pipeline.ledger.log.witness import Answer

_SECONDS = 60
_TURNS = 2  # a witness that cosigned an older or a later checkpoint than is kept here says so once
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it belongs to this installation: no proxy


def cosigned(log: Log, where: str | Path, keys: Sequence[bytes]) -> Signed:
    """Have a log's checkpoint cosigned, and keep it so; within ``log.writing``.

    Args:
      where: the witness' address, or its folder.
      keys: the witness' public keys, 32 bytes each.

    Raises:
      LedgerTampered: the witness has cosigned a log that this one does not continue.
      PermanentError: the witness does not know this log, or its answer is not signed by its key.
      ServiceUnavailable: it does not answer.
    """
    signed, last = log.checkpoint(), log.checkpoint(WITNESSED)
    assert signed is not None, "a log that is witnessed has a checkpoint"
    signed = signed.by(signed.checkpoint.origin)  # one cosignature: each states a time
    head, old = signed.checkpoint, last.checkpoint.size if last else 0
    for _ in range(_TURNS):
        answer = _ask(where, witness.request(old, log.consistency(old, head.size), signed))
        if answer.status != witness.CONFLICT or not answer.body.strip().isdecimal() or int(answer.body) == old:
            break
        forgot, old = int(answer.body) < old, int(answer.body)
        if forgot:
            raise LedgerTampered(
                f"the witness {_named(where)} remembers {old} entries and results of this privacy ledger, and it has "
                f"cosigned {last.checkpoint.size if last else 0}: its folder was wiped or put back to "
                "an older state, so that it would notice no such ledger. Restore its folder, or let its keeper "
                f"copy {log.root / WITNESSED} there as {witness.file_of(head.origin)}"
            )
        if old > head.size:
            raise LedgerTampered(
                f"the witness {_named(where)} has cosigned the log of this privacy ledger at {old} entries, "
                f"and its log {log.root} ends after {head.size}: both were restored from an older state, or "
                "somebody else writes to another copy. Restore the newest ledger and the newest log"
            )
    if answer.status in (witness.CONFLICT, witness.UNPROVEN):
        raise LedgerTampered(
            f"the witness {_named(where)} has cosigned other entries of this privacy ledger than the first {old} in "
            f"its log {log.root}: the ledger or its log was rewritten. Restore both from a backup"
        )
    if answer.status != witness.OK:
        raise PermanentError(
            f"the witness {_named(where)} does not cosign the checkpoint in {log.root}: {answer.body.strip()}. Copy "
            "the public keys of the ledger (ledger-N.pub.pem in TACIT_KEYS) to the witness' folder"
        )
    made = signed.with_lines(answer.body.splitlines())
    if made.cosigned_at(witness.NAME, keys) is None:
        raise PermanentError(
            f"the answer of {_named(where)} is not cosigned by the witness' key: copy its witness-N.pub.pem to "
            "TACIT_KEYS if it was rotated, or set TACIT_WITNESS to the witness of this installation"
        )
    log.keep(made, WITNESSED)
    log.keep(made)
    return made


def _named(where: str | Path) -> str:
    return f"at {where}" if isinstance(where, str) else f"in {where}"


def _ask(where: str | Path, body: str) -> Answer:
    return posted(where, body) if isinstance(where, str) else own_process(where, body)


def own_process(folder: Path, body: str) -> Answer:
    """Answer of a witness in a process of its own, which ends."""
    command = [sys.executable, "-m", witness.__name__, str(folder)]
    root = str(Path(__file__).parents[3])
    try:
        done = subprocess.run(
            command, input=body, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=root
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailable(f"the witness in {folder} does not answer within {_SECONDS} s") from error
    if done.returncode == TEMPORARY or done.returncode < 0:
        raise ServiceUnavailable(f"the witness in {folder} (TACIT_WITNESS) could not answer: its disk, or a signal")
    status, _, answer = done.stdout.partition("\n")
    if done.returncode or not status.isdecimal():
        last = (done.stderr.strip().splitlines() or ["it ended without an answer"])[-1]
        raise PermanentError(f"the witness in {folder} (TACIT_WITNESS) failed: {last}")
    return Answer(int(status), answer)


def posted(address: str, body: str) -> Answer:
    """Answer of a witness that serves HTTP."""
    asked = urllib.request.Request(f"{address}{witness.PATH}", data=body.encode())
    try:
        with _OPENER.open(asked, timeout=_SECONDS) as answer:
            return Answer(answer.status, answer.read(MOST_BYTES).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read(MOST_BYTES).decode("utf-8", "replace"))
    except OSError as error:
        raise ServiceUnavailable(f"the witness at {address} (TACIT_WITNESS) does not answer: {error}") from error
