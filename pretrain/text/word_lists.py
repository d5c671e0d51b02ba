"""Public word frequencies by language, of the package wordfreq."""

import langcodes

_NEAR = 9  # Distance of langcodes: the same language, or a usual substitute for it.


def word_frequencies(tag: str) -> dict[str, float]:
    """Share of running text of each word of the language, or of its usual substitute; empty if there is no list."""
    import wordfreq  # Slow to import, and needed here only.

    # wordfreq itself falls back to English for an unsupported language.
    lists = list(wordfreq.available_languages("small"))
    nearest, distance = langcodes.closest_match(langcodes.Language.get(tag), lists, max_distance=_NEAR)
    return wordfreq.get_frequency_dict(nearest, wordlist="small") if distance <= _NEAR else {}
