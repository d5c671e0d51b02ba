"""A witness cosigns what continues the last checkpoint that it cosigned and nothing else, as a server or a process."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pipeline.ground import keys
from pipeline.ground.errors import LedgerTampered, PermanentError, ServiceUnavailable
from pipeline.ground.settings import Settings
from pipeline.ledger import outside as asking
from pipeline.ledger.log import witness
from pipeline.ledger.log.note import Checkpoint, Signed, sign
from pipeline.ledger.log.tiles import WITNESSED, Log
from pipeline.ledger.log.witness import Answer, Witness
from tests.helpers.launches.installed import at
from tests.helpers.processes.ports import free_port

ORIGIN = "tacit/ledger/0123456789abcdef"


@pytest.fixture
def here(tmp_path: Path) -> Settings:
    """An installation with its keys and no ledger."""
    made = at(tmp_path)
    keys.make(made)
    return made


class Grown:
    """A log in a folder of its own, with a fork of it from any size on."""

    def __init__(self, here: Settings, folder: Path) -> None:
        self.log, self._signer = Log(folder), keys.signer(here, "ledger")
        self.leaves: list[bytes] = []

    def grow(self, *leaves: str) -> Signed:
        """Append leaves and sign the checkpoint."""
        root = self.log.extend(len(self.leaves), [leaf.encode() for leaf in leaves])
        self.leaves += [leaf.encode() for leaf in leaves]
        signed = self.signed(Checkpoint(ORIGIN, len(self.leaves), root))
        self.log.keep(signed)
        return signed

    def signed(self, head: Checkpoint) -> Signed:
        public = bytes.fromhex(self._signer.public_key.keyval["public"])
        return Signed(head, (sign(head, public, lambda text: bytes.fromhex(self._signer.sign(text).signature)),))


def public(here: Settings) -> list[bytes]:
    return [bytes.fromhex(key.keyval["public"]) for key in keys.public_keys(here, "witness")]


def ask(here: Settings, old: int, grown: Grown, signed: Signed) -> Answer:
    body = witness.request(old, grown.log.consistency(old, signed.checkpoint.size), signed)
    return Witness(Path(here.witness)).add_checkpoint(body)


def test_a_checkpoint_that_continues_the_last_is_cosigned(here: Settings, tmp_path: Path):
    grown = Grown(here, tmp_path / "log")
    for old, leaves in ((0, "abc"), (3, "de"), (5, "")):
        signed = grown.grow(*leaves)
        answer = ask(here, old, grown, signed)
        assert answer.status == witness.OK
        time_ = signed.with_lines(answer.body.splitlines()).cosigned_at(witness.NAME, public(here))
        assert time_ is not None
        assert abs(time_ - time.time()) < 100


def test_forks_rollbacks_strangers_and_jumps_are_not_cosigned(here: Settings, tmp_path: Path):
    grown = Grown(here, tmp_path / "log")
    first, second = grown.grow("a", "b", "c"), grown.grow("d")
    assert ask(here, 0, grown, second).status == witness.OK
    assert ask(here, 3, grown, first) == Answer(witness.CONFLICT, "4\n"), "a rollback"
    assert ask(here, 3, grown, second) == Answer(witness.CONFLICT, "4\n"), "an old size of its own"
    fork = Grown(here, tmp_path / "fork")
    fork.grow("a", "b", "c")
    same_size, longer = fork.grow("other"), fork.grow("more")
    assert ask(here, 4, fork, same_size) == Answer(witness.CONFLICT, "4\n")
    assert ask(here, 4, fork, longer).status == witness.UNPROVEN
    third = grown.grow("e")
    unproven = witness.request(4, [bytes(32)] * 3, third)
    assert Witness(Path(here.witness)).add_checkpoint(unproven).status == witness.UNPROVEN
    stranger = Ed25519PrivateKey.generate()
    line = sign(third.checkpoint, stranger.public_key().public_bytes_raw(), stranger.sign)
    assert ask(here, 4, grown, Signed(third.checkpoint, (line,))).status == witness.FORBIDDEN
    for body in ("", "old 4\n", "old 04\n\n" + third.note, "new 4\n\n" + third.note, "old 4\nAA!\n\n" + third.note):
        assert Witness(Path(here.witness)).add_checkpoint(body).status == witness.BAD, body
    assert ask(here, 4, grown, third).status == witness.OK, "none of these moved it"


@pytest.fixture
def served(here: Settings) -> Iterator[Callable[[Settings], str | Path]]:
    """The witness' address, as of the stack."""
    port = free_port()
    command = [sys.executable, "-m", witness.__name__, str(here.witness), "--port", str(port)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[4])
    yield lambda _: f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


@pytest.fixture(params=["process", "server"])
def where(request: pytest.FixtureRequest, here: Settings) -> str | Path:
    if request.param == "process":
        return here.witness
    return request.getfixturevalue("served")(here)


def cosigned(log: Log, where: str | Path, known: list[bytes]) -> Signed:
    """As the ledger asks, as soon as a server has started."""
    for _ in range(100):
        try:
            return asking.cosigned(log, where, known)
        except ServiceUnavailable:
            time.sleep(0.1)
    raise AssertionError("the witness does not answer")


def test_a_witness_that_was_wiped_or_put_back_is_noticed(here: Settings, tmp_path: Path):
    grown, folder = Grown(here, tmp_path / "log"), Path(here.witness)
    grown.grow("a", "b")
    cosigned(grown.log, folder, public(here))
    (kept,) = folder.glob("*.checkpoint")
    older = kept.read_bytes()
    grown.grow("c")
    cosigned(grown.log, folder, public(here))
    for state, remembers in ((older, 2), (None, 0)):
        kept.unlink() if state is None else kept.write_bytes(state)
        with pytest.raises(LedgerTampered, match=rf"remembers {remembers} entries .* cosigned 3: its folder was wiped"):
            cosigned(grown.log, folder, public(here))
    kept.write_bytes((grown.log.root / WITNESSED).read_bytes())
    cosigned(grown.log, folder, public(here))


@pytest.mark.slow
def test_the_ledger_s_log_is_cosigned_and_refused(
    here: Settings, tmp_path: Path, where: str | Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(asking, "own_process", OWN_PROCESS)
    grown = Grown(here, tmp_path / "log")
    grown.grow("a", "b")
    made = cosigned(grown.log, where, public(here))
    assert made.cosigned_at(witness.NAME, public(here)) is not None
    assert grown.log.checkpoint() == grown.log.checkpoint(WITNESSED) == made
    again = cosigned(grown.log, where, public(here))
    assert [line.split(" ")[1] for line in again.lines] == [made.checkpoint.origin, witness.NAME]
    grown.grow("c")
    (grown.log.root / WITNESSED).unlink()  # as after a restore of an older folder
    cosigned(grown.log, where, public(here))
    fork = Grown(here, tmp_path / "fork")
    fork.grow("a", "b")
    with pytest.raises(
        LedgerTampered, match=r"has cosigned the log .* at 3 .* ends after 2.*Restore the newest ledger"
    ):
        cosigned(fork.log, where, public(here))
    fork.grow("another", "d")
    with pytest.raises(LedgerTampered, match=r"has cosigned other entries .* than the first 3"):
        cosigned(fork.log, where, public(here))
    with pytest.raises(PermanentError, match="is not cosigned by the witness' key"):
        cosigned(grown.log, where, [bytes(32)])
    for path in Path(here.witness).glob("ledger-*.pub.pem"):
        path.unlink()
    with pytest.raises(PermanentError, match=r"does not cosign the checkpoint .* Copy"):
        cosigned(grown.log, where, public(here))


OWN_PROCESS = asking.own_process


@pytest.mark.slow
def test_a_witness_takes_less_than_a_third_of_a_second_of_cpu(here: Settings, tmp_path: Path):
    grown = Grown(here, tmp_path / "log")
    body = witness.request(0, [], grown.grow("a"))
    before = os.times()
    assert OWN_PROCESS(Path(here.witness), body).status == witness.OK
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 0.3


def test_a_witness_that_fails_or_is_not_there_says_so(here: Settings, tmp_path: Path):
    (Path(here.witness) / "witness-1.pem").unlink()
    body = witness.request(0, [], Grown(here, tmp_path / "log").grow("a"))
    with pytest.raises(PermanentError, match=r"the witness in .*TACIT_WITNESS\) failed: .*witness-1.pem: missing"):
        OWN_PROCESS(Path(here.witness), body)
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        asking.posted(f"http://127.0.0.1:{free_port()}", "")
