"""Inputs of the audit of local word discovery: typed words, the key, and discovery's saved layers."""

from pathlib import Path

from discovery import participation, state
from discovery.config import TrieConfig
from discovery.device.answer import letters_of
from discovery.device.typed import TypedWords
from evaluation.audit.released.local_words import Layer, Rule, local_words_audit
from evaluation.audit.verdict import Verdict
from pipeline.run import artifacts
from pipeline.run.stage import StageContext
from pretrain import text

KEPT = "layers"


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on a local word discovery, in the context of its stage ``discover``."""
    config = ctx.config.discovery
    assert isinstance(config, TrieConfig), "discovery was central"
    folder = ctx.private / KEPT
    typed = TypedWords.gather(artifacts.store(ctx).typed_words("train"), ctx.run.private("audit_releases"))
    published = {word.word: word.form for word in artifacts.discovered_words(ctx)}
    known = frozenset(artifacts.vocabulary(ctx, "ingest_public").words)
    rule = rule_of(config, letters_of(text.alphabet(ctx.config.locale)), known)
    return local_words_audit(ctx.noise_key, layers_of(folder), published, typed.of, rule)


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
