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
from reports.disclosure.findings import DiscoveryGuarantee, DiscoveryLayer


class Discover(StageResult, DiscoveryGuarantee):
    """The words' guarantee; the words are in ``words.json``."""


def discover(ctx: StageContext) -> Discover:
    """New words from train devices, each of which randomises its own messages."""
    base = artifacts.vocabulary(ctx, "ingest_public")
    found = trie.discover(
        TypedWords.gather(artifacts.store(ctx).device_words("train")),
        known_words=frozenset(base.words),
        alphabet=text.alphabet(ctx.config.locale),
        config=ctx.config.discovery,
        key=ctx.noise_key,
        directory=ctx.private / "layers",
        progress=artifacts.progress(ctx),
        processes=ctx.config.runtime.discovery_processes,
    )
    write_text(ctx.public / "words.json", json.dumps([word.model_dump() for word in found.words], indent=1) + "\n")
    note = f"local; central {found.epsilon_blanket:.4g} at delta {found.delta:g} by the privacy blanket"
    layers = _layers(found)
    return Discover(
        words_found=len(found.words),
        epsilon0=found.epsilon0,
        messages_per_device=found.messages_per_device,
        device_level_epsilon0=found.device_level_epsilon0,
        epsilon_central=found.epsilon_blanket,
        epsilon_clones=found.epsilon_central,
        epsilon_attack=found.epsilon_attack,
        delta=found.delta,
        certificate=CERTIFICATE,
        layers=layers,
        curve=tuple({"step": step} | row.model_dump() for step, row in enumerate(layers, start=1)),
        spend=spends.discovery(found.epsilon0, note),
    )


def _layers(found: DiscoveryResult) -> tuple[DiscoveryLayer, ...]:
    """Rows that may be shown: messages rounded down to whole tens of devices."""
    tens = 10 * found.messages_per_device
    rows = [row.model_dump() | {"messages": row.messages // tens * tens} for row in found.rows]
    return tuple(DiscoveryLayer.model_validate(row, extra="ignore") for row in rows)
