"""Signed notes and cosignatures as their specifications print them."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pipeline.ledger.log import merkle
from pipeline.ledger.log.note import COSIGNATURE, ED25519, Checkpoint, Signed, cosign, parsed_key, sign, verifier_key

KEY, OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(32))), Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC, PUBLIC_OTHER = (key.public_key().public_bytes_raw() for key in (KEY, OTHER))
HEAD = Checkpoint("example.com/behind-the-sofa", 20852163, bytes.fromhex("0a") * 32)


def signed() -> Signed:
    return Signed(HEAD, (sign(HEAD, PUBLIC, KEY.sign),))


def test_the_example_of_tlog_checkpoint_reads_back():
    note = (
        "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
        "\N{EM DASH} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1g"
        "GzGku9nTo+zyWE+xeMcTOAYQ8=\n"
    )
    parsed = Signed.parsed(note)
    assert (parsed.checkpoint.origin, parsed.checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert parsed.note == note
    assert not parsed.is_signed_by([PUBLIC]), "a line of an unknown key is ignored"


def test_only_the_log_s_key_signs_and_only_a_witness_cosigns():
    made = signed()
    assert made.is_signed_by([PUBLIC_OTHER, PUBLIC])
    assert not made.is_signed_by([PUBLIC_OTHER])
    line = cosign(HEAD, "witness", OTHER, 1679315147)
    both = Signed.parsed(made.with_lines([line]).note)
    assert both.is_signed_by([PUBLIC])
    assert both.cosigned_at("witness", [PUBLIC_OTHER]) == 1679315147
    assert both.cosigned_at("witness", [PUBLIC]) is None
    assert both.cosigned_at("another", [PUBLIC_OTHER]) is None
    assert made.cosigned_at("witness", [PUBLIC_OTHER]) is None
    later = made.with_lines([line.replace("witness ", "witness ")[:-8] + "AAAAAAA="])
    assert later.cosigned_at("witness", [PUBLIC_OTHER]) is None


def test_a_signature_of_a_checkpoint_is_no_cosignature_of_it():
    """Whoever may sign the log is no witness of it: the two have other types, and sign other texts."""
    as_witness = sign(Checkpoint("witness", HEAD.size, HEAD.root), PUBLIC, KEY.sign)
    assert signed().with_lines([as_witness]).cosigned_at("witness", [PUBLIC]) is None


@pytest.mark.parametrize(
    "changed",
    [Checkpoint(HEAD.origin, HEAD.size - 1, HEAD.root), Checkpoint(HEAD.origin, HEAD.size, merkle.EMPTY)],
)
def test_a_changed_head_is_signed_by_nobody(changed: Checkpoint):
    lines = (*signed().lines, cosign(HEAD, "witness", OTHER, 1))
    forged = Signed(changed, lines)
    assert not forged.is_signed_by([PUBLIC])
    assert forged.cosigned_at("witness", [PUBLIC_OTHER]) is None


@pytest.mark.parametrize(
    "note",
    [
        "",
        "o\n1\n",
        "o\n01\n" + "A" * 43 + "=\n\n\N{EM DASH} o AAAA\n",
        "o\n1\nAAAA\n\n\N{EM DASH} o AAAA\n",
        "o\n1\n" + "A" * 43 + "=\nmore\n\n\N{EM DASH} o AAAA\n",
        "o\n1\n" + "A" * 43 + "=\n\n- o AAAA\n",
        "o\n1\n" + "A" * 43 + "=\n\n\N{EM DASH} o AAAA",
        "\n1\n" + "A" * 43 + "=\n\n\N{EM DASH} o AAAA\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(note: str):
    with pytest.raises(ValueError, match="not a checkpoint"):
        Signed.parsed(note)


def test_a_verifier_key_of_another_tool_is_read_and_written_back():
    text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"  # of Go's documentation of notes
    name, key = parsed_key(text)
    assert (name, len(key)) == ("PeterNeumann", 32)
    assert verifier_key(name, ED25519, key) == text
    assert parsed_key(verifier_key("a/witness", COSIGNATURE, PUBLIC)) == ("a/witness", PUBLIC)


@pytest.mark.parametrize(
    "text",
    [
        "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "JohnNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10T",
        "PeterNeumann",
    ],
)
def test_a_key_whose_id_or_name_is_another_is_none(text: str):
    with pytest.raises(ValueError, match=r"not a verifier key|Incorrect padding|not enough values"):
        parsed_key(text)
