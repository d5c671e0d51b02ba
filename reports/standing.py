"""Status badge of a launch: a lamp, the state, and the reason in words."""

import textwrap

from markupsafe import escape

# The colours of the figures, repeated because ``figures.style`` takes a second to import.
_BLUE, _ORANGE, _GREEN, _RED = "#3b82c4", "#d9822b", "#2e9e6b", "#d1495b"
_COLOURS = {
    "held": _RED,
    "rejected": _RED,
    "rolled back": _RED,
    "waiting": _ORANGE,
    "unfinished": _ORANGE,
    "approved": _BLUE,
    "candidate": _BLUE,
    "published": _GREEN,
}
# As wide as a phone leaves to it, as a picture cannot break its lines anew.
_LINE, _WIDTH, _MOST_LINES, _LETTERS = 18, 320, 9, 36


def badge(state: str, detail: str) -> str:
    """SVG with a state and, in at most nine lines, its detail; the same bytes every time.

    The SVG is a file beside a page, so it holds its own colours for light and dark.
    """
    lines = textwrap.wrap(detail, _LETTERS, break_on_hyphens=False)
    if len(lines) > _MOST_LINES:
        rest = " ".join(lines[_MOST_LINES - 1 :])
        lines = [*lines[: _MOST_LINES - 1], textwrap.shorten(rest, _LETTERS, placeholder=" ...")]
    height = 36 + _LINE * len(lines)
    words = "".join(
        f'<text x="40" y="{46 + _LINE * number}">{escape(line)}</text>' for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="14">\n<title>{escape(state)}</title>\n'
        "<style>text{fill:#1c1c1c}@media(prefers-color-scheme:dark){text{fill:#e8e8e8}}</style>\n"
        f'<circle cx="20" cy="20" r="9" fill="{_COLOURS[state]}"/>\n'
        f'<text x="40" y="26" font-size="18" font-weight="600">{escape(state)}</text>\n{words}\n</svg>\n'
    )
