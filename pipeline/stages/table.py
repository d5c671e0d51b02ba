"""One short function per stage: load earlier artifacts, call the core, save, return.

    ingest_public ──> pretrain ──┐
          └────────────┐         ├─> build_vocabulary ─> adapt ─> plan ─> fine_tune ─┬─> audit ───┐
    ingest_private ─> discover ──┘                                                  └─> ab_test ─┴─> decide
                                                                         decide ─> report ─> publish

The siblings ``discovery``, ``federated``, ``evaluation`` and ``reports`` never see each other;
what one makes for another passes through here as plain data.
"""

from pipeline.runner import Stages
from pipeline.stages import spends
from pipeline.stages_judge import ab_test, audit, decide, publish, report
from pipeline.stages_learn import adapt, fine_tune, ingest_private, ingest_public, plan, pretrain
from pipeline.stages_words import build_vocabulary, discover

STAGES = Stages(
    functions={
        stage.__name__: stage
        for stage in (
            ingest_public,
            ingest_private,
            pretrain,
            discover,
            build_vocabulary,
            adapt,
            plan,
            fine_tune,
            audit,
            ab_test,
            decide,
            report,
            publish,
        )
    },
    spends=spends.SPENDS,
)
