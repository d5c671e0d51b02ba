"""The launch file of a rehearsal: a launch file of people's text, with made-up people and the sizes of this machine.

All that differs from the file is found by comparing both, so that no stand-in is left unsaid.
"""

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.audit.directions import most_directions
from federated.config.population import Splits
from pipeline.launch.config import LaunchConfig, all_fields, load_launch
from pretrain.config import placed

# Least sizes of a network that learns anything, and of its training.
_LEAST = {
    "vocabulary": {"base_size": 64, "max_new_words": 8},
    "model": {"embedding_dim": 16, "hidden_dim": 24},
    "pretrain": {"steps": 15, "evaluate_every_steps": 5},
    "adapt": {"steps": 15},
    "public_text": {"max_tokens": 20_000, "max_validation_tokens": 2_000},
    "discovery": {"max_prefixes": 20},
}
# A smaller network cannot remember the papers' grid of canaries: of six with 200 copies it completed none.
_REMEMBERS = 0.1
# Of a matrix, whose number of weights is what scales.
_WIDTHS = ("base_size", "max_new_words", "embedding_dim", "hidden_dim", "max_prefixes")
# Noise of one sum over devices: fewer devices take as much less of it.
_NOISES = (
    ("mechanism", "noise_multiplier"),
    ("mechanism", "adaptive_clipping", "bit_noise_std"),
    ("counts", "noise_multiplier"),
    ("discovery", "noise_multiplier"),
    ("evaluation", "noise_multiplier"),
)
# A budget's largest rho is 1,000, and two launches are rehearsed.
_MOST_RHO = 100.0
_CEILINGS = {"population_max_discovery_epsilon": 1e4, "population_max_words_epsilon": 1e5, "max_total_epsilon": 1e4}
# Gates on what a model has learned from people, or remembers of so few: made-up typists say nothing of either.
NOT_EXERCISED: dict[str, float | None] = {
    "min_canary_rank": 1,
    "min_top1_gain": -1.0,
    "max_top3_loss": 1.0,
    "min_variety": 0.0,
    "min_ngram_gain": -1.0,
    "min_new_word_top3": None,
}
# A mean over fewer devices wanders, and recall falls below its margins: rounds are fewer before they are smaller.
_STEADY, _LEAST_ROUNDS = 100, 12
_PATHS = (("public_text", "train"), ("public_text", "validation"), ("discovery", "blocklist"))
_OF_ROUNDS = ("min_sep", "max_participations", "bands")
# Held-out people: for an interval of recall within its margins, for one of simulated typing, and in a bucket.
_LEAST_HELD_OUT, _LEAST_TYPED, _IN_A_BUCKET = 400, 1_000, 6
_WHY = {
    "name": "a launch of its own",
    "public_text": "public text for this machine",
    "private_text": "made-up people, who can never be people's population",
    "reviewers": "whoever rehearses answers",
    "server.learning_rate": "half; the second launch has the file's own and replaces the first",
    "ab_test.session_words": "not exercised: typing of so few held-out people cannot be told from the start's",
    **dict.fromkeys(
        (f"mechanism.{name}" for name in ("rounds", *_OF_ROUNDS)), "rounds of fewer devices would teach by chance"
    ),
    "private_text.test_fraction": "recall of fewer people cannot be told from the start's",
    "ab_test.buckets": "as many as so few held-out people fill",
    **dict.fromkeys(
        ("audit.users", "audit.examples", "audit.repeats"), "as many canaries as so small a network can remember"
    ),
    "audit.directions": "as many as so small a network can tell apart",
    "runtime.device": "no GPU here",
    "discovery.blocklist": "the file is not here",
    "discovery.anonymity": "as many fewer as people",
    "mechanism.report_goal": "as many fewer as people",
    "planning": "as many fewer as people",
    "policy": "ceilings that fewer people need",
    **{f"policy.{name}": "not exercised: made-up typists say nothing of it" for name in NOT_EXERCISED},
    **{".".join(path): "as much less as people, so that an average has the same noise" for path in _NOISES},
}


@dataclass(frozen=True)
class StandIn:
    """A field of the launch file that has another value in the rehearsal."""

    field: str
    own: object
    here: object
    why: str


@dataclass(frozen=True)
class Rehearsed:
    """A launch file, and its rehearsal's fields.

    Attributes:
      people: made-up devices; ``own_people``: those that the file's forecast counts.
      scale: of the network, its vocabulary and its public training.
      noise: of each sum, as a share of the file's own; the share of people, unless the ledger's largest rho is less.
    """

    own: LaunchConfig
    fields: dict[str, Any]
    own_people: int
    people: int
    scale: float
    noise: float
    stand_ins: tuple[StandIn, ...]


def rehearsed(
    path: Path, folder: Path, people: int | None, scale: float, public: tuple[str, ...], *, by: str, mirror: bool
) -> Rehearsed:
    """Put stand-ins into a launch file.

    Args:
      folder: of the rehearsal; its made-up text goes there.
      people: made-up devices; None: as many as the file's own.
      public: files in the layout of C4, in place of the file's public text.
      by: the account that reviews.
      mirror: C4 is read from a mirror of the hub.

    Raises:
      ValueError: the file's text is no people's, it states no number of people, or an option is out of range.
    """
    own, before = load_launch(path), all_fields(path)
    if own.private_text.simulated:
        raise ValueError(
            f"{path.name}: private_text.source is {own.private_text.source!r}, so nobody is asked: launch it, as in "
            f"'tacit launch {path}'"
        )
    if own.planning is None:
        raise ValueError(f"{path.name}: planning.population_estimate: missing; add the devices that may take part")
    most = own.planning.population_estimate
    if not 200 <= (people := people or most) <= most:
        raise ValueError(f"--people: {people:,} is not from 200 to {most:,}, the file's planning.population_estimate")
    if not 0 < scale <= 1:
        raise ValueError(f"--scale: {scale:g} is no share; give one above 0 and up to 1, as in 0.1")
    share = people / most
    noise = max(share, math.sqrt(own.policy.max_rho / _MOST_RHO))
    after = {name: deepcopy(value) for name, value in before.items() if value is not None and name != "experiment"}
    _resize(after, scale)
    _fewer_people(own, after, share, noise, people)
    small = own.model.model_copy(update=after["model"]).weights(after["vocabulary"]["base_size"])
    after["audit"]["directions"] = min(own.audit.directions, most_directions(small))
    _machine(own, after, folder, public, by=by, mirror=mirror)
    compared = dict(_leaves(before)), dict(_leaves(after))
    stand_ins = tuple(_stand_ins(*compared))
    for block, name in _PATHS:  # Its launch files lie elsewhere.
        if after[block].get(name):
            after[block][name] = _placed(after[block][name], path.absolute().parent)
    return Rehearsed(own, after, most, people, scale, noise, stand_ins)


def _resize(fields: dict[str, Any], scale: float) -> None:
    for block, sizes in _LEAST.items():
        for name, least in sizes.items():
            if name in fields.get(block, {}):
                own = fields[block][name]
                share = math.sqrt(scale) if name in _WIDTHS else scale
                fields[block][name] = min(own, max(least, round(own * share)))

    if scale < _REMEMBERS:
        examples = fields["audit"]["examples"]
        fields["audit"] |= {
            "users": fields["audit"]["users"][:1],
            "examples": [examples[0], examples[-1]],
            "repeats": 1,
        }


def _fewer_people(own: LaunchConfig, fields: dict[str, Any], share: float, noise: float, people: int) -> None:
    for *blocks, name in _NOISES:
        block = fields
        for each in blocks:
            block = block.get(each, {})
        if name in block:
            block[name] *= noise
    fraction = max(own.private_text.test_fraction, min(_LEAST_HELD_OUT / people, 0.3))
    fields["private_text"]["test_fraction"], held_out = fraction, math.floor(people * fraction)
    train = Splits(fraction).training(people) / own.private_text.splits.training(round(people / share))
    mechanism, places = fields["mechanism"], own.mechanism.rounds * own.mechanism.report_goal * train
    mechanism["rounds"] = rounds = min(own.mechanism.rounds, max(_LEAST_ROUNDS, math.floor(places / _STEADY)))
    mechanism["report_goal"] = goal = math.floor(places / rounds)
    mechanism |= {name: min(mechanism[name], rounds) for name in _OF_ROUNDS if name in mechanism}
    fields["planning"] |= {"population_estimate": people, "max_report_goal": goal}
    fields["planning"]["target_rho"] /= noise**2
    fields["ab_test"]["buckets"] = max(2, min(own.ab_test.buckets, held_out // _IN_A_BUCKET))
    fields["server"]["learning_rate"] /= 2
    if held_out < _LEAST_TYPED:
        fields["ab_test"]["session_words"] = 0
    if "anonymity" in fields["discovery"]:
        fields["discovery"]["anonymity"] = max(2, round(fields["discovery"]["anonymity"] * share))
    policy = fields["policy"]
    policy["max_rho"] /= noise**2
    if "population_max_rho" in policy:
        policy["population_max_rho"] /= noise**2
    if "budget" in policy:
        policy["budget"]["rho"] /= noise**2
    policy |= {name: most for name, most in _CEILINGS.items() if name in policy}
    policy |= {name: bound for name, bound in NOT_EXERCISED.items() if name in policy}


def _machine(
    own: LaunchConfig, fields: dict[str, Any], folder: Path, public: tuple[str, ...], *, by: str, mirror: bool
) -> None:
    fields["name"] = f"rehearsal-{fields['name']}"
    text = fields["private_text"]
    fields["private_text"] = {
        "source": "made_up_files",
        "name": fields["name"],
        "paths": [str(folder / "people" / "*.parquet")],
        **{name: text[name] for name in ("max_words_per_device", "test_fraction") if name in text},
    }
    if public or (fields["public_text"]["source"] == "c4" and not mirror):
        sizes = {name: value for name, value in fields["public_text"].items() if name.startswith("max_")}
        made_up = [str(folder / "public" / "*.json.gz")]
        fields["public_text"] = {"source": "files", "train": _placed(public, Path.cwd()) or made_up, **sizes}
    if not Path("/dev/nvidia0").exists():
        fields["runtime"]["device"] = "cpu"
    if fields.get("reviewers"):
        fields["reviewers"] = [by]
        if "approvals" in fields["policy"]:
            fields["policy"]["approvals"] = 1
    listed = own.discovery.blocklist
    if listed and not Path(listed).is_file():
        fields["discovery"]["blocklist"] = str(folder / "blocklist.txt")


def _placed(value: Any, folder: Path) -> Any:
    """A path, or several, of a launch file in this folder, as a file in any folder names it."""
    return str(placed(value, folder)) if isinstance(value, str) else [_placed(each, folder) for each in value]


def _leaves(value: object, field: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(each, f"{field}.{name}" if field else name)
    else:
        yield field, value


def _stand_ins(before: dict[str, object], after: dict[str, object]) -> Iterator[StandIn]:
    """Compare a launch file's fields with those of its rehearsal."""
    for field in {**before, **after}:
        if before.get(field) != after.get(field):
            why = _WHY.get(field) or _WHY.get(field.partition(".")[0], "--scale")
            yield StandIn(field, before.get(field), after.get(field), why)
