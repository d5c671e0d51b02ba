"""Text that is not like its locale is told from text that is, and nothing else of it is said."""

import pytest

from pretrain.text.likeness import MOST_WORDS, unlikeness
from pretrain.text.tokenise import sentences

GERMAN = (
    "Wir haben heute leider keine Zeit. Kannst du mir morgen das Buch mitbringen? Ich bin schon auf dem Weg nach Hause."
)
ENGLISH = "We do not have any time today. Can you bring me the book tomorrow? I am already on my way home."
SPANISH = "Hoy no tenemos tiempo para nada. ¿Me puedes traer el libro mañana? Ya estoy en el camino a casa."
PORTUGUESE = "Hoje não temos tempo para nada. Você pode me trazer o livro amanhã? Eu já estou no caminho de casa."
FINNISH = "Meillä ei ole tänään yhtään aikaa. Voitko tuoda minulle sen kirjan huomenna? Olen jo matkalla kotiin."
HINDI = "आज हमारे पास समय नहीं है। क्या तुम कल मेरे लिए किताब ला सकते हो?"
TYPED = {
    "de-DE": GERMAN,
    "en-US": ENGLISH,
    "es-ES": SPANISH,
    "pt-BR": PORTUGUESE,
    "fi-FI": FINNISH,
    "hi-IN": HINDI,
}


def unlike(text: str, locale: str) -> str:
    return unlikeness(sentences(text, locale), locale)


@pytest.mark.parametrize("locale", TYPED)
@pytest.mark.parametrize("typed", TYPED)
def test_languages_are_told_apart(typed: str, locale: str) -> None:
    # Public lists of Finnish have much English.
    if (typed, locale) != ("en-US", "fi-FI"):
        assert (unlike(TYPED[typed], locale) == "") == (typed == locale)


def test_another_script_is_said_first() -> None:
    assert "no letter of the script of hi-IN" in unlike("aaj hamare paas samay nahi hai yaar", "hi-IN")
    assert "few of the common words of en-US" in unlike(GERMAN, "en-US")


def test_letters_of_another_alphabet() -> None:
    assert unlike("to je to, co ja mam", "en-US") == ""
    spoken = "I have one brother and he said that the børn are at the skøle. "
    assert "letters that en-US does not use" in unlike(spoken, "en-US")
    assert unlike(ENGLISH * 20 + spoken, "en-US") == ""


@pytest.mark.parametrize("text", ["", "\U0001f600 \U0001f602", "12 34", "ok", "yes. no. ok."])
def test_little_text_says_nothing(text: str) -> None:
    assert unlike(text, "en-US") == ""


def test_a_language_without_a_list_has_a_script() -> None:
    assert unlike("ሰላም ነው", "am-ET") == ""
    assert "script of am-ET" in unlike(ENGLISH, "am-ET")


def test_the_first_words_decide() -> None:
    said = [["we", "do", "not", "have", "time"]]
    assert (
        unlikeness(said * (MOST_WORDS // 5) + [["wir", "haben", "heute", "keine", "zeit"]] * MOST_WORDS, "en-US") == ""
    )
