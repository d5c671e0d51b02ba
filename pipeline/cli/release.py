"""``tacit predict``, ``tacit rollback`` and ``tacit site``."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from pipeline import settings
from pipeline.cli.support import AsJson, answer, command


@command
def predict(
    bundle: Annotated[str, typer.Argument(help="a bundle folder, or a locale such as en-US for its champion")],
    text: Annotated[str, typer.Argument(help="what has been typed so far")],
    feature: Annotated[str, typer.Option(help="with a locale: NWP, SC or OTF")] = "NWP",
    as_json: AsJson = False,
) -> None:
    """The three likeliest next words, as they are usually written.

    Example: tacit predict en-US "see you"
    """
    from pipeline.registry import Registry, model_name
    from pretrain.predictor import KeyboardPredictor  # onnxruntime is slow to import

    if Path(bundle).is_dir():
        words = KeyboardPredictor(Path(bundle)).suggest(text, 3)
    else:
        with tempfile.TemporaryDirectory() as folder:
            registry = Registry(settings.load())
            got = registry.download(model_name(bundle, feature), "champion", Path(folder))
            words = KeyboardPredictor(got).suggest(text, 3)
    answer({"text": text, "words": words}, as_json, text=" | ".join(words))


@command
def rollback(
    locale: Annotated[str, typer.Argument(help="such as en-US")],
    feature: Annotated[str, typer.Option(help="NWP, SC or OTF")] = "NWP",
    as_json: AsJson = False,
) -> None:
    """Give users back the version they had before.

    Example: tacit rollback en-US
    """
    from pipeline import registry

    done = registry.rollback(locale, feature, settings.load())
    text = f"{done['registered_model']}: version {done['champion']} is champion again, {done['rolled_back']} is not"
    answer(done, as_json, text=text)


@command
def site(as_json: AsJson = False) -> None:
    """Write an index of every launch with a report into the runs directory.

    Example: tacit site
    """
    from reports import site as core

    runs = settings.load().runs_dir
    page = core.build(runs)
    answer({"index": str(page)}, as_json, text=f"index: {page}")
