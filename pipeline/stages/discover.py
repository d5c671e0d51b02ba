"""Stage ``discover``: new words under local differential privacy."""

import json

from discovery import discover as trie
from discovery.certificates.blanket import CERTIFICATE
from discovery.device.typed import TypedWords
from discovery.results import DiscoveryResult
from pipeline.stage import StageContext, StageResult
from pipeline.stages import artifacts, spends
from pretrain import text
from pretrain.files import write_text

_SAME = frozenset(("epsilon0", "messages_per_device", "device_level_epsilon0", "epsilon_attack", "delta"))
_LAYER = ("pass_number", "layer", "domain", "noise", "word_votes", "kept", "finished", "clones", "blanket", "attack")


class Discover(StageResult):
    """The words' guarantee; the words are in ``words.json``."""

    words_found: int
    epsilon0: float
    messages_per_device: int
    device_level_epsilon0: float
    epsilon_central: float
    epsilon_clones: float
    epsilon_attack: float
    delta: float
    certificate: str
    layers: list[dict]


def discover(ctx: StageContext) -> Discover:
    """New words from train devices, each of which randomises its own messages."""
    base = artifacts.vocabulary(ctx, "ingest_public")
    found = trie.discover(
        TypedWords.gather(artifacts.store(ctx).device_words("train")),
        known_words=frozenset(base.words),
        alphabet=text.alphabet(ctx.config.locale),
        config=ctx.config.discovery,
        key=ctx.key,
        directory=ctx.private / "layers",
        progress=artifacts.progress(ctx),
        processes=ctx.config.runtime.discovery_processes,
    )
    write_text(ctx.public / "words.json", json.dumps([word.model_dump() for word in found.words], indent=1) + "\n")
    note = f"local; central {found.epsilon_blanket:.4g} at delta {found.delta:g} by the privacy blanket"
    return Discover(
        words_found=len(found.words),
        epsilon_central=found.epsilon_blanket,
        epsilon_clones=found.epsilon_central,
        certificate=CERTIFICATE,
        layers=_layers(found),
        curve=[{"step": step} | row for step, row in enumerate(_layers(found), start=1)],
        spend=spends.discovery(found.epsilon0, note),
        **{name: getattr(found, name) for name in _SAME},
    )


def _layers(found: DiscoveryResult) -> list[dict]:
    """Rows that may be shown: messages rounded down to whole tens of devices."""
    tens = 10 * found.messages_per_device
    return [
        {name: getattr(row, name) for name in _LAYER} | {"messages": row.messages // tens * tens} for row in found.rows
    ]
