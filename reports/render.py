"""The disclosure as files: JSON for machines, HTML and Markdown for people.

Every number comes from the ``Disclosure``; templates only lay it out. Privacy losses are
rounded up: what is printed may be weaker than the truth, never stronger.
"""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pretrain.files import write_text
from reports import formats
from reports.disclosure.document import Disclosure
from reports.figures.audit import of_audits
from reports.figures.comparison import of_utility
from reports.figures.discovery import of_discovery
from reports.figures.training import all_figures

TEMPLATES = Path(__file__).parent / "templates"
_FILTERS = (
    formats.arm_name,
    formats.arms,
    formats.at_least,
    formats.ceiling,
    formats.code,
    formats.feature_metrics,
    formats.feature_name,
    formats.features,
    formats.gate_value,
    formats.guesser,
    formats.heads,
    formats.heads_of,
    formats.histogram,
    formats.metric_change,
    formats.metric_name,
    formats.metric_value,
    formats.number,
    formats.mechanism_name,
    formats.percent,
    formats.strength,
    formats.total,
    formats.turnout,
    formats.up,
    formats.verdict,
    formats.warnings,
    formats.yaml,
)


def render(disclosure: Disclosure, directory: Path) -> list[Path]:
    """Write ``disclosure.json``, ``report.html``, ``report.md``, the model card and ``figures/*.svg``.

    Raises:
      OSError: the directory does not exist or cannot be written.
    """
    drawn = all_figures(disclosure) | of_discovery(disclosure.discovery) | of_audits(disclosure.audit)
    drawn |= of_utility(disclosure.utility)
    figures = {name: Markup(svg) for name, svg in drawn.items()}
    html, markdown = environment(html=True), environment(html=False)
    contents = {
        "disclosure.json": disclosure.model_dump_json(indent=1) + "\n",
        "report.html": html.get_template("report.html.j2").render(d=disclosure, figures=figures),
        "report.md": markdown.get_template("report.md.j2").render(d=disclosure),
        "README.md": markdown.get_template("model_card.md.j2").render(d=disclosure),
    }
    (directory / "figures").mkdir(exist_ok=True)
    # Once more on their own, for whoever looks at the artifacts one by one.
    contents |= {f"figures/{name}.svg": svg for name, svg in drawn.items()}
    return [write(directory / name, content) for name, content in contents.items()]


def environment(*, html: bool) -> Environment:
    """Templates that escape every value, and fail on a name that is not there."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=html,
        finalize=None if html else formats.markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for filter_function in _FILTERS:
        made.filters[filter_function.__name__] = filter_function
    return made


def write(path: Path, content: str) -> Path:
    """Replace a file at once, so that no reader sees half a report."""
    write_text(path, content)
    return path
