"""Who has not the secret is neither heard nor believed, and nothing is heard twice."""

import hmac
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.hosts import messages
from pretrain.randomness.noise import seeded_key

SECRET, OTHER = seeded_key(1), seeded_key(2)
MAC = 32


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Address of something that serves one connection."""

    def one() -> None:
        connection, _ = server.accept()
        with connection:
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=one)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()


def answered(content: bytes, mac: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content + mac


def test_a_question_is_answered() -> None:
    def echo(connection: socket.socket) -> None:
        question, asked = messages.question_on(connection, SECRET)
        messages.answer_on(connection, {"heard": question["ask"]}, asked, SECRET)

    with serving(echo) as address:
        assert messages.ask(address, {"ask": "hello"}, SECRET) == {"heard": "hello"}


def test_who_has_not_the_secret_is_not_heard() -> None:
    refusals: list[str] = []

    def hear(connection: socket.socket) -> None:
        try:
            messages.question_on(connection, SECRET)
        except OSError as error:
            refusals.append(str(error))

    with serving(hear) as address, pytest.raises(ConnectionError):
        messages.ask(address, {"ask": "hello"}, OTHER)
    assert refusals == ["a question of somebody without the secret"]


def test_who_has_not_the_secret_is_not_believed() -> None:
    def pretend(connection: socket.socket) -> None:
        connection.sendall(bytes(32))
        connection.recv(1 << 16)
        connection.sendall(answered(b'{"state": "ended", "code": 0}', bytes(MAC)))

    with serving(pretend) as address, pytest.raises(OSError, match="not of an agent with this installation's"):
        messages.ask(address, {"ask": "poll"}, SECRET)


def test_a_question_that_was_overheard_is_not_heard_again() -> None:
    """The same bytes on another connection meet another challenge."""
    overheard: list[bytes] = []

    def between(connection: socket.socket) -> None:
        connection.sendall(bytes(32))
        overheard.append(connection.recv(1 << 16))

    with serving(between) as address, pytest.raises(ConnectionError):
        messages.ask(address, {"ask": "cancel"}, SECRET)
    left, right = socket.socketpair()
    with left, right:
        left.sendall(overheard[0])
        with pytest.raises(OSError, match="somebody without the secret"):
            messages.question_on(right, SECRET)


def test_an_answer_that_was_overheard_is_not_believed_again() -> None:
    """Not even to the same question, asked again under the same challenge."""
    answers: list[bytes] = []

    def repeat(connection: socket.socket) -> None:
        connection.sendall(bytes(32))
        asked = connection.recv(1 << 16)[-MAC:]
        content = b'{"state": "running"}'
        answers.append(answered(content, hmac.digest(SECRET, b"answer|" + asked + content, "sha256")))
        connection.sendall(answers[0])

    with serving(repeat) as address:
        assert messages.ask(address, {"ask": "poll"}, SECRET) == {"state": "running"}
    with serving(repeat) as address, pytest.raises(OSError, match="not of an agent"):
        messages.ask(address, {"ask": "poll"}, SECRET)


def test_the_secret_is_drawn_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / messages.SECRET_FILE
    first = messages.shared_secret(tmp_path)
    assert messages.shared_secret(tmp_path) == first == path.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == [messages.SECRET_FILE]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(ValueError, match="others than its owner may read it"):
        messages.shared_secret(tmp_path)


@pytest.mark.parametrize(
    "address", ["198.51.100.1", "198.51.100.1:", ":7117", "198.51.100.1:99999", "198.51.100.1:http"]
)
def test_an_address_names_host_and_port(address: str) -> None:
    with pytest.raises(ValueError, match="is no address of an agent"):
        messages.place(address)
