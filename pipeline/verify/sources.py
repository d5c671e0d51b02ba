"""Verify the sources of public figures: make them again from public files alone."""

from collections.abc import Iterator, Mapping

from pipeline.ground.settings import Settings, processor
from pipeline.launch.config import LaunchConfig
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.stages.graph import STAGES
from pipeline.stages.remade import of_stage
from pipeline.verify.check import Check, in_words


def sources(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord], of_this_code: bool
) -> Iterator[Check]:
    """Check each stage's public fields and files; it opens no key, no store and no ledger."""
    for name, record in records.items():
        wrong = list(of_stage(config, run, settings, STAGES[name], record))
        excuse = "" if of_this_code else "other code made it"
        if record.processor != (here := processor()):
            excuse = excuse or f"made on {record.processor}; this is {here}, whose last digits may differ"
        if wrong and excuse:
            yield Check(id=f"sources:{name}", passed=None, detail=f"{excuse}: {in_words(wrong)}")
        else:
            detail = in_words(wrong) or "public files give every figure that says it follows from them"
            yield Check(id=f"sources:{name}", passed=not wrong, detail=detail)
