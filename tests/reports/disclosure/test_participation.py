"""Who took part, as the report tells it; and a simulated report goal, as loud as can be."""

from pathlib import Path

from reports import formats
from reports.disclosure.document import Disclosure
from reports.render import render
from tests.helpers.reports_example import example

PAGES = ("report.html", "report.md", "README.md")


def block(name: str, **changes: object) -> dict:
    return example().model_dump()[name] | changes


def rendered(disclosure: Disclosure, directory: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in render(disclosure, directory) if path.is_file()}


def test_turnout_stands_in_both_reports(tmp_path: Path) -> None:
    seen = block("participation", rounds_below_goal=5, mean_devices=180, check_ins=430, fewest_check_ins=0)
    files = rendered(example(participation=seen), tmp_path)
    for name in PAGES[:2]:
        assert "fewer devices than the report goal: 5 of 16" in files[name]
        assert "as a mean: 180 or more." in files[name]
        assert "as a mean: 430 or more, and in the worst hour fewer than 10." in files[name]
    without = rendered(example(), tmp_path)
    assert not any("fewer devices than the report goal" in without[name] for name in PAGES[:2])


def test_both_histograms_stand_in_both_reports(tmp_path: Path) -> None:
    files = rendered(example(), tmp_path)
    assert "2: 40 or more; 3: 460 or more; 4: 410 or more" in files["report.md"]
    assert "Participation of protected devices" in files["report.html"]  # drawn
    for name in PAGES[:2]:
        assert "4: 1,390 or more" in files[name]


def test_a_long_histogram_is_put_together_in_ranges() -> None:
    counts = {str(key): 10 for key in range(372, 372 + 100)}
    said = formats.histogram(counts)
    assert said.startswith("372 to 376: 50 or more; 377 to 381: 50 or more; ")
    assert said.endswith("467 to 471: 50 or more")
    assert said.count(";") == 19
    assert formats.histogram({"1": 10, "1000": 0} | {str(key): 0 for key in range(2, 30)}).endswith(": fewer than 10")
