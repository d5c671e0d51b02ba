"""Figures of discovery: they say their numbers, are the same every time, and refuse what they cannot draw."""

import pytest

from reports.figures.discovery import domain_and_noise, of_discovery, words_by_layer
from tests.helpers.reports.reports_example import CENTRAL_WORDS, example, releases

DRAWN = [
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
def test_the_report_draws_layers_and_nothing_of_a_central_discovery():
    assert set(of_discovery(example())) == {"words_by_layer", "domain_and_noise"}
    assert of_discovery(example(**releases(CENTRAL_WORDS))) == {}
