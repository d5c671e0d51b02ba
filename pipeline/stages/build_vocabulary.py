"""Stage ``build_vocabulary``: base words, and the discovered words that filters and reviewers accept."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from discovery import filters, frequencies, review
from discovery.config import CentralConfig
from discovery.results import FoundWord
from pipeline.ground.errors import PermanentError
from pipeline.launch.config import LaunchConfig
from pipeline.run import artifacts
from pipeline.run.run_dir import StageRecord
from pipeline.run.stage import StageContext, StageResult
from pretrain.config import written
from pretrain.files import private_directory, write_text
from pretrain.text import corpus, vocabulary
from reports.disclosure.findings import WordFilter, WordsDropped


class BuildVocabulary(StageResult, WordsDropped):
    """Base words and discovered words."""

    base_size: int
    added: int
    size: int
    vocabulary_digest: str


def build_vocabulary(ctx: StageContext) -> BuildVocabulary:
    """Build the vocabulary: base words, then accepted discovered words, up to ``vocabulary.max_new_words``."""
    base, config = artifacts.vocabulary(ctx, "ingest_public"), ctx.config
    discovered = artifacts.discovered_words(ctx)
    blocked = blocklist(ctx)
    listed = review.candidates(discovered, config.vocabulary.filters, blocked, config.locale)
    if config.vocabulary.review:
        listed = _reviewed(ctx, listed)
    grown = vocabulary.extend(base, [word.word for word in listed if word.accepted], config.vocabulary.max_new_words)
    vocabulary.save(grown, ctx.public / "vocabulary.json")
    # Frequencies and forms of the accepted words alone, without the words themselves, which the vocabulary has.
    frequency, shown = _frequencies(ctx, base, discovered), {word.word: word.shown for word in listed}
    for name, value_of in ((artifacts.FREQUENCIES, frequency), (artifacts.SHOWN, shown)):
        write_text(ctx.public / name, json.dumps([value_of[word] for word in grown.words[len(base) :]]) + "\n")
    return BuildVocabulary(
        **_sizes(base, grown),
        reviewed=config.vocabulary.review,
        filters=_filters(config, listed),
        dropped_by_person=sum(word.decision == "drop" for word in listed) if config.vocabulary.review else None,
    )


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """Sizes of the released vocabulary and the launch file's filters."""
    base, grown = artifacts.vocabulary(ctx, "ingest_public"), vocabulary.load(released / "vocabulary.json")
    if grown.words[: len(base)] != base.words:
        raise ValueError("vocabulary.json: does not begin with the public words")
    filtered = [each.model_dump(exclude={"dropped"}) for each in _filters(ctx.config, ())]
    return {
        **_sizes(base, grown),
        "reviewed": ctx.config.vocabulary.review,
        "filters": filtered,
    }


def _sizes(base: vocabulary.Vocabulary, grown: vocabulary.Vocabulary) -> dict[str, Any]:
    added = len(set(grown.words) - set(base.words))
    return {"base_size": len(base), "added": added, "size": len(grown), "vocabulary_digest": grown.digest}


def _frequencies(ctx: StageContext, base: vocabulary.Vocabulary, discovered: Sequence[FoundWord]) -> dict[str, float]:
    """Frequency of each discovered word among all typed words, from its share, shrunk for selection."""
    config, share_N = ctx.config.discovery, np.array([word.shrunk for word in discovered])
    if isinstance(config, CentralConfig):
        counts = corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).counts()
        known, every = sum(counts.get(word, 0) for word in base.words), sum(counts.values())
        frequency_N = frequencies.of_contributions(share_N, max(every - known, 1) / every)
    else:
        frequency_N = frequencies.of_messages(share_N, config.messages_per_device)
    return dict(zip((word.word for word in discovered), frequency_N.tolist(), strict=True))


def blocklist(ctx: StageContext) -> tuple[str, ...]:
    """Read the locale's blocklist and record its digest, as its path alone would hide a change."""
    listed = ctx.config.discovery.blocklist
    if listed is None:
        return ()
    blocked = review.read_blocklist(Path(listed))
    ctx.run.use_file(Path(listed), written(listed))
    return blocked


def _reviewed(ctx: StageContext, listed: tuple[review.Candidate, ...]) -> tuple[review.Candidate, ...]:
    """Return the candidates with a reviewer's decisions.

    Raises:
      PermanentError: a decision is missing; the message names the file.
    """
    folder = ctx.private / "review"
    if not (folder / "review.csv").exists():
        review.write_review(private_directory(folder), listed)
    decided = review.read_review(folder)
    ctx.run.use_file(folder / "review.csv")
    if [word.word for word in decided] != [word.word for word in listed]:
        raise PermanentError(f"review: {folder} holds the words of another discovery; remove it and run again")
    open_words = sum(not word.decision for word in decided)
    if open_words:
        raise PermanentError(
            f"vocabulary.review: {open_words} of {len(decided)} words wait for a decision; write 'keep' or 'drop' in "
            f"the column 'decision' of {folder / 'review.csv'} and run the launch again"
        )
    return decided


def _filters(config: LaunchConfig, listed: Iterable[review.Candidate]) -> tuple[WordFilter, ...]:
    """Return the launch's blocklist and filters with the number of words that each dropped."""
    sentences = {each.name: each.sentence for each in filters.FILTERS if each.name in config.vocabulary.filters}
    if config.discovery.blocklist is not None:
        sentences = {review.BLOCKLIST: "a word of the launch's blocklist"} | sentences
    dropped = Counter(word.verdict for word in listed if not word.accepted and not word.decision)
    return tuple(
        WordFilter(name=name, sentence=sentence, dropped=dropped[name]) for name, sentence in sentences.items()
    )
