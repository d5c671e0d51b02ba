"""One short function per stage: load earlier artifacts, call the core, save, return.

    ingest_public ──> pretrain ──┐
          └────────────┐         ├─> build_vocabulary ─> adapt ─> plan ─> count ─> fine_tune ─┬─> audit ───┐
    ingest_private ─> discover ──┘                                                           └─> ab_test ─┴─> decide
                                                                                  decide ─> report ─> publish

The siblings ``discovery``, ``federated``, ``evaluation`` and ``reports`` never see each other;
what one makes for another passes through here as plain data.
"""

from pipeline.covered import spends
from pipeline.runner import Stages
from pipeline.stages import build_vocabulary, count, discover, reuse
from pipeline.stages.ab_test import ab_test
from pipeline.stages.audit import audit
from pipeline.stages.decide import decide
from pipeline.stages.fine_tune import fine_tune
from pipeline.stages.ingest import ingest_private, ingest_public
from pipeline.stages.plan import plan
from pipeline.stages.public_model import adapt, pretrain
from pipeline.stages.publish import publish
from pipeline.stages.report import report

STAGES = Stages(
    functions={
        stage.__name__: stage
        for stage in (
            ingest_public,
            ingest_private,
            pretrain,
            discover.discover,
            build_vocabulary.build_vocabulary,
            adapt,
            plan,
            count.count,
            fine_tune,
            audit,
            ab_test,
            decide,
            report,
            publish,
        )
    },
    spends=spends.SPENDS,
    public=reuse.PUBLIC,
    private=reuse.PRIVATE,
)
