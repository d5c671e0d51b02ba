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
    """Write an index of every launch with a report into the runs directory, and keyboards to try published ones on.

    Example: tacit site
    """
    from evaluation.keyboard import layouts  # with numpy, as all below: slow to import
    from pretrain import text
    from reports import site as core
    from reports.keyboard import Writing

    here = settings.load()
    made = core.build(
        here.runs_dir, here.web_dir, lambda locale: Writing(layouts.rows(locale), text.for_browsers(locale))
    )
    lines = [f"index: {made.index}", *(f"keyboard: {page}" for page in made.keyboards)]
    if made.without:
        lines.append(
            f"keyboards: {made.without} not made, as {here.web_dir} holds no onnxruntime-web; "
            "'make web' installs it by npm, then 'tacit site' again"
        )
    content = {"index": str(made.index), "keyboards": [str(page) for page in made.keyboards], "without": made.without}
    answer(content, as_json, text="\n".join(lines))
