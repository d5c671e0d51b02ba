"""Questions to a host's agent and its answers: one a connection, both authenticated by a secret that hosts share.

Nothing secret is in them, so they are not encrypted; what workers tell each other goes elsewhere.

Guarantee: an agent acts on a question, and whoever asked on an answer, only if somebody with the secret made it for
this very connection: the agent's challenge is in the question's HMAC-SHA256, and the question's, which holds a number
drawn for it, is in the answer's. So neither can be replayed, and an answer is to its own question.
"""

import hmac
import json
import os
import secrets
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from pretrain.files import PRIVATE, write_bytes

SECRET_FILE = "hosts.key"
ANSWER_SECONDS = 5.0
_CHALLENGE_BYTES = _MAC_BYTES = 32
_LENGTH_BYTES = 4
_MOST_BYTES = 1 << 20


def shared_secret(runs_dir: Path) -> bytes:
    """The secret of the hosts that share a folder of runs, drawn once.

    Raises:
      ValueError: others than its owner can read it, or it is no key.
    """
    path = runs_dir / SECRET_FILE
    if not path.exists():
        drawn = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        write_bytes(drawn, secrets.token_bytes(_CHALLENGE_BYTES), PRIVATE)
        with suppress(FileExistsError):  # of several that begin at once, one draws it
            os.link(drawn, path)
        drawn.unlink()
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ValueError(f"{path}: others than its owner may read it; draw another: remove it, start the agents again")
    secret = path.read_bytes()
    if len(secret) != _CHALLENGE_BYTES:
        raise ValueError(f"{path}: {len(secret)} bytes where a key has {_CHALLENGE_BYTES}; restore the file")
    return secret


def place(address: str) -> tuple[str, int]:
    """Host and port of ``198.51.100.1:7117``.

    Raises:
      ValueError: it is not that.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"host: {address!r} is no address of an agent; write it as in 198.51.100.1:7117")
    return host, int(port)


def ask(
    address: str, question: dict[str, Any], secret: bytes, timeout_seconds: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """The agent's answer.

    Raises:
      OSError: nobody answers there, or nobody with the secret.
    """
    with socket.create_connection(place(address), timeout=timeout_seconds) as connection:
        challenge = _read(connection, _CHALLENGE_BYTES)
        content = json.dumps(question | {"number": secrets.token_hex(16)}).encode()
        asked = _mac(secret, b"question", challenge, content)
        _send(connection, content, asked)
        content, answered = _receive(connection)
    if not hmac.compare_digest(answered, _mac(secret, b"answer", asked, content)):
        raise OSError(f"{address}: the answer is not of an agent with this installation's {SECRET_FILE}")
    return json.loads(content)


def question_on(connection: socket.socket, secret: bytes) -> tuple[dict[str, Any], bytes]:
    """What was asked on a connection that an agent accepted, and what its answer is bound to.

    Raises:
      OSError: it ended, or who asks has not the secret.
    """
    connection.settimeout(ANSWER_SECONDS)
    challenge = os.urandom(_CHALLENGE_BYTES)
    connection.sendall(challenge)
    content, asked = _receive(connection)
    if not hmac.compare_digest(asked, _mac(secret, b"question", challenge, content)):
        raise OSError("a question of somebody without the secret")
    return json.loads(content), asked


def answer_on(connection: socket.socket, answer: dict[str, Any], asked: bytes, secret: bytes) -> None:
    """Answer the question of a connection."""
    content = json.dumps(answer).encode()
    _send(connection, content, _mac(secret, b"answer", asked, content))


def _mac(secret: bytes, role: bytes, bound_to: bytes, content: bytes) -> bytes:
    return hmac.digest(secret, role + b"|" + bound_to + content, "sha256")


def _send(connection: socket.socket, content: bytes, mac: bytes) -> None:
    connection.sendall(len(content).to_bytes(_LENGTH_BYTES, "big") + content + mac)


def _receive(connection: socket.socket) -> tuple[bytes, bytes]:
    length = int.from_bytes(_read(connection, _LENGTH_BYTES), "big")
    if length > _MOST_BYTES:
        raise OSError(f"a message of {length} bytes, where {_MOST_BYTES} are the most")
    return _read(connection, length), _read(connection, _MAC_BYTES)


def _read(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        part = connection.recv(length - len(content))
        if not part:
            raise ConnectionError("the connection ended before the message did")
        content += part
    return bytes(content)
