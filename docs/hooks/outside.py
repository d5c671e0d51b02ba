"""Pages of the site for files outside ``docs/`` that a page links to: other guides, launch files, results.

A link of a document is relative to where it lies in the repository, so that it works there too. Here a file ``PATH``
outside ``docs/`` becomes the page ``repository/PATH``: Markdown as it is, other text in a block of code.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parents[2]
_OUTSIDE = "repository/"
_LINK = re.compile(r"(?<=\]\()(?!https?://|#|mailto:)([^)\s#]+)")
_LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".py": "python", ".sh": "sh", ".js": "js"}
_PICTURES = frozenset({".svg", ".png"})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside that is linked to, by documents and by such pages."""
    waiting = [file.src_uri for file in files.documentation_pages()]
    while waiting:
        origin = _in_repository(waiting.pop())
        for target in _targets(origin):
            uri = _uri(target)
            if target.startswith("docs/") or files.get_file_from_path(uri) or not (_ROOT / target).is_file():
                continue
            if Path(target).suffix in _PICTURES:
                files.append(File.generated(config, uri, abs_src_path=str(_ROOT / target)))
                continue
            files.append(File.generated(config, uri, content=_page(target), inclusion=InclusionLevel.NOT_IN_NAV))
            if target.endswith(".md"):
                waiting.append(uri)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links of the repository to pages of the site; one to a folder becomes its words alone."""
    origin = _in_repository(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def led(link: re.Match[str]) -> str:
        target = _resolved(origin, link[1])
        return link[1] if (_ROOT / target).is_dir() else posixpath.relpath(_uri(target), here or ".")

    folders = r"(?<!!)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s#]+)[^)]*\)"

    def plain(link: re.Match[str]) -> str:
        return link[1] if (_ROOT / _resolved(origin, link[2])).is_dir() else link[0]

    return _LINK.sub(led, re.sub(folders, plain, markdown))


def _in_repository(uri: str) -> str:
    """The path of a page's file from the root of the repository."""
    if not uri.startswith(_OUTSIDE):
        return f"docs/{uri}"
    path = uri.removeprefix(_OUTSIDE)
    return path if (_ROOT / path).is_file() else path.removesuffix(".md")


def _uri(target: str) -> str:
    """The page of a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return _OUTSIDE + (target if Path(target).suffix in {".md", *_PICTURES} else f"{target}.md")


def _targets(origin: str) -> Iterator[str]:
    path = _ROOT / origin
    if path.suffix == ".md" and path.is_file():
        for link in _LINK.findall(path.read_text(encoding="utf-8")):
            yield _resolved(origin, link)


def _resolved(origin: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _page(target: str) -> str:
    text = (_ROOT / target).read_text(encoding="utf-8")
    if target.endswith(".md"):
        return text
    return f"# {Path(target).name}\n\n`{target}`\n\n```{_LANGUAGES.get(Path(target).suffix, 'text')}\n{text}\n```\n"
