"""A witness: it cosigns a log's checkpoints, and none that is behind or beside one that it cosigned.

    python -m pipeline.ledger.log.witness FOLDER             answer the request on standard input, and end
    python -m pipeline.ledger.log.witness FOLDER --port N    serve C2SP's tlog-witness on loopback

Its folder holds its own key (``witness-1.pem``), the public keys of the log that it knows (``ledger-1.pub.pem``) and,
for each log, the last checkpoint that it cosigned. Whoever restores a ledger, its log and MLflow to an older state
together does not restore this folder, as long as another person keeps it: that is all that a witness is for.

It imports little but ``cryptography`` and the log's own formats, and takes a tenth of a second of CPU a request.
"""

import argparse
import base64
import fcntl
import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from pipeline.ground.errors import PERMANENT, TEMPORARY, KeyUnusable, exit_code
from pipeline.ground.keys import require_private
from pipeline.ledger.log import merkle
from pipeline.ledger.log.note import MOST_BYTES, Checkpoint, Signed, cosign
from pretrain.files import remove_leavings, write_text

NAME = "tacit/witness"
PATH = "/add-checkpoint"
OK, BAD, FORBIDDEN, UNKNOWN, CONFLICT, UNPROVEN = 200, 400, 403, 404, 409, 422
_MOST_PROOF = 63


@dataclass(frozen=True)
class Answer:
    """Answer to a request: a status of HTTP, and a body."""

    status: int
    body: str


def file_of(origin: str) -> str:
    """Name of a witness' file with the last checkpoint that it cosigned of a log."""
    return f"{hashlib.sha256(origin.encode()).hexdigest()[:16]}.checkpoint"


class Witness:
    """A witness' folder.

    Args:
      folder: holds its key and the log's public keys, as ``pipeline.ground.keys`` names them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add_checkpoint(self, request: str) -> Answer:
        """Answer a request of C2SP's tlog-witness with cosignatures, or with the reason for none.

        Guarantee: a checkpoint is cosigned only if it continues the last one that was cosigned of the same log, which
        is replaced before the answer, and no other process comes in between.
        """
        try:
            old, proof, signed = _parsed(request)
        except ValueError as error:
            return Answer(BAD, f"{error}\n")
        head = signed.checkpoint
        if not signed.is_signed_by(self._log_keys()):
            return Answer(FORBIDDEN, f"no signature of a key of {head.origin} that this witness knows\n")
        if old > head.size:
            return Answer(BAD, "the old size is above the checkpoint's\n")
        with (self.folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            remove_leavings(self.folder, below=False)
            last = self._last(head.origin)
            if old != last.size:
                return Answer(CONFLICT, f"{last.size}\n")
            if head.size == last.size and head.root != last.root:
                return Answer(CONFLICT, f"{last.size}\n")
            if not merkle.is_consistent(last.size, last.root, head.size, head.root, proof):
                return Answer(UNPROVEN, "the proof does not lead from the last cosigned checkpoint to this one\n")
            write_text(self._file(head.origin), signed.note)
        return Answer(OK, cosign(head, NAME, self._key(), int(time.time())) + "\n")

    def _last(self, origin: str) -> Checkpoint:
        path = self._file(origin)
        if not path.is_file():
            return Checkpoint(origin, 0, merkle.EMPTY)
        return Signed.parsed(path.read_text(encoding="utf-8")).checkpoint

    def _file(self, origin: str) -> Path:
        return self.folder / file_of(origin)

    def _log_keys(self) -> list[bytes]:
        made = (load_pem_public_key(path.read_bytes()) for path in sorted(self.folder.glob("ledger-*.pub.pem")))
        return [key.public_bytes_raw() for key in made if isinstance(key, Ed25519PublicKey)]

    def _key(self) -> Ed25519PrivateKey:
        newest = max(self.folder.glob("witness-*.pem"), key=_number, default=None)
        if newest is None or not _number(newest):
            raise KeyUnusable(f"{self.folder / 'witness-1.pem'}: missing; restore the witness' folder")
        require_private(newest)
        key = load_pem_private_key(newest.read_bytes(), None)
        assert isinstance(key, Ed25519PrivateKey), f"{newest}: no Ed25519 key"
        return key


def request(old: int, proof: Sequence[bytes], signed: Signed) -> str:
    """A request to cosign a checkpoint."""
    lines = [f"old {old}", *(base64.b64encode(each).decode() for each in proof), ""]
    return "".join(f"{line}\n" for line in lines) + signed.note


def _parsed(text: str) -> tuple[int, list[bytes], Signed]:
    head, blank, note = text.partition("\n\n")
    first, *lines = head.split("\n")
    word, _, size = first.partition(" ")
    if word != "old" or not blank or not size.isdecimal() or str(int(size)) != size or len(lines) > _MOST_PROOF:
        raise ValueError("not an old size, a proof and a checkpoint")
    return int(size), [base64.b64decode(line, validate=True) for line in lines], Signed.parsed(note)


def _number(path: Path) -> int:
    digits = path.name.removeprefix("witness-").removesuffix(".pem")
    return int(digits) if digits.isdecimal() else 0


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != PATH or not length.isdecimal() or int(length) > MOST_BYTES:
            answer = Answer(UNKNOWN if self.path != PATH else BAD, "POST a checkpoint to /add-checkpoint\n")
        else:
            body = self.rfile.read(int(length)).decode("utf-8", "replace")
            answer = self.server.witness.add_checkpoint(body)
        content = answer.body.encode()
        self.send_response(answer.status)
        kind = "text/x.tlog.size" if answer.status == CONFLICT else "text/plain; charset=utf-8"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        """Say that the witness is there, for who watches services."""
        self.send_response(OK if self.path == "/health" else UNKNOWN)
        self.send_header("Content-Length", "0")
        self.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, witness: Witness) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.witness = witness


def main() -> None:
    """Answer one request, or serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, help="serve on this port of loopback; without it, answer standard input")
    options = parser.parse_args()
    witness = Witness(options.folder)
    if options.port is not None:
        _Server(options.port, witness).serve_forever()
    try:
        answer = witness.add_checkpoint(sys.stdin.read(MOST_BYTES))
    except Exception as error:
        if (code := exit_code(error)) is None:
            raise
        sys.exit(f"{error}" if code == PERMANENT else TEMPORARY)
    sys.stdout.write(f"{answer.status}\n{answer.body}")


if __name__ == "__main__":
    main()
