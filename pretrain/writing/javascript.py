"""The patterns of ``pretrain.text.tokenise`` for a browser: one definition of words, in two languages.

JavaScript (ECMAScript 2018, flag ``u``) has no possessive quantifiers, no verbose layout, no ``(*SKIP)`` and an ASCII
``\\w``. A lookahead keeps the first match that it finds, so a captured one stands for what may not be taken back.
"""

import regex

# Of a replacement: a match in which this group took part is none.
PASSED = "passed"
_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}"
_EDGE = rf"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))"
_SYNTAX = frozenset(r"^$\.*+?()[]{}|/")
_PART = regex.compile(
    r"""(?<code>\\(?:[pP]\{\w+\}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.))
      | (?<skip>\(\*SKIP\)\(\*FAIL\))
      | (?<open>\((?:\?(?:i?:|<?[=!]))?)
      | (?<close>\))
      | (?<many>(?:[*+?]|\{\d*,?\d*\})[+?]?)
      | (?<set>\[\^?(?:\\[pP]\{\w+\}|\\.|[^\]\\])+\])
      | (?<comment>\#[^\n]*)
      | (?<space>\s+)
      | (?<sign>.)""",
    flags=regex.VERBOSE | regex.DOTALL,
)


def translate(pattern: regex.Pattern) -> str:
    """The source of ``RegExp(source, "u")`` that matches lower-cased text as ``pattern`` does.

    ``(*SKIP)(*FAIL)`` becomes the group ``PASSED``. Letters match as they stand, also where ``(?i:`` takes any case.
    """
    verbose = bool(pattern.flags & regex.VERBOSE)
    begun: list[list[str]] = [[]]  # parts of every group that is open, the whole pattern first
    copied = 0
    for part in _PART.finditer(pattern.pattern):
        kind, text = part.lastgroup, part.group()
        if verbose and kind in ("comment", "space"):
            continue
        if kind == "skip":
            begun[-1].append(f"(?<{PASSED}>)")
        elif kind == "open":
            begun.append([text.replace("?i:", "?:")])
        elif kind == "close":
            whole = "".join(begun.pop()) + ")"
            begun[-1].append(whole)
        elif kind == "many" and len(text) > 1 and text.endswith("+"):
            copied += 1
            begun[-1].append(f"(?=(?<k{copied}>{begun[-1].pop()}{text[:-1]}))\\k<k{copied}>")
        elif kind == "many":
            begun[-1].append(begun[-1].pop() + text)
        elif kind == "set":
            inside = regex.sub(r"\\(?:[pP]\{\w+\}|U.{8}|.)", lambda code: _code(code.group(), inside=True), text)
            begun[-1].append(inside)
        else:
            begun[-1].append(_code(text, inside=False) if kind == "code" else text)
    return "".join(begun[0])


def _code(text: str, *, inside: bool) -> str:
    """JavaScript form of a backslash and its character, in a set or outside."""
    sign = text[1]
    if sign == "w":
        return _WORD if inside else f"[{_WORD}]"
    if sign == "b" and not inside:
        return _EDGE
    if sign == "U":
        return f"\\u{{{text[2:].lstrip('0')}}}"
    # Flag u takes no backslash before a character that means nothing.
    plain = not sign.isalnum() and sign not in _SYNTAX and not (inside and sign == "-")
    return sign if plain else text
