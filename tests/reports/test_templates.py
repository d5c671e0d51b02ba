"""What a reader sees: every number, loud warnings, populations apart, arms named for what they are."""

import math

import pytest

from reports.formats import FEATURES
from tests.helpers.reports.reports_example import LOCAL, REPORTS, block, drawn, example, rendered, visible


def test_every_number_that_matters_is_shown() -> None:
    disclosure = example()
    text = visible(rendered()["report.html"])
    for gate in disclosure.decision.gates:
        assert gate.id in text
        assert gate.title in text
    # Rounded up: rho 0.50012, mu 1.00012, epsilon 4.8812.
    losses = ("0.5002", "1.01", "4.89", "80.00")
    others = (
        "test-fixture-01",
        "held-out aggregates",
        "700,000",
        "of them train 700 or more",
        "1,390 or more",
        "+3.00 pp",
        "better",
        "a" * 64,
    )
    for shown in losses + others + disclosure.assumptions + disclosure.limitations:
        assert shown in text, shown


@pytest.mark.parametrize("name", REPORTS)
def test_another_disclosure_gives_other_numbers(name: str) -> None:
    """Nothing is typed into a template: changed values show, and the old ones are gone."""
    changed = rendered(
        accounting=block(
            "accounting", rho=0.7777, mu=math.sqrt(2 * 0.7777), epsilon=6.5432, epsilon_pld=6.5432, planned_rho=0.9
        ),
        mechanism=block("mechanism", rounds=23, report_goal=321, clip_norm=0.123),
        composition=block("composition", spends=[], total_rho=2.2222),
    )
    text = visible(changed[name])
    for shown in ("0.7777", "1.25", "6.55", "6.5432", "23 rounds", "321", "0.123", "2.2222"):
        assert shown in text
    for gone in ("0.5002", "1.01", "4.89", "4.8812", "0.5002", "16 rounds"):
        assert gone not in text


def test_losses_of_different_units_are_never_added() -> None:
    text = visible(rendered()["report.html"])
    assert "never added" in text
    assert "Whatever one device typed" in text
    assert "with the discovered words ε ≤ 7.03" in text
    for wrong in (4.8812 + 8.0, 0.50012 + 8.0, 4.8812 + 80.0):
        assert f"{wrong:.1f}" not in text


def test_weak_synthetic_seeded_and_held_are_said_loudly() -> None:
    calm = rendered()
    loud = rendered(
        launch=block("launch", synthetic_population=True, seeded_randomness=True),
        population=block("population", synthetic=True),
        mechanism=block("mechanism", randomness="seeded"),
        decision=block("decision", decision="hold", reasons=["budget exceeded"]),
        accounting=LOCAL["accounting"] | {"epsilon": 12.0, "epsilon_pld": 12.5, "agree": False},
        discovery=LOCAL["discovery"],
        participation=block("participation", violations=3),
        tool=block("tool", git_commit="abc-dirty"),
    )
    phrases = (
        "is synthetic",
        "trained on made-up text",
        "was seeded",
        "void",
        "on hold. Nothing was published",
        "above 10 is weak",
        "accountants do not agree",
        "violations: 3",
        "uncommitted changes",
    )
    for name in REPORTS:
        for phrase in phrases:
            assert phrase in visible(loud[name]), f"{name} lacks {phrase}"
            assert phrase not in visible(calm[name]).replace("Strong is ε", "")
    for shown in ("is synthetic", "was seeded", "void", "on hold. Nothing was published"):
        assert shown in loud["README.md"]
    assert 'class="red on"' in loud["report.html"]
    assert 'class="green on"' in calm["report.html"]
    assert loud["report.html"].count('<blockquote role="note" class="bad">') == 4
    # Two warnings, and the box of the worst facts.
    assert loud["report.html"].count('<blockquote role="note">') == 3
    assert "can tell that one device took part" not in loud["report.html"]


def test_a_launch_with_a_warning_is_amber() -> None:
    page = rendered(launch=block("launch", synthetic_population=True), population=block("population", synthetic=True))[
        "report.html"
    ]
    assert 'class="amber on"' in page
    assert "with warnings" in page


def test_missing_parts_still_give_a_report() -> None:
    files = rendered(
        decision=block("decision", decision="hold", reasons=["evidence is missing"]),
        audit=None,
        utility=None,
        curves={"pretraining": [], "adaptation": [], "fine_tuning": []},
        accounting=block("accounting", curve=[]),
        participation=block(
            "participation",
            observed_min_sep=None,
            observed_mins=None,
            observed_max_participations=0,
            participation_histogram={},
            separation_histogram={},
        ),
        discovery=block("discovery", layers=[], words=[]),
        composition=block("composition", spends=[]),
        artifacts=[],
    )
    for name in REPORTS:
        assert "No audit was made" in files[name]
        assert "No comparison was made" in files[name]


def test_a_ceiling_that_rank_one_stays_under_says_nothing() -> None:
    row = block("audit")["canaries"][0]
    most = math.log2(2_000_000)
    for bits, said in ((most + 1, "says nothing"), (most - 1, f"{most - 1:.1f}"), (None, "none")):
        audit = block("audit", canaries=[row | {"ceiling_bits": bits}], stress=None)
        assert f'data-label="ceiling" class="n">{said}</td>' in rendered(audit=audit)["report.html"]


def test_bad_findings_stand_out() -> None:
    row = block("audit")["canaries"][0] | {"ceiling_bits": 1.0, "exposure_bits": 1.5, "found_by_beam": True}
    audits = [block("audit")["audits"][0] | {"verdict": "failed"}]
    gates = block("decision")["gates"][:1]
    page = rendered(
        audit=block("audit", canaries=[row], stress=None, audits=audits),
        decision=block("decision", decision="hold", reasons=["r"], gates=[gates[0] | {"passed": False}]),
        participation=block("participation", violations=3),
    )["report.html"]
    for bad in ("fail", "1.50", "found", "failed", "bounds broken", "3"):
        assert f"<strong>{bad}</strong>" in page
    assert "<em>pass</em>" not in page
    assert "<strong>1 of them speaks against the claim</strong>" in page
    assert "none of them speaks against the claim" in rendered()["report.md"]


def test_words_are_shown_only_where_the_launch_lists_them() -> None:
    assert "not listed here: nobody has looked at them." in rendered()["report.html"]
    assert "are not listed here." in rendered(discovery=block("discovery", reviewed=True))["report.html"]
    assert "<code>haha</code>" in rendered(discovery=block("discovery", words=["haha"]))["report.html"]


def test_turnout_is_told_where_it_is_known() -> None:
    seen = block("participation", rounds_below_goal=5, mean_devices=180, check_ins=430, fewest_check_ins=0)
    text = rendered(participation=seen)["report.md"]
    assert "fewer devices than the report goal: 5 of 16" in text
    assert "as a mean: 180 or more." in text
    assert "as a mean: 430 or more, and in the worst hour fewer than 10." in text
    assert "fewer devices than the report goal" not in rendered()["report.md"]


def test_the_rounds_hours_are_told_by_the_clock() -> None:
    table = {"run_days": 3.0, "shortest_minutes": 3.8, "median_minutes": 44.0, "longest_minutes": 1600.0}
    full = {"rounds_below_goal": 0, "mean_devices": 200, "check_ins": 430, "fewest_check_ins": 90}
    seen = block("participation", **full, timetable=table | {"median_minutes_by_part": [4.0, 44.0, 1300.0]})
    text = rendered(participation=seen)["report.md"]
    assert "the run took 3 days; a round took 3.8 to 1600 minutes, 44 as a median." in text
    assert "reserved at 4 apart, the least that the server let in, and 4 came out." in text
    assert "By the clock" not in rendered(participation=block("participation", **full))["report.md"]


def test_histograms_are_told_and_drawn() -> None:
    files = rendered()
    for name in REPORTS:
        assert "2: 40 or more; 3: 460 or more; 4: 410 or more" in files[name]
        assert "4: 1,390 or more" in files[name]
    assert "Participation of protected devices" in files["report.html"]  # drawn
    assert drawn()["participation"] in files["report.html"]


def test_stress_stands_apart_and_counts_nowhere_else() -> None:
    files = rendered()
    for name in REPORTS:
        before, under = files[name].split("Under stress")
        assert "no gate reads them" in under
        assert "90,000" in under
        assert "90,000" not in before
    without = rendered(audit=block("audit", canaries=block("audit")["canaries"][:1], stress=None))
    assert all("Under stress" not in without[name] for name in REPORTS)


def test_the_report_says_where_each_canary_lives() -> None:
    held = "The launched model holds the canaries of devices that obey the timer and no others."
    for name in REPORTS:
        text = visible(rendered()[name])
        assert held in text
        assert "The others live on a twin that never ships" in text
        assert "always available, all of them on the twin" in text
    twin = block("audit")["twin"] | {"populations": ["compliant", "stress"]}
    nowhere = rendered(audit=block("audit", in_launch=[], twin=twin))["report.md"]
    assert "The launched model holds none of these canaries. They live on a twin" in nowhere
    everything = rendered(audit=block("audit", in_launch=["compliant", "stress"], twin=None))["report.md"]
    assert "obey the timer and those of devices under stress." in everything
    assert "twin" not in everything.split("## Memorisation audit")[1].split("Audits of the noise")[0]
    before = rendered(audit=block("audit", in_launch=None, twin=None, control=None))["report.md"]
    assert "The launched model holds all of these canaries." in before
    assert "**No positive control was made" in before


def test_what_the_control_found_stands_beside_the_audit() -> None:
    assert "Those with the most copies are found" in rendered()["report.md"]
    assert "1,234,567" in rendered()["report.md"].split("Positive control")[1]
    rows = [block("audit")["control"]["rows"][1] | {"found": 1}]
    lost = rendered(audit=block("audit", control=block("audit")["control"] | {"rows": rows}))
    assert "<strong>Those with the most copies are not all found" in lost["report.html"]


def test_the_launch_s_feature_comes_first_with_its_sums() -> None:
    for feature, first in (("NWP", "Next-word prediction"), ("OTF", "On-the-fly rescoring")):
        text = rendered(launch=block("launch", feature=feature, features=[feature]))["report.md"]
        assert text.index(first) == min(text.index(f"{name} (") for name in FEATURES.values())
        assert "of this launch" in text
        assert f"{52_252 * 0.09:,.1f}" in text
    nothing = block("utility", features={"NWP": [], "SC": [], "OTF": []}, session_words=0)
    assert "None of its metrics could be estimated" in rendered(utility=nothing)["report.md"]


def test_each_feature_of_a_launch_has_its_rows_verdicts_and_champion() -> None:
    utility = block("utility")
    verdict = {**utility["verdicts"][0], "feature": "OTF", "primary": "words_modified"}
    judged = [row | {"feature": "NWP"} for row in utility["verdicts"]]
    theirs = {**utility["champion"], "registered_model": "keyboard-en-US-OTF", "launch_id": "test-fixture-77"}
    other = {"champion": theirs, "attempt": 5, "broken_margins": [], "missing_metrics": [], "worse_than_champion": []}
    text = rendered(
        launch=block("launch", features=["NWP", "OTF"]),
        utility=utility | {"others": {"OTF": other}, "verdicts": [*judged, verdict]},
    )["report.md"]
    assert "# Privacy disclosure: NWP, OTF for en-US" in text
    assert text.count(": a feature of this launch") == 2
    assert "One model for NWP, OTF" in text
    assert "attempt 5" in text
    assert "keyboard-en-US-OTF" in text
    assert "| OTF | this launch | public model with the new words | *yes* | words modified (WMR) |" in text
    assert "Smart Compose (SC), with the same model" in text


@pytest.mark.parametrize(
    ("at_rate", "said"),
    [
        ([], "**equally precise** on other devices: Trigger Rates compare here, unless PRates differ."),
        (["non_private"], "offering as often as public model with the new words instead: trained without privacy"),
        (["start", "private", "non_private"], "all arms offer phrases **equally often**"),
    ],
)
def test_how_phrases_were_made_comparable_is_said(at_rate: list[str], said: str) -> None:
    assert said in rendered(utility=block("utility", compose_at_rate=at_rate))["report.md"]


def test_an_arm_without_privacy_is_named_as_one_everywhere() -> None:
    for name in REPORTS:
        text = visible(rendered()[name])
        assert "must never be trained on people's own text" in text
        assert text.count("trained without privacy, simulation only") >= 5
        assert "non_private" not in text


def test_what_users_have_is_named_or_said_to_be_missing() -> None:
    assert "test-fixture-00" in rendered()["report.md"]
    missing = rendered(utility=block("utility", champion=None))["report.md"]
    assert "No earlier launch of NWP for en-US" in missing


@pytest.mark.parametrize("name", REPORTS)
def test_attempts_margins_and_what_they_can_tell_are_said(name: str) -> None:
    text = visible(rendered()[name])
    for shown in ("Intervals: 99.24%", "This is attempt 2", "they went on to 6,000 words", "3.12%", "0.78%", "96.00%"):
        assert shown in text, shown
