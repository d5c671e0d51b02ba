"""Inputs of the audit of local word discovery: typed words, the key, and discovery's saved layers; its certificate."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from discovery import participation, state
from discovery.config import TrieConfig
from discovery.device.answer import letters_of
from discovery.device.randomizer import subset_selection
from discovery.device.typed import TypedWords
from evaluation.audit.released.local_words import Layer, Rule, local_words_audit
from evaluation.audit.verdict import Verdict
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pretrain.text import tokenise

KEPT = "layers"
# What the search for a device's epsilon may add above the smallest, with a margin.
_SEARCHED = 1.01


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on a local word discovery, in the context of its stage ``discover``."""
    config = ctx.config.discovery
    assert isinstance(config, TrieConfig), "discovery was central"
    folder = ctx.private / KEPT
    typed = TypedWords.gather(artifacts.store(ctx).typed_words("train"), ctx.run.private("audit_releases"))
    published = {word.word: word.form for word in artifacts.discovered_words(ctx)}
    known = frozenset(artifacts.vocabulary(ctx, "ingest_public").words)
    rule = rule_of(config, letters_of(tokenise.alphabet(ctx.config.locale)), known)
    layers, stated = layers_of(folder), ctx.run.result("discover")
    asked = zip((row["domain"] for row in stated["layers"]), (len(layer.asked) for layer in layers), strict=True)
    on_text = local_words_audit(ctx.noise_key, layers, published, typed.of, rule)
    return (*on_text, on_certificate(config, asked, stated["device_epsilon_central"]))


def on_certificate(config: TrieConfig, asked: Iterable[tuple[int, int]], stated: float) -> Verdict:
    """Verdict on the stated epsilon of a device: no less than an explicit attack reaches.

    The certificate counts the messages that hide a device. This counts the honest devices itself, from the records of
    who was asked and the launch file, and holds an attack in the certificate's place. Both go from one message to a
    device by ``certificates.group``, so a mistake there passes both.

    Args:
      asked: of each layer, its items and the number of devices that answered.
      stated: epsilon of all messages of a device after shuffling.
    """
    from discovery.certificates.attack import attack  # scipy is slow to import
    from discovery.certificates.group import group

    size, least = config.messages_per_device, 0.0
    for items, devices in asked:
        sample, others = subset_selection(config.epsilon0, items), max(devices - devices % 10, 1) - 1
        reach = partial(attack, sample, size + size * int(config.honest_share * others))
        least = max(least, group(reach, size, config.epsilon0, config.delta))
    return Verdict(
        "certificate",
        "the stated epsilon of a device is no less than an attack on its shuffled messages reaches, among the honest "
        "devices that the launch file assumes",
        "a certificate about a tenth too low: the attack is that far from the best certificate",
        stated * _SEARCHED >= least,
        "" if stated * _SEARCHED >= least else "an attack reaches a larger epsilon than is stated",
    )


def layers_of(folder: Path) -> list[Layer]:
    """Load the finished layers of a discovery."""
    records = participation.read(folder)
    layers: list[Layer] = []
    devices, asked_in = records["device"].to_numpy(), records["layer"].to_numpy()
    while (left := state.load(folder, len(layers) + 1)) is not None:
        number = left.row.layer
        words = frozenset(word.word for word in left.words)
        asked, votes_d = devices[asked_in == number], state.votes(folder, number)
        layers.append(Layer(asked, votes_d, left.row.messages, left.prefixes, words, left.forms))
    return layers


def rule_of(config: TrieConfig, letters: str, known: frozenset[str]) -> Rule:
    """Build the audit's rule from a launch file."""
    return Rule(
        epsilon0=config.epsilon0,
        messages=config.messages_per_device,
        greedy=config.sampler == "greedy",
        layers=config.layers,
        letters=letters,
        max_prefixes=config.max_prefixes,
        false_discovery_rate=config.false_discovery_rate,
        anonymity=config.anonymity,
        known=known,
    )
