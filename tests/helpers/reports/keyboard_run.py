"""A run that was published: a report, a bundle, the record of its stage, as ``tacit site`` reads them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, record_text
from pretrain.files import sha256
from pretrain.model import export
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.text import vocabulary
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from pretrain.writing import truecasing
from pretrain.writing.truecasing import TypicalForm
from reports.disclosure.document import Disclosure
from reports.site import PublishedFiles
from tests.helpers.launches.published import list_files, model_of
from tests.helpers.reports.reports_example import example

WORDS = ("the", "i", "you", "</script>", "hello")
USUAL = {"i": TypicalForm("I", 9, 0.9)}


def add_report(runs: Path, name: str, disclosure: Disclosure | None = None) -> Path:
    """A run's folder with the disclosure that the index reads; returns that file."""
    path = runs / name / "public" / "report" / "disclosure.json"
    path.parent.mkdir(parents=True)
    path.write_text((disclosure or example()).model_dump_json(), encoding="utf-8")
    return path


def add_published(
    runs: Path,
    name: str,
    disclosure: Disclosure | None = None,
    words: Iterable[str] = WORDS,
    usual: Mapping[str, TypicalForm] = USUAL,
    counts: CountedNGram | None = None,
) -> Path:
    """A run whose untrained model was published, alone or mixed with counts; returns its bundle."""
    report = add_report(runs, name, disclosure)
    stated = disclosure or example()
    stage = runs / name / "public" / "publish"
    bundle = stage / "bundle"
    bundle.mkdir(parents=True)
    known = Vocabulary((*SPECIALS, *words))
    model = model_of(known, 5)
    for tensor in model.parameters():
        tensor.data *= 3  # far enough from one another that no rounding swaps two words
    export.export_onnx(model, bundle / "model.onnx")
    vocabulary.save(known, bundle / "vocabulary.json")
    truecasing.save(usual, bundle / "truecase.json")
    if counts:
        counted.save(counts, bundle / "counts.npz")
    (bundle / "disclosure.json").write_bytes(report.read_bytes())
    list_files(bundle, launch_id=name, locale=stated.launch.locale, ships="mixture" if counts else "network")
    record = StageRecord(
        launch_id=name,
        stage="publish",
        config_digest="",
        inputs={},
        outputs={f"bundle/{path.name}": sha256(path) for path in sorted(bundle.iterdir())},
        private_outputs=False,
        started_at="",
        seconds=1.0,
        processor="any",
        result={"published": True},
    )
    (stage / RESULT).write_text(record_text(record), encoding="utf-8")
    return bundle


def no_public_model(name: str, bundle: Path) -> None:
    """Stand for public models whose files are gone."""


def other_model(name: str, bundle: Path) -> bytes:
    """A public model of the bundle's vocabulary that suggests other words, with int8 weights."""
    made = bundle.parent / "start.onnx"
    export.export_onnx(model_of(vocabulary.load(bundle / "vocabulary.json"), 6), made)
    export.quantise(made, made.with_suffix(".int8.onnx"))
    return made.with_suffix(".int8.onnx").read_bytes()


def published_in(runs: Path) -> PublishedFiles:
    """What each run says that it published, as if the ledger held it."""

    def files(name: str) -> Mapping[str, str]:
        record = RunDir(runs, name, as_it_lies).record("publish")
        return record.outputs if record and record.result["published"] else {}

    return files
