"""Language tags as systems and keyboards write them, in one form."""

import re
from functools import lru_cache

import langcodes

_LONGEST = 64  # a value of another column may be people's text


@lru_cache(maxsize=4_096)
def canonical(tag: str) -> str:
    """Canonical form of a tag (BCP 47, RFC 5646 section 4.5): language, script unless it is the usual one, region.

    POSIX and Java name locales in other ways (``pt_BR.UTF-8``, ``sr_RS_#Latn``), and old codes stand for new ones
    (``iw`` for ``he``). Variants and extensions, such as units of measurement, say nothing of the language typed.

    Returns:
      The tag as it is where it is none.
    """
    named, _, rest = re.split(r"[.@]", tag, maxsplit=1)[0].replace("_", "-").partition("#")
    script = re.match(r"[A-Za-z]{4}(?![A-Za-z0-9])", rest)
    parts = [part for part in named.strip().split("-") if part]
    if script:
        parts.insert(1, script[0])
    try:
        found = langcodes.Language.get("-".join(parts) if len(tag) <= _LONGEST else "")
    except langcodes.LanguageTagError:
        return tag
    usual = langcodes.Language.make(language=found.language, territory=found.territory)
    if not found.language or not usual.is_valid():
        return tag
    unusual = found.script if found.script != usual.maximize().script else None
    return usual.update_dict({"script": unusual}).to_tag() if unusual else usual.to_tag()
