"""Figures of discovery: they say their numbers, are the same every time, and refuse what they cannot draw."""

import pytest

from reports.figures.discovery import coverage_by_epsilon, domain_and_noise, of_discovery, words_by_layer
from tests.helpers.reports.reports_example import CENTRAL_WORDS, block, example, releases

CURVES = {"Random": [(2.0, 0.1), (8.0, 0.8)], "Greedy": [(2.0, 0.05), (8.0, 0.6)]}
DRAWN = [
    (lambda: coverage_by_epsilon(CURVES), "10.0% at 2 to 80.0% at 8"),
    (
        lambda: coverage_by_epsilon({"projected": [(2.0, 0.1), (8.0, 0.5)]}, measured=(8.0, 0.28, 0.26, 0.3)),
        "50.0% at 8; measured: 28.0% at 8",
    ),
    (lambda: words_by_layer([0, 3, 5], [0, 1, 0]), "8 words over 3 layers, 1 of them false"),
    (lambda: words_by_layer([0, 3, 5]), "8 words over 3 layers."),
    (lambda: domain_and_noise([102, 5000], [0.01, 0.02]), "At most 5,000 items"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "said"), DRAWN)
def test_a_figure_says_its_numbers_and_is_the_same_every_time(draw, said):
    svg = draw()
    assert said in svg
    assert 'role="img"' in svg
    assert "currentColor" in svg
    assert svg == draw()


@pytest.mark.parametrize(
    ("draw", "named"),
    [
        (lambda: coverage_by_epsilon({}), "curves"),
        (lambda: coverage_by_epsilon({"a": []}), "curves"),
        (lambda: words_by_layer([]), "words"),
        (lambda: words_by_layer([1, 2], [1]), "false"),
        (lambda: domain_and_noise([], []), "domains"),
        (lambda: domain_and_noise([1], [1.0, 2.0]), "noises"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, named):
    with pytest.raises(ValueError, match=named):
        draw()


@pytest.mark.slow
def test_the_report_holds_the_projection_and_what_was_measured():
    def drawn(**words: object) -> dict[str, str]:
        return of_discovery(example(words=block("words", **words)))

    said = "projected on public text: 10.0% at 2 to 50.0% at 10; measured: 21.0% at 8"
    assert said in drawn()["coverage_by_epsilon"]
    assert "coverage_by_epsilon" not in drawn(projection=())
    assert "measured" not in drawn(coverage=None, coverage_low=None, coverage_high=None)["coverage_by_epsilon"]
    assert of_discovery(example(**releases(CENTRAL_WORDS))) == {}
