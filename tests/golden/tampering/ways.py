"""Ways to tamper with a finished launch: what is edited, and which check must notice.

Each edit changes the digests in ``result.json`` along, as whoever tampers would, so that a comparison of digests alone
sees nothing. A way's ``check`` is the one that derives the thing again, and so notices even if the ledger's digests had
been changed along too; None where only the ledger's digests can tell. Which check finds a change of ``LEFT`` or
``TRACKED`` is in ``matrix.json``.
"""

from dataclasses import dataclass

from pipeline.run.run_dir import RESULT
from tests.golden.tampering.edits import (
    Edit,
    another_device,
    arrays,
    copied,
    disclosed,
    flipped,
    half,
    in_bundle,
    in_json,
    in_text,
    in_tracking,
    logged_file,
    more,
    one_weight,
    other,
    participation,
    registered_file,
    removed,
    start_as_bundle,
    stated,
    weights,
    written,
)

COMPARISON, CANARIES = "public/ab_test/comparison.json", "public/fine_tune/canaries.json"


@dataclass(frozen=True)
class Tampering:
    """One way: the stage whose files change, the edit, the check that derives it again."""

    name: str
    stage: str
    edit: Edit
    check: str | None = "again"

    @property
    def noticed(self) -> str | None:
        """The id of the check."""
        return f"again:{self.stage}" if self.check == "again" else self.check


BETTER = (
    Tampering(
        "the model without private training",
        "fine_tune",
        copied("public/adapt/model.safetensors", "public/fine_tune/model.safetensors"),
    ),
    Tampering("one weight of the private model", "fine_tune", weights("fine_tune", one_weight)),
    Tampering("the private model scaled", "fine_tune", weights("fine_tune", lambda v: v * 1.01)),
    Tampering("one weight of the adapted model", "adapt", weights("adapt", one_weight)),
    Tampering("one weight of the public model", "pretrain", weights("pretrain", one_weight)),
    Tampering("the loss of the public model", "pretrain", stated("pretrain", "validation_loss", half)),
    Tampering("the curve of the public model", "pretrain", stated("pretrain", "curve.0.train_loss", half), None),
    Tampering("its size", "pretrain", stated("pretrain", "parameters", more), None),
    Tampering("the accuracy of the adapted model", "adapt", stated("adapt", "validation_top1", 0.9)),
    Tampering("recall after private training", "fine_tune", stated("fine_tune", "validation_recall_after", 0.9)),
    Tampering("recall before private training", "fine_tune", stated("fine_tune", "validation_recall_before", 0.1)),
    Tampering("the curve of private training", "fine_tune", stated("fine_tune", "curve.1.validation_loss", half)),
    Tampering("a headline metric", "decide", stated("decide", "headline.epsilon", half)),
    Tampering("gain of the comparison", "ab_test", stated("ab_test", "top1_gain", more)),
    Tampering("an interval of the comparison", "ab_test", stated("ab_test", "arms.0.low", half)),
    Tampering("a difference of arms", "ab_test", stated("ab_test", "differences.0.high", more)),
    Tampering("words that were compared", "ab_test", stated("ab_test", "words", more)),
    Tampering(
        "the comparison's file", "ab_test", in_json("public/ab_test/comparison.json", "table.arms.0.estimate.low", half)
    ),
    Tampering("a canary's rank", "audit", stated("audit", "canaries.0.rank", 9_999)),
    Tampering("the worst rank", "audit", stated("audit", "worst_rank_single_user", 9_999)),
    Tampering("what an audit would notice", "audit", stated("audit", "audits.1.least_noise", half)),
    Tampering("the audits' verdict", "audit", stated("audit", "noise_audit_passed", flipped)),
    Tampering("rounds of the control", "audit", stated("audit", "control.rounds", more)),
    Tampering("the pooled p-value", "audit", stated("audit", "pooled_p_value", half)),
    Tampering(
        "the canaries that were planted", "fine_tune", in_json("public/fine_tune/canaries.json", "canaries.0.n_e", more)
    ),
)

ACCOUNTED = (
    Tampering("rho", "fine_tune", stated("fine_tune", "rho", half), "rho"),
    Tampering("epsilon", "fine_tune", stated("fine_tune", "epsilon", half), "epsilon"),
    Tampering("epsilon of the second accountant", "fine_tune", stated("fine_tune", "epsilon_pld", half), "epsilon_pld"),
    Tampering("mu", "fine_tune", stated("fine_tune", "mu", half), "mu"),
    Tampering("the sensitivity", "fine_tune", stated("fine_tune", "sensitivity_squared", half), "sensitivity_squared"),
    Tampering(
        "most participations", "fine_tune", stated("fine_tune", "observed_max_participations", 1), "participation"
    ),
    Tampering(
        "the histogram of participations",
        "fine_tune",
        stated("fine_tune", "participation_histogram", {"1": 30}),
        "participation",
    ),
    Tampering("violations", "fine_tune", stated("fine_tune", "violations", more), "participation"),
    Tampering(
        "rounds of the canaries", "fine_tune", stated("fine_tune", "synthetic_participations.0", more), "participation"
    ),
    Tampering("a spend", "fine_tune", stated("fine_tune", "spend.rho", half), "spend:fine_tune"),
    Tampering("the plan's rho", "plan", stated("plan", "rho", half)),
    Tampering(
        "the mechanism's file", "plan", in_json("public/plan/mechanism.json", "noise_multiplier", half), "mechanism"
    ),
    Tampering("discovery's central epsilon", "discover", stated("discover", "epsilon_central", half)),
    Tampering("messages of a layer", "discover", stated("discover", "layers.0.messages", more)),
    Tampering(
        "the discovered words", "discover", in_text("private/discover/words.json", "[", "[ "), "again:build_vocabulary"
    ),
    Tampering("coverage of new words", "ab_test", stated("ab_test", "coverage", 0.9)),
    Tampering(
        "the vocabulary", "build_vocabulary", in_text("public/build_vocabulary/vocabulary.json", '"the"', '"teh"')
    ),
    Tampering("digest of the corpus", "ingest_public", stated("ingest_public", "corpus_digest", "0" * 64)),
    Tampering("devices of the population", "ingest_private", stated("ingest_private", "devices_by_split.train", 990)),
    Tampering("digest of the store", "ingest_private", stated("ingest_private", "store_digest", "0" * 64)),
    Tampering("a gate's verdict", "decide", stated("decide", "gates.0.passed", flipped)),
    Tampering("a gate's value", "decide", stated("decide", "gates.0.value", half)),
    Tampering("the decision", "decide", stated("decide", "decision", other)),
    Tampering("the reasons", "decide", stated("decide", "reasons.0", "all is well")),
    Tampering(
        "participation permuted",
        "fine_tune",
        participation(lambda rounds, devices: (rounds, devices[::-1].copy())),
        "participation",
    ),
    Tampering(
        "one participation less",
        "fine_tune",
        participation(lambda rounds, devices: (rounds[1:], devices[1:])),
        "participation",
    ),
    Tampering("another device in a round", "fine_tune", participation(another_device), "participation"),
    Tampering(
        "what the audits read",
        "fine_tune",
        arrays("private/fine_tune/audit.npz", "projections", lambda values: values * 1.5),
        "again:audit",
    ),
)

REPORTED = (
    Tampering(
        "noise said to be secret",
        "report",
        disclosed(("accounting.randomness", "secure"), ("launch.seeded_randomness", False)),
        "disclosure:again",
    ),
    Tampering("epsilon in the disclosure", "report", disclosed(("accounting.epsilon", half)), "disclosure:again"),
    Tampering(
        "ranks in the disclosure", "report", disclosed(("audit.worst_rank_single_user", 9_999)), "disclosure:again"
    ),
    Tampering("limitations left out", "report", disclosed(("limitations", [])), "disclosure:again"),
    Tampering("spends of the population", "report", disclosed(("composition.spends", [])), "disclosure:ledger"),
    Tampering("the ledger's head", "report", disclosed(("verification.ledger_head", "0" * 64)), "disclosure:ledger"),
    Tampering("a word of the page", "report", in_text("public/report/report.html", "<p>", "<p>No "), "rendered"),
    Tampering("a word of the Markdown", "report", in_text("public/report/report.md", "#", "# No"), "rendered"),
    Tampering(
        "the model card for the report",
        "report",
        copied("public/report/README.md", "public/report/report.md"),
        "rendered",
    ),
    Tampering(
        "one figure for another",
        "report",
        copied("public/report/figures/training.svg", "public/report/figures/fine_tuning.svg"),
        "rendered",
    ),
    Tampering("another model in the bundle", "publish", in_bundle(start_as_bundle)),
    Tampering(
        "words of the bundle", "publish", in_bundle(in_text("public/publish/bundle/vocabulary.json", '"the"', '"teh"'))
    ),
    Tampering(
        "the bundle's disclosure",
        "publish",
        in_bundle(in_text("public/publish/bundle/disclosure.json", '"seeded"', '"secure"')),
    ),
    Tampering("the version that was registered", "publish", stated("publish", "version", more), "registered"),
    Tampering(
        "the version for its feature",
        "publish",
        stated("publish", "versions.simulated-keyboard-en-US-NWP", more),
        "registered",
    ),
    Tampering(
        "files of the registered model",
        "publish",
        stated("publish", "registered_files.MLmodel", "0" * 64),
        "registered",
    ),
)

LEFT = (
    Tampering("a file more", "fine_tune", written("public/fine_tune/more.txt")),
    Tampering("a hidden file more", "fine_tune", written("public/fine_tune/.more")),
    Tampering("a folder more", "report", lambda launch: launch.file("public/report/more").mkdir()),
    Tampering("a stage that is none", "report", written("public/more/result.json")),
    Tampering("a file beside the stages", "report", written("more.txt")),
    Tampering(
        "a link for a file", "report", lambda launch: launch.file("public/report/more.md").symlink_to("report.md")
    ),
    Tampering("a file less", "report", removed("public/report/report.md")),
    Tampering("a result less", "audit", removed(f"public/audit/{RESULT}")),
    Tampering("a stage less", "publish", removed("public/publish")),
    Tampering("a private folder less", "fine_tune", removed("private/fine_tune")),
    Tampering("no private folder", "fine_tune", removed("private")),
    Tampering("a private file less", "fine_tune", removed("private/fine_tune/audit.npz")),
    Tampering("a private file more", "fine_tune", written("private/fine_tune/more")),
    Tampering("a private stage that is none", "fine_tune", written("private/more/key")),
    Tampering(
        "what somebody typed",
        "ingest_private",
        lambda launch: launch.file("private/ingest_private/store/words/tokens.bin").write_bytes(b"0" * 64),
    ),
)


TRACKED = (
    Tampering("the registered model", "publish", registered_file("data/bundle/model.onnx")),
    Tampering("the registered model's code", "publish", registered_file("code/pretrain/model/predictor.py")),
    Tampering("the registered vocabulary", "publish", registered_file("data/bundle/vocabulary.json")),
    Tampering(
        "the registered loss",
        "publish",
        in_tracking("UPDATE model_version_tags SET value = 'epsilon 0.01' WHERE key = 'privacy.loss'"),
    ),
    Tampering(
        "who approved",
        "publish",
        in_tracking("UPDATE model_version_tags SET value = 'everybody' WHERE key = 'reviewers'"),
    ),
    Tampering("a tag less", "publish", in_tracking("DELETE FROM model_version_tags WHERE key = 'privacy.void'")),
    Tampering(
        "a metric of a stage",
        "audit",
        in_tracking("UPDATE metrics SET value = 9999 WHERE key = 'audit/worst_rank_single_user'"),
    ),
    Tampering(
        "a point of a curve",
        "fine_tune",
        in_tracking("UPDATE metrics SET value = 0.5 WHERE key = 'fine_tune_curve/validation_loss' AND step = 2"),
    ),
    Tampering(
        "epsilon of the launch's run",
        "fine_tune",
        in_tracking("UPDATE latest_metrics SET value = 0.01 WHERE key = 'epsilon'"),
    ),
    Tampering(
        "a column of the table of launches",
        "fine_tune",
        in_tracking("UPDATE latest_metrics SET value = 1 WHERE key = 'MaxP'"),
    ),
    Tampering(
        "a curve of the launch's run",
        "pretrain",
        in_tracking("UPDATE metrics SET value = 0.5 WHERE key = 'pretrain_curve/validation_loss'"),
    ),
    Tampering("the decision's tag", "decide", in_tracking("UPDATE tags SET value = 'held' WHERE key = 'decision'")),
    Tampering(
        "a parameter",
        "plan",
        in_tracking(
            "UPDATE params SET value = '99' WHERE key = 'mechanism.noise_multiplier'"
            " AND run_uuid NOT IN (SELECT run_uuid FROM tags WHERE key = 'mlflow.parentRunId')"
        ),
    ),
    Tampering("the digest of a record", "audit", in_tracking("UPDATE tags SET value = 'x' WHERE key = 'tacit.record'")),
    Tampering("a logged file", "ab_test", logged_file("comparison.json", b"{}")),
    Tampering("a logged file more", "ab_test", logged_file("more.json", b"{}")),
    Tampering("a run less", "audit", in_tracking("UPDATE runs SET lifecycle_stage = 'deleted' WHERE name = 'audit'")),
)

DERIVED = (*BETTER, *ACCOUNTED, *REPORTED)
