"""Markdown of the report: escaping of untrusted values, and rendering to HTML.

Values of a disclosure are untrusted: names, words and reasons are other people's text. Templates
escape them on their way into ``report.md``. The parser that renders the page knows no HTML and only
links within the page, so a value that escaping missed would still be shown as text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

# Outside the report's folder: the picture changes later, the files of the report do not.
STANDING = "../launch/state.svg"
_UNSEEN = "The picture of the launch's state is not beside this page"
# Links and pictures may refer only to headings of the page and to files of the report.
_WITHIN = re.compile(rf"#[\w-]+|figures/\w+\.svg|appendix/\w+\.(?:csv|json)|disclosure\.json|{re.escape(STANDING)}")


def escape(value: object) -> object:
    """Escaped text, which forms no Markdown or HTML and stays in its table cell; markup from templates passes."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    text = re.sub(r"\s+", " ", value)
    text = re.sub(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    # Some readers of Markdown make links of bare addresses; those of the web and of mail do no harm.
    text = re.sub(r"(?<!http)(?<!https):(?=/)", r"\:", text, flags=re.IGNORECASE)
    # At the start of a line these would begin a heading, a list or a rule.
    text = re.sub(r"^( ?)([#+=-]+(?: |$))|^( ?\d+)([.)](?: |$))", r"\1\3\\\2\4", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(value: object) -> Markup:
    """A code span; a backtick or a line break cannot end it."""
    return Markup("`" + (" ".join(str(value).replace("`", "'").replace("|", "/").split()) or "–") + "`")


def yaml(value: str | float) -> Markup:
    """A value in front matter: JSON is YAML. A small number keeps a point, else YAML 1.1 reads it as text."""
    if isinstance(value, float):
        digits, exponent = f"{value:e}".split("e")
        return Markup(f"{float(digits)}e{exponent}")
    return Markup(json.dumps(value, ensure_ascii=False))


def figure(name: str, caption: str) -> Markup:
    """A reference to the picture ``figures/NAME.svg`` beside the report, with a caption below it."""
    return Markup(f"![{name.replace('_', ' ')}](figures/{name}.svg)\\\n{escape(caption)}")


def standing() -> Markup:
    """A reference to the picture of the launch's state, which is redrawn when the state changes."""
    return Markup(f"![{_UNSEEN}]({STANDING})")


def slug(heading: str) -> str:
    """Anchor of a heading, the same one that other Markdown renderers make."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def to_html(text: str, figures: Mapping[str, str]) -> Markup:
    """HTML of a Markdown text.

    Beyond plain Markdown: a picture becomes the SVG of its name with a caption, a fourth-level heading
    folds the text below it, a quotation is a warning, a paragraph in bold has the style of a failure,
    headings and gates have anchors, and each cell holds the label of its column, since a narrow screen
    shows the cells of a row one below the other.

    Args:
      figures: trusted SVG by name; a picture without one is replaced by its alternative text.
    """
    env: EnvType = {"figures": figures, "folded": False, "heads": [], "column": 0}
    page = _PARSER.render(text, env)
    return Markup(page + _unfold(env))


class _Page(RendererHTML):
    """Renders tokens as the page's style sheet wants them; a method is the rule for its token."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        before = _unfold(env)
        if tokens[idx].tag != "h4":
            if tokens[idx].tag != "h1":
                tokens[idx].attrSet("id", slug(tokens[idx + 1].content))
            return before + self.renderToken(tokens, idx, options, env)
        env["folded"] = True
        return before + "<details><summary>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</summary>\n" if tokens[idx].tag == "h4" else self.renderToken(tokens, idx, options, env)

    def blockquote_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        tokens[idx].attrSet("role", "note")
        if _is_bold(tokens[idx + 2]):
            tokens[idx].attrSet("class", "bad")
        return self.renderToken(tokens, idx, options, env)

    def paragraph_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        if _is_figure(tokens[idx + 1], env):
            return '<figure tabindex="0">'  # it scrolls on a narrow screen, also by keys
        if _is_bold(tokens[idx + 1]):
            tokens[idx].attrSet("class", "fail")
        return self.renderToken(tokens, idx, options, env)

    def paragraph_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        if _is_figure(tokens[idx - 1], env):
            return "</figcaption></figure>\n"
        return self.renderToken(tokens, idx, options, env)

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        if tokens[idx].attrs["src"] == STANDING:
            return f'<img class="standing" src="{STANDING}" alt="{_UNSEEN}">'
        svg = env["figures"].get(_name(tokens[idx]))
        return f"{svg}<figcaption>" if svg else self.renderInlineAsText(tokens[idx].children, options, env)

    def hardbreak(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "" if tokens[idx - 1].type == "image" else "<br>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        end = next(at for at in range(idx, len(tokens)) if tokens[at].type == "thead_close")
        env["heads"] = [_words(tokens[at + 1]) for at in range(idx, end) if tokens[at].type == "th_open"]
        return '<div class="scroll">' + self.renderToken(tokens, idx, options, env)

    def tr_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        env["column"] = 0
        cell = list(tokens[idx + 2].children or ()) if tokens[idx + 1].type == "td_open" else []
        if env["heads"][0] == "gate" and [inner.type for inner in cell] == ["code_inline"]:
            tokens[idx].attrSet("id", f"gate-{slug(cell[0].content)}")
        return self.renderToken(tokens, idx, options, env)

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return self.renderToken(tokens, idx, options, env) + "</div>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        if tokens[idx].attrs.pop("style", None) == "text-align:right":
            tokens[idx].attrSet("class", "n")
        return self.renderToken(tokens, idx, options, env)

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        if label := env["heads"][env["column"]]:
            tokens[idx].attrSet("data-label", label)
        env["column"] += 1
        return self.th_open(tokens, idx, options, env)


_PARSER = (
    MarkdownIt("commonmark", {"html": False}, renderer_cls=_Page)
    .enable("table")
    .disable(["autolink", "reference", "html_block", "html_inline"])
)
_PARSER.validateLink = lambda url: _WITHIN.fullmatch(url) is not None  # type: ignore[method-assign]


def _unfold(env: EnvType) -> str:
    folded, env["folded"] = env["folded"], False
    return "</details>\n" if folded else ""


def _words(inline: Token) -> str:
    return "".join(token.content for token in inline.children or ())


def _name(image: Token) -> str:
    return PurePosixPath(str(image.attrs["src"])).stem


def _is_figure(inline: Token, env: EnvType) -> bool:
    return any(token.type == "image" and _name(token) in env["figures"] for token in (inline.children or ())[:1])


def _is_bold(inline: Token) -> bool:
    """Return whether a paragraph is one strong phrase as a whole."""
    drawn = [token for token in inline.children or () if token.content or token.nesting]
    ends = [at for at, token in enumerate(drawn) if token.type.startswith("strong_")]
    return ends == [0, len(drawn) - 1]
