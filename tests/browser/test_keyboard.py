"""A keyboard page in a real browser: it suggests what the bundle does, types, fits, and asks nobody for anything."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evaluation.keyboard import layouts
from pretrain.model.predictor import KeyboardPredictor
from pretrain.text import packaged, tokenise, vocabulary
from pretrain.writing import truecasing
from pretrain.writing.truecasing import Forms
from reports import site
from reports.keyboard import Writing
from tests.helpers.reports.browser import Page, tab
from tests.helpers.reports.keyboard_run import add_published, no_public_model, other_model, published_in
from tests.helpers.text.counted_devices import moved

pytestmark = pytest.mark.browser
LOCALE = "en-US"
DOCUMENTS, FOR_WORDS, MOST_WORDS = 900, 600, 1500
HARD = (
    *("Hello, world! How are you?", "one\ntwo\r\nthree", "well... ok… fine", "It’s o'clock, don‘t", "Dr. Who said"),
    *("at 5 pm", "see a@b.org or www.x.org/y now", "gr8 c++ :-) <3 ❤️ 👍🏽 🇺🇸", "rock 'n' roll, AT&T", "<name> is @me"),
    *("a.b.c. d", "U.S. e.g.", "state-of-the-art -dash-", "x" * 41 + " y", "/www.€ a", "o\ufe0f", "é e\u0301", ""),
    *("soft\u00adhyphen zero\u200bwidth", "ends here. ", 'he said "yes." ', "in 2026 ", "why?", "mr. "),
    *("so _very_ nice _and so_", "ﬁne ｈello 𝐡𝐨𝐰", "_foo_bar_ o_o _x", "no\u2060break oʻzbek"),
)


@pytest.fixture(scope="module")
def documents() -> list[str]:
    texts = packaged.documents(packaged.packaged_texts(LOCALE))
    return [document for _, document in itertools.islice(texts, DOCUMENTS)]


@pytest.fixture(scope="module")
def bundle(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words and capitals of real text; the held-out rest has words that it lacks."""
    counts: Counter[str] = Counter()
    forms: Forms = Counter()
    for document in documents[:FOR_WORDS]:
        cut = tokenise.sentences(document, LOCALE)
        counts.update(itertools.chain.from_iterable(cut))
        truecasing.add_forms(forms, cut, tokenise.written(document, LOCALE))
    words = vocabulary.from_counts(counts, MOST_WORDS).words[len(vocabulary.SPECIALS) :]
    usual = truecasing.of_words(truecasing.usual_forms(forms), words)
    return add_published(tmp_path_factory.mktemp("site") / "runs", "some-launch", words=words, usual=usual)


@pytest.fixture(scope="module")
def page(bundle: Path, chromium: str, onnxruntime_web: Path) -> Iterator[Page]:
    made = site.build(
        bundle.parents[3],
        onnxruntime_web,
        lambda locale: Writing(layouts.rows(locale), tokenise.for_browsers(locale)),
        published_in(bundle.parents[3]),
        other_model,
    )
    with tab(chromium) as opened:
        opened.open(made.keyboards[0], 1200)
        yield opened


def asked(page: Page, call: str, texts: list[str]) -> list:
    """What a function of the page says of each text."""
    page.evaluate(f"globalThis.texts = {json.dumps(texts)}")
    return page.evaluate(f"Promise.all(texts.map(text => {call}))")


@pytest.mark.slow
def test_where_a_mixture_ships_the_page_types_on_the_mixture(
    bundle: Path, documents: list[str], chromium: str, onnxruntime_web: Path, tmp_path: Path
) -> None:
    words = vocabulary.load(bundle / "vocabulary.json")
    cut = [sentence for document in documents[:FOR_WORDS] for sentence in tokenise.sentences(document, LOCALE)]
    tokens = np.concatenate([[*words.ids(sentence), vocabulary.EOS] for sentence in cut]).astype(np.int64)
    counts = moved(vocabulary.join_owners([tokens]), words)
    mixture = add_published(tmp_path / "runs", "mixed", words=words.words[len(vocabulary.SPECIALS) :], counts=counts)
    predictor, network = KeyboardPredictor(mixture), KeyboardPredictor(bundle)
    texts = ["", *(" ".join(sentence[: 1 + number % 4]) + " " for number, sentence in enumerate(cut[::40][:80]))]
    made = site.build(
        tmp_path / "runs",
        onnxruntime_web,
        lambda locale: Writing(layouts.rows(locale), tokenise.for_browsers(locale)),
        published_in(tmp_path / "runs"),
        no_public_model,
    )
    with tab(chromium) as opened:
        opened.open(made.keyboards[0], 1200)
        assert asked(opened, "tacit.suggest(text)", texts) == [predictor.suggest(line) for line in texts]
    others = sum(predictor.suggest(line) != network.suggest(line) for line in texts)
    assert others > len(texts) / 2, "the network alone says otherwise"


@pytest.mark.slow
def test_the_public_model_suggests_beside_it_and_what_it_lacks_is_marked(page: Page, bundle: Path) -> None:
    page.evaluate(
        "(field => { field.value = 'see you '; field.setSelectionRange(8, 8); "
        "field.dispatchEvent(new InputEvent('input')) })(document.getElementById('field'))"
    )
    launched, public = (asked(page, f"tacit.{name}(text)", ["see you "])[0] for name in ("suggest", "before"))
    assert launched != public
    seen = "[...document.querySelectorAll('#twin span')].map(each => each.textContent)"
    page.evaluate(f"new Promise(done => {{ const look = () => {seen}[0] ? done() : setTimeout(look, 50); look() }})")
    page.evaluate("new Promise(done => setTimeout(done, 300))")
    assert page.evaluate(seen) == public
    assert page.evaluate("document.getElementById('mirror').textContent") == "see you "
    marked = page.evaluate("[...document.querySelectorAll('#strip .taught span')].map(each => each.textContent)")
    assert marked == [word for word in launched if word not in public]


@pytest.mark.slow
def test_suggestions_are_those_of_the_predictor(page: Page, bundle: Path, documents: list[str]) -> None:
    predictor = KeyboardPredictor(bundle)
    held_out = [line for document in documents[FOR_WORDS:] for line in document.splitlines() if " " in line][:60]
    cuts = [len(line) // (2 + number % 3) for number, line in enumerate(held_out)]
    # Up to a space, up to the end, and the hard ones.
    begun = [line[: line.find(" ", cut) + 1] for line, cut in zip(held_out, cuts, strict=True)]
    texts = [*begun, *(f"{line} " for line in held_out), *(f"{line} " for line in HARD)]
    assert len(set(begun)) > 50
    known = {*vocabulary.load(bundle / "vocabulary.json").words}
    assert {word for line in held_out for word in line.lower().split()} - known, "some words are in no vocabulary"
    assert asked(page, "tacit.suggest(text)", texts) == [predictor.suggest(line) for line in texts]


@pytest.mark.slow
def test_the_word_being_typed_is_completed_by_the_same_probabilities(page: Page, bundle: Path) -> None:
    predictor = KeyboardPredictor(bundle)
    words = vocabulary.load(bundle / "vocabulary.json").words
    parts = ("a", "b", "c", "th", "s", "w")
    texts = [f"{before} {part}" for before in ("how are", "I think that", "see you at 5") for part in parts]
    wanted = []
    for line in texts:
        before, part = line.rsplit(" ", 1)
        score_V = predictor.probabilities(tokenise.unfinished(before, LOCALE)[0])
        fits = [number for number in np.argsort(-score_V, kind="stable") if words[number].startswith(part)]
        wanted.append([words[number] for number in fits[:3]])
    given = asked(page, "tacit.suggest(text)", texts)
    assert [[word.lower() for word in strip] for strip in given] == wanted
    without_apostrophe, capital, nothing = asked(page, "tacit.suggest(text)", ["so dont", "he said Th", "zzzq"])
    assert without_apostrophe == ["don't"]
    assert all(word.startswith("Th") for word in capital)
    assert (len(capital), nothing) == (3, [])


@pytest.mark.slow
def test_text_is_cut_as_python_cuts_it(page: Page, documents: list[str]) -> None:
    texts = [*HARD, *documents[FOR_WORDS:]]
    assert asked(page, "tacit.sentences(text)", texts) == [tokenise.sentences(each, LOCALE) for each in texts]
    begun = [[words, begins] for words, begins in (tokenise.unfinished(each, LOCALE) for each in HARD)]
    assert [[each["words"], each["begins"]] for each in asked(page, "tacit.unfinished(text)", list(HARD))] == begun


def strip_of(page: Page) -> list[str]:
    """What the strip shows once it is done."""
    page.evaluate("tacit.suggest('').then(() => new Promise(done => setTimeout(done, 50)))")
    return page.evaluate("[...document.querySelectorAll('#strip span')].map(word => word.textContent)")


def typed(page: Page) -> str:
    return page.evaluate("document.getElementById('field').value")


def tap(page: Page, selector: str) -> None:
    page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


@pytest.mark.slow
def test_typing_with_keys_and_with_taps(page: Page, bundle: Path) -> None:
    predictor = KeyboardPredictor(bundle)
    tap(page, "[data-key=clear]")
    assert page.evaluate("document.activeElement.id") == "field"
    assert strip_of(page) == predictor.suggest("")
    for key in "Thank ":
        page.press(key)
    first, second, _ = strip_of(page)
    assert [first, second] == predictor.suggest("Thank ", 2)
    page.press("2")
    assert typed(page) == f"Thank {second} "
    page.press("!")
    assert typed(page) == f"Thank {second}! ", "the mark stands where the space was"
    # The on-screen keys: a capital by itself, then a completion by tap, then a digit that no suggestion takes.
    for key in ("[data-letter=w]", "[data-letter=h]"):
        tap(page, key)
    assert typed(page).endswith("! Wh")
    offered = strip_of(page)
    assert all(word.startswith("Wh") for word in offered if word)
    tap(page, "#strip button")
    assert typed(page) == f"Thank {second}! {offered[0]} "
    tap(page, "[data-key=back]")
    assert typed(page) == f"Thank {second}! {offered[0]}"
    for key in " 41":
        page.press(key)
    assert typed(page).endswith(" 41"), "a digit after a digit goes on with the number"
    # Tab reaches the strip and Enter takes.
    page.press(" ")
    third = strip_of(page)[0]
    page.press("Tab")
    page.press("Enter")
    assert typed(page).endswith(f" 41 {third} ")
    assert page.evaluate("document.activeElement.id") == "field"


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_and_is_quiet(page: Page, bundle: Path, width: int) -> None:
    page.resize(width)
    strip_of(page)
    wide = (
        "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(wide) == 0
    keys = page.evaluate("[...document.querySelectorAll('.phone button')].map(e => e.getBoundingClientRect().height)")
    assert min(keys) >= 44, "as high as a finger"
    nameless = "[...document.querySelectorAll('button, textarea')].filter(e => !e.textContent && !e.labels?.length)"
    assert page.evaluate(f"{nameless}.filter(e => !e.disabled).length") == 0
    says = page.evaluate(
        "[...document.querySelectorAll('#after tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert [row[0] for row in says] == ["see you", "thank"], "the beginnings of the disclosure that gained most"
    assert [row[1:] for row in says] == [KeyboardPredictor(bundle).suggest(f"{row[0]} ") for row in says]
    assert "ms a word" in page.evaluate("document.getElementById('speed').textContent")
    assert (page.asked, page.complaints) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1200, False)])
def test_the_page_is_for_everybody(page: Page, axe: Path, width: int, dark: bool) -> None:
    page.resize(width, dark=dark)
    assert page.violations(axe) == []


@pytest.mark.slow
def test_the_policy_stops_what_would_connect(chromium: str, page: Page) -> None:
    refused = "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')"
    assert page.evaluate(refused) == "refused"
    assert [line for line in page.complaints if "Content Security Policy" in line]
    page.complaints.clear()
    page.asked.clear()
