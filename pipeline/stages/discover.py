"""Stage ``discover``: find OOV words under local differential privacy, or with a trusted aggregator."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from discovery import discover as search
from discovery import participation, trie
from discovery.central import select
from discovery.central.select import FILLED_SHARE, FORMS_SHARE, cut_of
from discovery.certificates.blanket import CERTIFICATE
from discovery.config import CentralConfig, TrieConfig
from discovery.device.randomizer import subset_selection
from discovery.device.typed import TypedWords
from discovery.device.votes import AddUp
from discovery.results import DiscoveryResult, FoundWord
from federated.secagg.votes import require_devices, secure_votes
from pipeline.launch.config import LaunchConfig
from pipeline.releases.central_words import central_discovery
from pipeline.releases.local_words import certified, words_of
from pipeline.run import artifacts
from pipeline.run.artifacts import WORDS
from pipeline.run.run_dir import StageRecord
from pipeline.run.stage import StageContext, StageResult
from pretrain.files import PRIVATE, text_sha256, write_text
from pretrain.randomness.noise import subkey
from pretrain.text import tokenise
from reports.disclosure.releases import CentralGuarantee, DiscoveryGuarantee, DiscoveryLayer


class Discover(StageResult, DiscoveryGuarantee):
    """Guarantee of local discovery. The words stay private until filters and reviewers accept them.

    Attributes:
      words_sha256: digest of ``words.json`` in the private folder, so that later stages notice a change of the file.
    """

    words_found: int
    words_sha256: str


class DiscoverCentral(StageResult, CentralGuarantee):
    """Device-level guarantee of central discovery, with a trusted aggregator; the words stay private likewise."""

    words_found: int
    words_sha256: str


def discover(ctx: StageContext) -> Discover | DiscoverCentral:
    """Discover OOV words on train devices."""
    typed = TypedWords.gather(artifacts.store(ctx).typed_words("train"), ctx.private)
    known = frozenset(artifacts.vocabulary(ctx, "ingest_public").words)
    if isinstance(ctx.config.discovery, CentralConfig):
        return _central(ctx, ctx.config.discovery, typed, known)
    return _local(ctx, ctx.config.discovery, typed, known)


def _central(ctx: StageContext, config: CentralConfig, typed: TypedWords, known: frozenset[str]) -> DiscoverCentral:
    """Discover words centrally: devices contribute a bounded number of words, and noisy sums are released."""
    with ctx.before_devices():
        select.require_devices(len(typed))
    discovered = select.discover(
        typed, known_words=known, config=config, key=ctx.noise_key, directory=ctx.private / "central"
    )
    return DiscoverCentral(
        words_found=len(discovered.words),
        words_sha256=write_words(ctx, discovered.words),
        **dict(central_guarantee(config, discovered.threshold)),
        spend=central_discovery(config),
    )


def central_guarantee(config: CentralConfig, threshold: float) -> CentralGuarantee:
    """Guarantee of central words, which the launch file alone decides."""
    spend = central_discovery(config)
    assert spend.rho is not None, "its unit is a device"
    return CentralGuarantee(
        noise_multiplier=config.noise_multiplier,
        words_per_device=config.words_per_device,
        threshold=threshold,
        forms_share=FORMS_SHARE,
        filled_share=FILLED_SHARE,
        rho=spend.rho,
        epsilon=spend.epsilon,
        delta=spend.delta,
        failure=spend.failure,
    )


def _local(ctx: StageContext, config: TrieConfig, typed: TypedWords, known: frozenset[str]) -> Discover:
    """Discover words locally: each device randomises its own messages."""
    secagg = ctx.config.mechanism.secagg is not None
    with ctx.before_devices():
        search.require_devices(config, len(typed))
        if secagg:
            sizes = participation.group_sizes(len(typed), config, known)
            require_devices(min(sizes))
    discovered = search.discover(
        typed,
        known_words=known,
        alphabet=tokenise.alphabet(ctx.config.locale),
        config=config,
        key=ctx.noise_key,
        directory=ctx.private / "layers",
        processes=ctx.config.runtime.workers,
        add_up=_securely(ctx, config) if secagg else None,
    )
    layers = _layers(discovered)
    return Discover(
        **_guarantee(ctx.config, config, layers, discovered.device_epsilon_central),
        words_found=len(discovered.words),
        words_sha256=write_words(ctx, discovered.words),
    )


def _guarantee(
    config: LaunchConfig, asked: TrieConfig, layers: tuple[DiscoveryLayer, ...], device_epsilon: float
) -> dict[str, Any]:
    """Guarantee, curve and spend of a local discovery with these layers.

    Args:
      device_epsilon: central epsilon of all messages of one device, in the worst layer.
    """
    guarantee = DiscoveryGuarantee(
        epsilon0=asked.epsilon0,
        messages_per_device=asked.messages_per_device,
        secure_aggregation=config.mechanism.secagg is not None,
        device_level_epsilon0=asked.messages_per_device * asked.epsilon0,
        device_epsilon_central=device_epsilon,
        honest_share=asked.honest_share,
        epsilon_central=max(row.blanket for row in layers),
        epsilon_clones=max(row.clones for row in layers),
        epsilon_attack=max(row.attack for row in layers),
        delta=asked.delta,
        certificate=CERTIFICATE,
        layers=layers,
    )
    stated = guarantee.model_dump()
    curve = [{"step": step} | row.model_dump() for step, row in enumerate(layers, start=1)]
    return stated | {"curve": curve, "spend": words_of(stated)}


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The guarantee of the stated layers, each from its number of messages; of central words, that of the file."""
    central = ctx.config.central_discovery
    if central is not None:
        return central_guarantee(central, cut_of(central).threshold).model_dump(mode="json") | {
            "spend": central_discovery(central).model_dump(mode="json")
        }
    asked = ctx.config.discovery
    assert isinstance(asked, TrieConfig), "words are found centrally or locally"
    layers: list[dict[str, Any]] = []
    for row in record.result["layers"]:
        randomizer = subset_selection(asked.epsilon0, row["domain"])
        devices = row["messages"] // asked.messages_per_device
        figures = trie.figures(randomizer, asked, devices, row["word_votes"])
        layers.append(row | {name: figures[name] for name in row.keys() & figures.keys()} | {"layer": len(layers) + 1})
    stated = record.result | {"layers": layers}
    made = tuple(DiscoveryLayer.model_validate(row) for row in layers)
    again = _guarantee(ctx.config, asked, made, certified(stated))
    return json.loads(json.dumps(again | {"spend": again["spend"].model_dump(mode="json")}))


def _securely(ctx: StageContext, config: TrieConfig) -> AddUp:
    """Return a function that sums votes by secure aggregation, with a key for each layer."""

    def add_up(votes: Iterable[np.ndarray], devices: int, items: int, stream: str) -> np.ndarray:
        key = subkey(ctx.noise_key, f"secagg votes|{stream}")
        return secure_votes(votes, devices, items, config.messages_per_device, key, ctx.config.seed)

    return add_up


def write_words(ctx: StageContext, words: Iterable[FoundWord]) -> str:
    """Write the private file of the words, and return its digest.

    Guarantee: without the stage's key the digest reveals nothing about words that were not reviewed, not even to a
    guess: the hash covers 256 bits derived from the key. A retry gives the same digest.
    """
    secret = subkey(ctx.noise_key, "digest of the words").hex()
    content = json.dumps({"secret": secret, "words": [word.model_dump() for word in words]}, indent=1) + "\n"
    write_text(ctx.private / WORDS, content, PRIVATE)
    return text_sha256(content)


def _layers(discovered: DiscoveryResult) -> tuple[DiscoveryLayer, ...]:
    """Public rows of the layers: messages are rounded down to whole tens of devices."""
    tens = 10 * discovered.messages_per_device
    rows = [row.model_dump() | {"messages": row.messages // tens * tens} for row in discovered.rows]
    return tuple(DiscoveryLayer.model_validate(row, extra="ignore") for row in rows)
