"""Inputs of the audit of central word discovery: text and key of the launch that made it, and its release."""

import json

import numpy as np

from discovery.central.select import RELEASED
from discovery.device.typed import TypedWords
from evaluation.audit.released.central_words import DiscoveryRelease, Rule, WordOccurrences, central_words_audit
from evaluation.audit.verdict import Verdict
from pipeline.run import artifacts
from pipeline.run.stage import StageContext

KEPT = f"central/{RELEASED}"


def audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on a central word discovery, in the context of its stage ``discover``."""
    config = ctx.config.central_discovery
    assert config is not None, "discovery was local"
    stated = ctx.run.result("discover")
    kept = json.loads((ctx.private / KEPT).read_text(encoding="utf-8"))
    words = {word.word: (word.share, word.low, word.high, word.form) for word in artifacts.discovered_words(ctx)}
    forms_RF = np.array(kept["forms"], dtype=np.int64)
    found = DiscoveryRelease(kept["weights"], kept["total"], forms_RF, stated["threshold"], words)
    typed = TypedWords.gather(artifacts.store(ctx).typed_words("train"), ctx.run.private("audit_releases"))
    rule = Rule.of(
        frozenset(artifacts.vocabulary(ctx, "ingest_public").words),
        config.words_per_device,
        config.noise_multiplier,
        stated["forms_share"],
        stated["filled_share"],
        config.failure,
    )
    return central_words_audit(found, WordOccurrences(typed.distinct, typed.starts, typed.numbers), rule, ctx.noise_key)
