"""A disclosure for tests, and its pages. No launch made these numbers."""

import functools
import html
import json
import re

from federated.accounting.gaussian import epsilon_of_rho
from reports.disclosure.document import Disclosure
from reports.render import draw, pages

REPORTS = ("report.html", "report.md")
# By hand: the example's training has epsilon 5.0171 at half of its delta of 1e-6.
TOTAL = {
    "epsilon": 7.0211,
    "delta": 1e-6,
    "parts": [
        {
            "releases": ["local_words"],
            "split": "train",
            "epsilon": 2.004,
            "delta": 5e-7,
            "rho": None,
            "how": "shuffled",
        },
        {"releases": ["training"], "split": "train", "epsilon": 5.0171, "delta": 5e-7, "rho": 0.50012, "how": "noise"},
    ],
}
LOCAL_WORDS = {
    "name": "local_words",
    "epsilon0": 8.0,
    "messages_per_device": 10,
    "honest_share": 0.5,
    "device_level_epsilon0": 80.0,
    "device_epsilon_central": 2.004,
    "epsilon_central": 0.6,
    "epsilon_clones": 8.0,
    "epsilon_attack": 0.5,
    "delta": 1e-6,
    "certificate": "privacy blanket",
    "layers": [
        {"layer": n, "messages": 1100, "domain": 30, "kept": 20, "finished": n}
        | {"noise": 14.0, "word_votes": 9, "one_holder_chance": 0.0, "anonymity": 90, "lemma_1": 0.2}
        | {"clones": 8.0, "blanket": 7.9, "attack": 7.1}
        for n in (1, 2)
    ],
}
CENTRAL_WORDS = {
    "name": "central_words",
    "noise_multiplier": 2.28,
    "words_per_device": 50,
    "threshold": 13.1,
    "rho": 0.09618344105878733,
    "epsilon": 1.986,
    "delta": 1e-6,
    "failure": 3e-7,
    "forms_share": 0.05,
    "filled_share": 0.05,
}
COUNTS = {
    "name": "counts",
    "noise_multiplier": 3.0,
    "clip_norm": 1.0,
    "rho": 0.1,
    "epsilon": 2.02,
    "cells": 12_345,
    "contexts": 10,
    "start_weight": 2.0,
}
TRAINING = {
    "name": "training",
    "sensitivity_squared": 36.0,
    "rho": 0.50012,
    "mu": 1.00012,
    "delta": 1e-6,
    "epsilon": 4.8812,
    "epsilon_pld": 4.8812,
    "planned_rho": 0.6,
    "mechanism": {
        "kind": "tree",
        "clip_norm": 0.3,
        "noise_multiplier": 6.0,
        "rounds": 16,
        "report_goal": 200,
        "local_training": {"learning_rate": 0.5},
        "server": {"learning_rate": 1.0},
    },
    "participation": {
        "enforced_min_sep": 4,
        "enforced_max_participations": 4,
        "observed_min_sep": 4,
        "observed_mins": 3,
        "observed_max_participations": 4,
        "violations": 0,
        "synthetic_devices": 15,
        "participation_histogram": {"2": 40, "3": 460, "4": 410},
        "separation_histogram": {"4": 1390},
        "rounds_below_goal": 5,
        "mean_devices": 180,
        "check_ins": 430,
        "fewest_check_ins": 0,
        "timetable": {"run_days": 3.0, "shortest_minutes": 3.8, "median_minutes": 44.0, "longest_minutes": 1600.0}
        | {"median_minutes_by_part": [4.0, 44.0, 1300.0]},
    },
}
EVALUATION = {
    "name": "evaluation",
    "noise_multiplier": 1.0,
    "clip_norm": 1.25,
    "most_words": 50,
    "rho": 0.5,
    "epsilon": 4.8866,
}
# Splits whose devices bear the loss of a release; any other is about train devices.
_BORNE_BY = {"evaluation": ("test",)}


def example(**changes: object) -> Disclosure:
    """A whole disclosure; ``changes`` replaces top-level blocks."""
    curve = [{"step": float(step), "validation_loss": 8.0 - step / 4} for step in range(4)]
    arms = [
        {"arm": arm, "metric": metric, "value": value, "low": value - 0.01, "high": value + 0.01}
        | {"numerator": 52_252 * value, "denominator": 52_252.0}
        for arm, value in (("start", 0.06), ("private", 0.09), ("non_private", 0.12))
        for metric in ("top1_recall", "top3_recall", "cross_entropy", "prate", "words_modified", "compose_trigger_rate")
    ]
    content = {
        "tool": {"name": "tacit", "version": "0.0", "git_commit": "abc", "lock_digests": {"stages.lock": "d" * 64}},
        "launch": {
            "id": "test-fixture-01",
            "name": "test-fixture",
            "locale": "en-US",
            "feature": "NWP",
            "features": ["NWP"],
            "created_at": "2026-01-02T03:04:05+00:00",
            "contact": "the tests",
            "intended_use": "a test",
            "synthetic_population": False,
            "seeded_randomness": False,
            "ships": "network",
            "trust": "server",
            "tuning": "public text",
        },
        "decision": {
            "decision": "launch",
            "reasons": ["all gates passed"],
            "gates": [
                {
                    "id": f"gate_{n}",
                    "title": f"title {n}",
                    "value": n / 7,
                    "shown": f"{n / 7:.4g}",
                    "threshold": 2.0,
                    "passed": True,
                    "evidence": "e",
                }
                for n in range(5)
            ],
        },
        "data_accesses": [
            {"stage": "pretrain", "data": "public", "covered": False},
            {"stage": "fine_tune", "data": "private", "covered": True, "mechanism": "tree", "unit": "device"},
            {"stage": "ab_test", "data": "private", "covered": False, "reason": "held-out aggregates"},
        ],
        "unit": "device",
        "adjacency": "zero-out: a device's updates replaced by zeros",
        "output": "the final model",
        "assumptions": ["devices follow the protocol"],
        "public_text": {
            "source": "two texts",
            "licence": "each its own",
            "parts": [
                {"name": "letters", "licence": "public domain", "words": 3000},
                {"name": "made up by a model", "licence": "CC0", "words": 456, "synthetic": True},
            ],
            "documents": 12,
            "train_tokens": 3456,
            "left_out_documents": 0,
        },
        "population": {
            "name": "people",
            "source": "files",
            "synthetic": False,
            "devices_at_least": 990,
            "devices_by_split": {"train": 700},
            "other_locales": 1200,
            "days_kept": 60,
            "as_of": "2026-03-01",
            "older": 3400,
        },
        "accounting": {
            "rho": 0.50012,
            "mu": 1.00012,
            "delta": 1e-6,
            "epsilon": 4.8812,
            "epsilon_pld": 4.8812,
            "agree": True,
            "methods": ["route one", "route two"],
            "randomness": "secure",
            "total": TOTAL,
            "curve": [[1e-4, 3.8], [1e-6, 4.88], [1e-8, 5.7]],
        },
        "releases": [LOCAL_WORDS, TRAINING],
        "words": {
            "words_found": 5,
            "words_added": 2,
            "reviewed": False,
            "filters": [
                {"name": "blocklist", "sentence": "a word of the launch's blocklist", "dropped": 0},
                {"name": "digits", "sentence": "three digits in a row, or four in all", "dropped": 3},
            ],
            "dropped_by_person": None,
            "coverage": 0.21,
            "coverage_low": 0.18,
            "coverage_high": 0.24,
            "words": None,
            "given_files": {"blocked.txt": "e" * 64},
            "adaptation": {"new_words_in_text": 1, "new_word_sentences": 12, "copies": 20}
            | {"new_word_loss_before": 7.5, "new_word_loss_after": 6.5},
        },
        "composition": {
            "spends": [{"launch_id": "test-fixture-01", "stage": "fine_tune", "kind": "commit", "rho": 0.50012}],
            "launches": [
                {"launch_id": "test-fixture-01", "rho": 0.50012, "epsilon": 7.0211, "delta": 1e-6},
                {"launch_id": "test-fixture-00", "rho": 0.45689, "epsilon": 6.5, "delta": 1e-6},
            ],
            "total_rho": 0.50012,
            "ceiling_rho": 8.0,
            "window": {"days": 60, "ceiling_rho": 1.5, "most_rho": 0.95701},
        },
        "audit": {
            "random_continuations": 2_000_000,
            "alpha": 0.01,
            "worst_rank_single_user": 700_000,
            "max_exposure_bits": 1.5,
            "found_single_user": 0,
            "stress": {"canaries": 2, "worst_rank_single_user": 90_000, "max_exposure_bits": 4.5, "found": 0}
            | {"max_exposure_bits_single_user": 4.5, "found_single_user": 0},
            "broken_ceilings": 0,
            "pooled_p_value": 0.4,
            "in_launch": ["compliant"],
            "twin": {
                "populations": ["stress"],
                "pseudo_users": 920,
                "words_per_user": 33.7,
                "weights_sha256": "d" * 64,
            },
            "control": {
                "rounds": 32,
                "devices": 4,
                "rows": [
                    {"n_e": 1, "canaries": 2, "found": 0, "worst_rank": 1_234_567},
                    {"n_e": 14, "canaries": 2, "found": 2, "worst_rank": 1},
                ],
            },
            "seed_commitment": "c" * 64,
            "audits": [
                {"type": "noise_added", "tested": "released sums are the sums and all the noise of the key"}
                | {"verdict": "passed", "least_noise": 0.99, "least_clip": None},
                {"type": "noise_whiteness", "tested": "no two rounds share noise"}
                | {"verdict": "passed", "least_noise": None, "least_clip": None},
            ],
            "canaries": [
                {
                    "population": population,
                    "n_u": n_u,
                    "n_e": 14,
                    "participations": 4,
                    "rank": 700_000,
                    "rank_standard_error": 900.0,
                    "exposure_bits": 1.5,
                    "exposure_low_bits": 1.4,
                    "exposure_high_bits": 1.6,
                    "found_by_best_first": False,
                    "ceiling_bits": 10.2,
                    "found_by_beam": False,
                    "loss": 21.0,
                }
                for population in ("compliant", "stress")
                for n_u in (1, 4)
            ],
        },
        "release_audits": [
            {
                "stage": "count",
                "made_by": "test-fixture-01",
                "cited": None,
                "verdicts": [
                    {"name": "key", "tested": "the noise's key is the committed one", "slack": "any other key"}
                    | {"passed": True, "sentence": ""},
                    {"name": "sum", "tested": "released sums are contributions and noise", "slack": "one unit"}
                    | {"passed": True, "sentence": ""},
                ],
            }
        ],
        "utility": {
            "devices_at_least": 250,
            "words": 52_252,
            "session_words": 1500,
            "judged_words": 6000,
            "attempt": 2,
            "champion": {"registered_model": "keyboard-en-US-NWP", "version": 3, "launch_id": "test-fixture-00"}
            | {"bundle_sha256": "e" * 64},
            "simulation_without_privacy": True,
            "features": {"NWP": ["prate"], "SC": ["compose_trigger_rate"], "OTF": ["words_modified"]},
            "verdicts": [
                {"candidate": "private", "baseline": "start", "primary": "prate", "passes": True}
                | {"failed": [], "missing": [], "margin": 0.0312, "standard_error": 0.0078, "power": 0.96},
                {"candidate": "private", "baseline": "non_private", "primary": "prate", "passes": False}
                | {"failed": ["prate"], "missing": ["errors_left"]},
            ],
            "second_opinions": [
                {"candidate": "private", "baseline": "start", "metric": "prate", "jackknife": 0.004, "delta": 0.0041}
                | {"bootstrap": 0.0039, "agree": True}
            ],
            "head_words": [
                {"arm": arm, "words": words, "typed": 0.2, "predicted": share, "right": share}
                for arm, share in (("start", 0.6), ("private", 0.5), ("non_private", 0.4))
                for words in (10, 100, 1000)
            ],
            "variety": {"start": 12.5, "private": 13.4, "non_private": 14.0},
            "beginnings": [
                {"text": text}
                | {"suggested": {"start": ["god", "heaven", "you"], "private": ["you", "god", "(new word)"]}}
                | {"expected": {"start": first, "private": second}}
                for text, first, second in (("thank", 2, 3), ("see you", 0, 2))
            ],
            "unstable_signs": [{"candidate": "private", "baseline": "start", "metric": "errors_left"}],
            "slices": [
                {"part": part, "arm": "private", "metric": "top3_recall", "value": 0.2, "low": 0.1, "high": 0.3}
                for part in ("all", "rare_words")
            ],
            "confidence": 0.9924,
            "arms": arms,
            "differences": [
                {
                    "candidate": "private",
                    "baseline": "start",
                    "metric": "top1_recall",
                    "value": 0.03,
                    "low": 0.02,
                    "high": 0.04,
                },
                {"candidate": "private", "baseline": "start", "metric": "prate", "value": 0.03, "low": 0.02}
                | {"high": 0.04, "relative": {"value": 0.1, "low": 0.05, "high": 0.15}},
            ],
        },
        "curves": {
            "pretraining": curve,
            "adaptation": curve,
            "fine_tuning": [{"step": float(step), "validation_recall": 0.05 + step / 100} for step in range(4)],
        },
        "limitations": ["a limitation"],
        "artifacts": [{"stage": "fine_tune", "file": "model.safetensors", "sha256": "a" * 64}],
        "verification": {"ledger_head": "b" * 64, "ledger_entries": 4, "command": "tacit verify test-fixture-01"},
    }
    return Disclosure.model_validate(content | changes)


def block(name: str, /, **changes: object) -> dict:
    """A top-level block of the example with some fields replaced."""
    return json.loads(example().model_dump_json())[name] | changes


def releases(*made: dict, **training: object) -> dict[str, object]:
    """Changes by which the example makes these releases beside its words and training, and what follows from them.

    Args:
      made: those beside training; none: words found locally, as in the example.
      training: changed fields of training; within ``mechanism`` and ``participation`` the others stay.
    """
    trained: dict = TRAINING | {
        name: TRAINING[name] | value if isinstance(value, dict) and isinstance(TRAINING.get(name), dict) else value
        for name, value in training.items()
    }
    listed = [*(made or [LOCAL_WORDS]), trained]
    if not made and trained["rho"] == TRAINING["rho"]:
        return {"releases": listed}
    return {"releases": listed, "accounting": guarantee_of(*listed)}


def guarantee_of(*made: dict, how: str = "shuffled", delta: float = 1e-6) -> dict:
    """The accounting of a launch with these releases."""
    failure = sum(release.get("failure", 0.0) for release in made)
    parts = []
    for release in made:
        if release["name"] == "local_words":
            epsilon = release["device_level_epsilon0" if how == "local" else "device_epsilon_central"]
            at = 0.0 if how == "local" else delta / 2
            parts.append(
                {"releases": ["local_words"], "split": "train", "epsilon": epsilon, "delta": at, "rho": None}
                | {"how": how}
            )
    left = delta - sum(part["delta"] for part in parts)
    for split in ("train", "test"):
        noised = [each for each in made if "rho" in each and split in _BORNE_BY.get(each["name"], ("train",))]
        if noised:
            rho, at = sum(each["rho"] for each in noised), left if split == "train" else delta
            named = {"releases": [each["name"] for each in noised], "split": split, "how": "noise"}
            parts.append(named | {"epsilon": epsilon_of_rho(rho, at - failure), "delta": at, "rho": rho})
    rho = max(part["rho"] for part in parts if part["rho"] is not None)
    bound = max(sum(part["epsilon"] for part in parts if part["split"] == split) for split in ("train", "test"))
    loss = {"rho": rho, "mu": (2 * rho) ** 0.5, "delta": delta, "failure": failure}
    loss |= {name: epsilon_of_rho(rho, delta - failure) for name in ("epsilon", "epsilon_pld")}
    return block("accounting") | loss | {"total": {"epsilon": bound, "delta": delta, "parts": parts}}


@functools.cache
def drawn() -> dict[str, str]:
    """The example's figures, drawn once for all tests: they take seconds."""
    return draw(example())


def rendered(**changes: object) -> dict[str, str]:
    """Pages by file name of a changed example, with the figures of the unchanged one."""
    return pages(example(**changes), drawn())


def visible(text: str) -> str:
    """A page as it reads: no tags, no style, no pictures, entities resolved."""
    text = re.sub(r"<head>.*?</head>|<svg.*?</svg>", " ", text, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


def discovered(*layers: tuple[int, int], **changes: object) -> dict:
    """What a discovery states that asked so many devices about so many items in each layer."""
    row = LOCAL_WORDS["layers"][0]  # type: ignore[index]
    rows = [
        row | {"layer": n, "messages": 3 * asked, "domain": domain, "blanket": 1 / asked}
        for n, (asked, domain) in enumerate(layers, start=1)
    ]
    local = {"epsilon0": 2.0, "messages_per_device": 3, "device_level_epsilon0": 6.0, "epsilon_clones": 2.0}
    return LOCAL_WORDS | local | {"delta": 5e-7, "layers": rows} | changes


def group_of(accounting: dict, devices: int, epsilon: float) -> dict:
    """Loss of a person with several devices, beside a total; words take what the noised releases leave of epsilon."""
    total = accounting["total"]
    parts = []
    for part in total["parts"]:
        squared = None if part["rho"] is None else devices**2 * part["rho"]
        parts.append(part | {"rho": squared, "epsilon": epsilon * part["epsilon"] / total["epsilon"]})
    return total | {"devices": devices, "epsilon": epsilon, "parts": parts}


# The example with so few devices that shuffling hides none: words have their local bound, and training all of delta.
_UNHIDDEN = [LOCAL_WORDS | {"device_epsilon_central": 80.0, "epsilon_central": 7.9, "epsilon_attack": 7.1}, TRAINING]
LOCAL = {"releases": _UNHIDDEN, "accounting": guarantee_of(*_UNHIDDEN, how="local")}

ALL_COVERED = [{"stage": "discover", "data": "private", "covered": True, "mechanism": "LDP TrieHH", "unit": "device"}]
