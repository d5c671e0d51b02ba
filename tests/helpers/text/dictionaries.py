"""Small dictionaries for tests, and a strategy that makes any."""

from hypothesis import strategies as st

from pretrain.dictionary.content import Dictionary, Word

HEADER = {"dictionary": "main:en", "locale": "en", "version": "1"}
SMALL = Dictionary(
    HEADER,
    {
        "see": Word(150, {"you": 214}),
        "seen": Word(120),
        "you": Word(171, {"see": 200}, possibly_offensive=True),
        "ж": Word(10, not_a_word=True),
    },
)
# One byte, three bytes, and outside the basic plane; few, so that words share their beginnings.
_CHARACTERS = "abé'=#:ж漢😀"
_FREQUENCIES = st.integers(0, 255)


@st.composite
def dictionaries(draw: st.DrawFn) -> Dictionary:
    """Up to 60 words, each with up to five followers."""
    texts = draw(st.lists(st.text(_CHARACTERS, min_size=1, max_size=8), unique=True, max_size=60))
    flags = st.tuples(st.booleans(), st.booleans())
    words = {}
    for text in texts:
        followers = draw(st.dictionaries(st.sampled_from(texts), _FREQUENCIES, max_size=5))
        words[text] = Word(draw(_FREQUENCIES), followers, *draw(flags))
    return Dictionary(HEADER, words)
