"""Draft of a launch file from a few answers, with the mechanism that the planner finds for the population."""

import math
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from discovery import outlook
from discovery.config import CentralConfig, DiscoveryConfig
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.counts import CountsConfig
from federated.config.mechanism import MOST_DEVICES, MechanismConfig
from federated.config.planning import SPARE_FRACTION, PlanningConfig
from federated.config.population import Splits
from federated.config.training import ServerConfig
from federated.counts.bounded_sum import MOST_DEVICES as MOST_COUNTED
from federated.devices import readers
from federated.participation.cohorts import most_assigned
from federated.planning import gain, law
from federated.planning.search import block_at, counts_at, round_up, terms_of
from pipeline.ground.errors import LedgerMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import (
    LIKE,
    LaunchConfig,
    all_fields,
    fields,
    inherited,
    load_launch,
    problems,
    require_file_name,
)
from pipeline.preflight.devices import MOST_COUNTED_BYTES, filters_of, no_row
from pipeline.preflight.frontier import LEFT_BY_WORDS, rho_within
from pipeline.preflight.shortfalls import refusals
from pipeline.preflight.vocabulary import propose
from pipeline.releases.central_words import central_discovery
from pipeline.releases.release import Outlook
from pipeline.releases.terms import Terms
from pipeline.releases.total import total
from pipeline.releases.uses import planned
from pretrain.config import C4_REVISION, FOLDER, CorpusConfig, FileCorpus
from pretrain.files import write_text
from pretrain.reading import rows
from pretrain.reading.objects import is_address
from pretrain.reading.paths import require_folder, shown
from pretrain.text import tokenise
from pretrain.text.packaged import packaged_texts
from pretrain.text.sources import open_stream
from pretrain.text.tokenise import require_spaced_script
from reports.disclosure.total import Total
from reports.losses import up

SYNTHETIC = "synthetic"
SAMPLES = ("sample", "sample-with-chat")
_DELTA, _SURE = 1e-6, 0.1  # usual delta, while it is at most this many of a device's share
_CORPUS: TypeAdapter[CorpusConfig] = TypeAdapter(CorpusConfig)
# Templates of launch files, and the least number of devices of each.
_TEMPLATES = Path(__file__).with_name("drafts")
_CLASSES = ((0, "small"), (20_000, "medium"), (500_000, "large"))
# ``tacit init --small``: a third of the time of each stage that trains.
_QUICK = {
    "vocabulary": {"base_size": 2_000},
    "model": {"hidden_dim": 128},
    "pretrain": {"steps": 1_000, "evaluate_every_steps": 200},
    "adapt": {"steps": 20},
}
_MOST_GOAL = 6_500
# Share of the longest way that gains within 0.1 points of it.
_LONG_ENOUGH = 0.85
# With fewer, a launch is refused; with few, a fifth of them may be too few to compare on.
_FEWEST, _FEW = 60, 120
_LIMITS = ("max_words_per_device", "test_fraction")  # fields that every source of private text has
# Devices that tell a gain of 0.2 points, as more would only take time; and the least share that is held out.
_JUDGES, _LEAST_SHARE = 2_000, 0.01
# Largest share of rho for words that an aggregator finds.
_WORDS_SHARE = 0.1
# Share of devices beyond which a word that so many hold is in public text.
_HARDLY_ANY = 0.5
# More than the words of any packaged text.
SAMPLE_WORDS = 5_000_000
# Words of public files that a draft counts, in about ten seconds, and keeps.
MOST_PUBLIC_WORDS = 100_000_000


@dataclass(frozen=True)
class Answers:
    """Answers that determine a draft of a launch file.

    Attributes:
      data, public: paths or globs of private and of public text, or the name of a source.
      epsilon: largest total epsilon of one device over all releases of this launch.
      rho: largest loss of one device to this launch; None for the largest that epsilon allows.
      budget: largest loss of one device to all launches, as rho; None for three launches.
      days: length of the window in which the budget holds; None: no window.
      counted: how the devices of the files were counted; empty if they were not.
      changes: values of fields of the drafted launch file, by dotted name, which replace the planner's.
      small: whether the model is one that trains in a minute or two.
      here: installation whose ledger may know these people already.
    """

    name: str
    locale: str
    data: str
    public: str
    population: int
    epsilon: float
    rho: float | None = None
    budget: float | None = None
    days: int | None = None
    counted: str = ""
    changes: Mapping[str, object] = field(default_factory=dict)
    small: bool = False
    here: Settings | None = None


@dataclass(frozen=True)
class Words:
    """Word discovery that the total leaves room for.

    Attributes:
      block: the block ``discovery`` of the launch file.
      rho: of the discovery, about training devices.
      epsilon: of one device to words found locally, 0 if they are found centrally.
      learning_rho: left for training and counts.
      reason: sentence for the launch file.
    """

    block: dict[str, Any]
    rho: float
    epsilon: float
    learning_rho: float
    reason: str

    @property
    def launch_rho(self) -> float:
        """Rho of one training device to the launch, rounded up."""
        return round_up(self.rho + self.learning_rho, 3)


@dataclass(frozen=True)
class Draft:
    """A drafted launch file, with its worst-case loss.

    Attributes:
      reasons: why its population is too small for it; empty if it suffices.
      total: loss of one device to all releases, at worst.
      notes: how devices were counted, which words are found and why, and how much public text is read.
      next: commands that are left from here to a launch.
    """

    file: Path
    feasible: bool
    reasons: tuple[str, ...]
    total: Total
    notes: tuple[str, ...]
    next: tuple[str, ...]
    mechanism: MechanismConfig = field(metadata={"json": False})
    counts: CountsConfig | None = field(metadata={"json": False})


def change(given: str) -> tuple[str, object]:
    """Name and value of ``--set NAME=VALUE``; the value is written as in a launch file.

    Raises:
      ValueError: it is not of this form.
    """
    name, equals, value = given.partition("=")
    if not (equals and re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)*", name)):
        raise ValueError(f"--set: {shown(repr(given))} is no NAME=VALUE; write it as in pretrain.steps=1000")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ValueError(f"--set: {shown(repr(value))} is no value of a launch file, for {name}") from error


def _change(content: dict[str, Any], changes: Mapping[str, object], *, new_blocks: bool) -> None:
    """Replace values of a launch file; what they make invalid is named as in ``tacit check``."""
    for name, value in changes.items():
        *blocks, last = name.split(".")
        at = content
        for block in blocks:
            if not isinstance(at.setdefault(block, {}) if new_blocks else at.get(block), dict):
                raise ValueError(f"--set: {name}: the drafted file has no block {block}; it has {', '.join(at)}")
            at = at[block]
        at[last] = value


def require_new(file: Path) -> None:
    """ValueError unless a launch file of that name can be created; an existing file is never overwritten."""
    require_folder(file.parent, "FILE", "make that folder first")
    if file.exists():
        raise ValueError(f"FILE: {shown(file)} exists, and is not overwritten; give another name, or move it away")
    require_file_name(file)


def counted_devices(data: str, locale: str) -> tuple[int, str] | None:
    """Devices of the locale in the files, in tens, and how they were counted; None for what is not counted here.

    Raises:
      ValueError: no file matches, one is damaged, or no row is of the locale.
    """
    if data == SYNTHETIC:
        return None
    paths = rows.stored([data], "--data")
    if sum(path.stat().st_size for path in paths) > MOST_COUNTED_BYTES:
        return None
    found = readers.count([data], locale)
    if not found.devices:
        raise ValueError(f"--locale: {no_row(found, locale, 'give the locale of your text')}")
    return readers.tens(found.devices), filters_of(found, locale)


def require_enough(devices: int, filters: str) -> None:
    """ValueError unless counted devices are enough for a launch."""
    if devices < _FEWEST:
        raise ValueError(
            f"--data: {devices}+ devices, and a launch needs {_FEWEST}: {filters}; give more data, or another --locale"
        )


def epsilon_of(rho: float) -> float:
    """Total epsilon of a launch that spends this rho, rounded up."""
    if not (math.isfinite(rho) and rho > 0):
        raise ValueError(f"--rho: got {rho:g}; give a number from 0.0001 to 10,000, as in 0.5")
    return float(f"{math.ceil(100 * epsilon_of_rho(rho, _DELTA)) / 100:.12g}")


def draft(file: Path, answers: Answers) -> Draft:
    """Write the launch file.

    Raises:
      ValueError: an answer is invalid for a launch file, named by its option; then no file is written.
    """
    from evaluation.audit.directions import most_directions

    require_new(file)
    _require(answers)
    answers = _from_folder(file, answers)
    content = _template(answers)
    content["public_text"], amount = _public(file, answers, content["public_text"])
    splits = Splits(content["private_text"]["test_fraction"])
    words = _words(answers, splits, content)
    content["discovery"] = words.block
    _limit(answers, content["policy"], words)  # refused before public text is read, which takes seconds
    most = content["vocabulary"]["base_size"]
    corpus = _CORPUS.validate_python(content["public_text"], context={FOLDER: file.parent})
    sizes = propose(corpus, answers.locale, most, _finds(answers, splits, words))
    content["vocabulary"] |= {"base_size": sizes.base, "max_new_words": sizes.new}
    _learn(answers, splits, content, words.learning_rho)
    content = {name: value for name, value in content.items() if value is not None}
    _change(content, answers.changes, new_blocks=False)
    config = _valid(content)
    if "audit.directions" not in answers.changes:
        most = most_directions(config.model.weights(config.vocabulary.base_size))
        content["audit"]["directions"] = min(config.audit.directions, most)
        config = _valid(content)
    changed = {name.partition(".")[0] for name in answers.changes}
    reasons = {"public_text": amount, "vocabulary": sizes.reason, "discovery": words.reason}
    comments = {block: why for block, why in reasons.items() if why and block not in changed}
    made = _drafted(file, answers, config, tuple(comments.values()))
    write_text(file, _text(content, answers, comments))
    load_launch(file)
    return made


def draft_like(file: Path, like: Path, answers: Answers) -> Draft:
    """Write a launch file that is like another one: its own name, locale, people and public text, and ``changes``.

    Everything else is inherited whenever the file is read, the mechanism and the policy among it.

    Args:
      answers: ``public`` empty for the other file's, in the language of the new locale.

    Raises:
      ValueError: an answer is invalid, or the launch that results is; then no file is written.
    """
    require_new(file)
    other = load_launch(like)
    if like.resolve().parent != file.resolve().parent:
        raise ValueError(f"--like: {shown(like)} is in another folder than {shown(file)}; put both in one folder")
    _require(answers)
    answers = _from_folder(file, answers)
    content: dict[str, Any] = {LIKE: like.name, "name": answers.name, "locale": answers.locale}
    if answers.public:
        content["public_text"] = (
            {"source": answers.public}
            if answers.public in SAMPLES
            else _public(file, answers, _template(answers)["public_text"])[0]
        )
    elif other.public_text.source == "c4" and other.public_text.subset != (tongue := answers.locale.partition("-")[0]):
        content["public_text"] = {"subset": tongue}
    if other.tuning == "this population":  # a simulated one: for the new people its text is public
        content["tuning"] = "public text"
    content["private_text"] = people = _people(answers)
    if other.private_text.source != people["source"]:
        content["private_text"] = people | other.private_text.model_dump(include=set(_LIMITS))
    if other.planning is not None:
        content["planning"] = {"population_estimate": answers.population}
    _change(content, answers.changes, new_blocks=True)
    config = _valid(inherited(content, fields(like)))
    made = _drafted(file, answers, config, (f"report.intended_use: {config.report.intended_use}",))
    head = f"# Like {like.name} but for these lines; made by tacit init for about {answers.population:,} devices."
    counted = [f"# {answers.counted}."] if answers.counted else []
    write_text(file, "\n".join([head, *counted, yaml.safe_dump(content, sort_keys=False, allow_unicode=True)]))
    return made


def _delta(answers: Answers) -> float:
    """Delta of the launch: of millions, a hundredth of one device's share or less."""
    few = answers.population * _DELTA <= _SURE
    return _DELTA if few else 10.0 ** math.floor(-math.log10(100 * answers.population))


def _people(answers: Answers) -> dict[str, Any]:
    """Source and name of the block ``private_text``."""
    if answers.data != SYNTHETIC:
        return {"source": "files", "name": answers.name, "paths": [answers.data]}
    return {"source": SYNTHETIC, "name": f"synthetic-{answers.name}", "devices": min(answers.population, 10_000_000)}


def _template(answers: Answers) -> dict[str, Any]:
    """The launch file of the population's size class, with the names, people and smaller sizes of the answers."""
    size = next(size for least, size in reversed(_CLASSES) if answers.population >= least)
    content = all_fields(_TEMPLATES / f"{size}.yaml")
    for block, sizes in _QUICK.items() if answers.small else ():
        content[block] |= sizes
    content["mechanism"]["delta"], content["discovery"]["delta"] = _delta(answers), _delta(answers) / 2
    limits = {name: content["private_text"][name] for name in _LIMITS} | {"test_fraction": _test_share(answers)}
    people = _people(answers) | limits
    return content | {"name": answers.name, "locale": answers.locale, "private_text": people}


def _drafted(file: Path, answers: Answers, config: LaunchConfig, notes: tuple[str, ...]) -> Draft:
    """The draft, with the file's worst-case loss, and whether its population suffices, as 'tacit plan' finds them."""
    splits = config.private_text.splits.expected(answers.population)
    terms = Terms.of_file(config, splits)
    reasons = tuple(refusals(terms))
    return Draft(
        file=file,
        feasible=not reasons,
        reasons=reasons,
        total=terms.total,
        notes=tuple(note for note in (answers.counted, *notes) if note),
        next=_next(file, answers, config),
        mechanism=config.mechanism,
        counts=config.counts,
    )


def _require(answers: Answers) -> None:
    """ValueError for an answer that no launch file could hold, by the name of its option."""
    if not _FEWEST <= answers.population <= MOST_DEVICES:
        raise ValueError(
            f"--population: got {answers.population:,}; give {_FEWEST} to {MOST_DEVICES:,}: fewer devices cannot "
            "fill a round or give a comparison"
        )
    try:
        require_spaced_script(answers.locale)
    except ValueError as error:
        raise ValueError(f"--{error}") from error
    if answers.data != SYNTHETIC:
        rows.stored([answers.data], "--data")
    if answers.public not in (*SAMPLES, "c4", ""):
        rows.matching([answers.public], "--public")
    for name, value in (("epsilon", answers.epsilon), ("rho", answers.rho), ("budget", answers.budget)):
        if value is not None and not (math.isfinite(value) and 1e-4 <= value <= 1e4):
            raise ValueError(f"--{name}: got {value:g}; give a number from 0.0001 to 10,000, as in 0.5")
    if answers.rho is not None and epsilon_of_rho(answers.rho, _delta(answers)) > answers.epsilon:
        raise ValueError(
            f"--rho: {answers.rho:g} is epsilon {up(epsilon_of_rho(answers.rho, _delta(answers)))} at delta "
            f"{_delta(answers):g}, more "
            f"than the total of --epsilon {answers.epsilon:g}; lower it, or leave it out for all that this total allows"
        )
    if answers.days is not None and answers.days < 1:
        raise ValueError(f"--days: got {answers.days}; give a number of days from 1 on, or leave it out")
    if answers.public in SAMPLES:
        try:
            packaged_texts(answers.locale, chat=answers.public == "sample-with-chat")
        except ValueError as error:
            raise ValueError(f"--public: {str(error).removeprefix('public_text.source: ')}") from error


def _from_folder(file: Path, answers: Answers) -> Answers:
    """Answers whose paths begin at the folder of the launch file, where those of a person begin at the shell's."""

    def path(given: str, *names: str) -> str:
        if given in names or is_address(given) or os.path.expanduser(given) != given:  # noqa: PTH111 - of a text
            return given
        return str(Path(os.path.relpath(Path.cwd().resolve(), file.parent.resolve()), given))

    return replace(answers, data=path(answers.data, SYNTHETIC), public=path(answers.public, *SAMPLES, "c4", ""))


def _limit(answers: Answers, policy: dict[str, Any], words: Words) -> None:
    """Set the ceilings of a policy: those on words found locally by all launches are epsilon, rounded up.

    Raises:
      ValueError: the budget of all launches is less than the rho of this one.
    """
    budget = float(f"{3 * words.launch_rho:.12g}") if answers.budget is None else answers.budget
    if budget < words.launch_rho:
        raise ValueError(
            f"--budget: {budget:g} is less than one launch may lose, rho {words.launch_rho:g}; raise it, or lower "
            "--rho or --epsilon"
        )
    launches = math.floor(budget / words.launch_rho * (1 + 1e-9))  # like this one, that the budget allows
    window = None if answers.days is None else {"rho": budget, "days": answers.days}
    policy |= {"max_rho": words.launch_rho, "max_total_epsilon": answers.epsilon, "budget": window}
    policy["population_max_rho"] = budget if window is None else None
    policy["population_delta"] = max(
        policy["population_delta"], 2 * launches * _delta(answers)
    )  # room for the words' deltas
    most = policy["max_discovery_epsilon0"]
    local = (most, launches * most, math.ceil(1e3 * launches * words.epsilon) / 1e3)
    names = ("max_discovery_epsilon0", "population_max_discovery_epsilon", "population_max_words_epsilon")
    policy |= zip(names, local if words.epsilon else (None, None, None), strict=True)
    for name in [name for name, value in policy.items() if value is None]:
        del policy[name]


def _test_share(answers: Answers) -> float:
    """``private_text.test_fraction``: enough people to judge by, and no more of many."""
    if answers.population < _CLASSES[1][0]:
        return 0.3 if answers.population < _FEW else 0.2
    return max(round(_JUDGES / answers.population, 3), _LEAST_SHARE)


def _words(answers: Answers, splits: Splits, content: dict[str, Any]) -> Words:
    """Choose local discovery if the total leaves at least half of the rho to training, and central discovery otherwise.

    Guarantee: the total of the launch is at most that of the answers.

    Args:
      content: its discovery is the local one; what words cost does not depend on its mechanism.
    """
    most = math.inf if answers.rho is None else answers.rho
    config, train = _valid(content), _surely_train(answers.population, splits)
    found = planned(config, Outlook(0.0, train))["discover"]
    alone = _rounded_down(min(most, rho_within(config, {}, answers.epsilon)))
    beside = _rounded_down(min(most, rho_within(config, {"discover": found}, answers.epsilon)))
    cost = total(config, {"discover": found}).epsilon
    if beside >= LEFT_BY_WORDS * alone:
        why = f"Words: found under local privacy, at epsilon {up(cost)} of the total of {answers.epsilon:g}."
        return Words(content["discovery"], 0.0, found.device_epsilon or 0.0, beside, why)
    noise = round_up(1 / math.sqrt(2 * _WORDS_SHARE * alone), 3)
    # A device that holds more contributes some of them, and each is found less often; noise hardly follows the bound.
    few, many = outlook.held(content["vocabulary"]["base_size"])
    block = {
        "kind": "central",
        "noise_multiplier": noise,
        "words_per_device": -(-many // 10) * 10,
        "delta": _delta(answers) / 2,
    }
    central = CentralConfig.model_validate(block)
    spend = central_discovery(central)
    left = _rounded_down(min(alone - central.rho, rho_within(config, {"discover": spend}, answers.epsilon)))
    share = outlook.least_share(central, train, few)
    finds = "finds them" if share < _HARDLY_ANY else "finds hardly any among so few devices"
    why = (
        f"Words: a trusted aggregator {finds}; local privacy would cost epsilon {up(cost)}, of a total of "
        f"{answers.epsilon:g}."
    )
    return Words(block, central.rho, 0.0, left, why)


def _finds(answers: Answers, splits: Splits, words: Words) -> Callable[[int], outlook.Reach]:
    """Forecast of a draft's discovery beyond a base vocabulary of so many words."""
    config: DiscoveryConfig = TypeAdapter(DiscoveryConfig).validate_python(words.block)
    train = _surely_train(answers.population, splits)
    alphabet = tokenise.alphabet(answers.locale)
    return lambda base: outlook.reach(config, train, alphabet, base)


def _rounded_down(rho: float) -> float:
    """Round down to three digits."""
    place = 10.0 ** (2 - math.floor(math.log10(rho))) if rho > 0 else 1.0
    return math.floor(rho * place * (1 + 1e-12)) / place


def _public(file: Path, answers: Answers, most: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The block ``public_text``, and how much of the text its ``max_tokens`` keeps.

    Args:
      most: the block of the size class.
    """
    most, tokens = {name: most[name] for name in ("max_tokens", "max_validation_tokens")}, most["max_tokens"]
    if answers.public in SAMPLES:
        amount = "Public text: the packaged sample, in full."
        if answers.public == "sample-with-chat":
            amount = (
                "Public text: the packaged sample with typed chat, in full; --public sample is for people who wrote it."
            )
        return {"source": answers.public, **most, "max_tokens": SAMPLE_WORDS}, amount
    if answers.public == "c4":
        subset = answers.locale.partition("-")[0]
        return (
            {"source": "c4", "subset": subset, "revision": C4_REVISION, **most},
            f"Public text: the first {tokens:,} words of C4, whose stream max_tokens ends.",
        )
    block = {"source": "files", "train": [answers.public], **most}
    found = 0
    corpus = FileCorpus.model_validate(block, context={FOLDER: file.parent})
    for document in open_stream(corpus, answers.locale, "train"):
        found += len(document.text.split())
        if found > MOST_PUBLIC_WORDS:
            amount = f"max_tokens keeps {MOST_PUBLIC_WORDS:,} words, and the files have more"
            return block | {"max_tokens": MOST_PUBLIC_WORDS}, f"Public text: {amount}."
    if not found:
        raise ValueError(f"--public: {shown(answers.public)} has no text; give files with some")
    # The tokeniser finds somewhat more words than there are between spaces.
    full = max(tokens, math.ceil(1.3 * found))
    return block | {"max_tokens": full}, f"Public text: all of about {found:,} words."


def _learn(answers: Answers, splits: Splits, content: dict[str, Any], rho: float) -> None:
    """Set training and counts of this rho by the way that the forecast prefers, and the sizes that follow from them.

    Counts of so few that noise or canaries would drown training ship alone; those of more people move its start, which
    has the rest of the rho. Of so many that the sum of counts could overflow there are none.
    """
    begun, planning = content["mechanism"], content["planning"]
    # Number of devices that train with high probability, as the planner's population estimate.
    population, expected = answers.population, splits.training(answers.population) * (1 - SPARE_FRACTION)
    population = math.floor(population * min(1.0, _surely_train(answers.population, splits) / expected))
    trains, server = splits.training(population), ServerConfig(learning_rate=1.0)
    usable = int(round(trains * (1 - SPARE_FRACTION), 6))
    base = content["vocabulary"]["base_size"]
    words = base + content["vocabulary"]["max_new_words"]
    first = counts_at(gain.COUNTS_SHARE * rho, trains, words, "network") if trains < MOST_COUNTED else None
    rest = rho - (first.rho if first else 0.0)

    def training(joins: int) -> tuple[MechanismConfig, float, float]:
        """Rounds that a device joins at most so often, the way that their noise allows, and its share of a longest."""
        goal = max(2, min(_MOST_GOAL, joins * usable // begun["rounds"]))
        limits = {"population_estimate": population, "max_report_goal": goal, "target_rho": rho}
        terms = terms_of(PlanningConfig.model_validate(planning | limits), splits, server)
        begins = begun | {"report_goal": goal, "max_participations": joins}
        found = block_at(TypeAdapter(MechanismConfig).validate_python(begins), terms, rest, thorough=False)
        way = law.way(found, server) * law.server_rate(found, server)
        return found, way, way / law.longest_way(found, server)

    joins = begun["max_participations"]
    mechanism, way, share = training(joins)
    # Of many people fewer reports allow almost as long a way, in half the time.
    while joins > 1 and share >= 1 - 1e-9:
        joins //= 2
        fewer, its_way, share = training(joins)
        if share < _LONG_ENOUGH:
            break
        mechanism, way = fewer, its_way
    little = gain.lead(way, gain.heard(trains, rho)).points <= 0
    if first is not None and (little or _crowded(content["audit"], mechanism)):
        first = counts_at(rho, trains, words, "start-mixture")
    content["mechanism"] = {"kind": mechanism.kind} | mechanism.model_dump(mode="json", exclude_defaults=True)
    content["counts"] = first and first.model_dump(mode="json")
    planning |= {"population_estimate": answers.population, "max_report_goal": mechanism.report_goal, "target_rho": rho}
    # The rate whose step noise the network bears, to two digits.
    content["server"] = {"learning_rate": float(f"{law.server_rate(mechanism, server):.2g}")}
    content["ab_test"]["buckets"] = max(2, min(20, int(answers.population * splits.test) // 2))


def _crowded(grid: Mapping[str, Any], mechanism: MechanismConfig) -> bool:
    """Return whether canaries would have more than half of the places of a round."""
    canaries = sum(grid["users"]) * len(grid["examples"]) * grid["repeats"]
    joins = most_assigned(canaries, mechanism.rounds, mechanism.min_sep, mechanism.max_participations)
    return 2 * joins > mechanism.report_goal


def _surely_train(population: int, splits: Splits) -> int:
    """Training devices that all but one split in a thousand leave, rounded down to tens as a launch counts them."""
    expected = splits.training(population)
    return readers.tens(math.floor(expected - 3 * math.sqrt(expected * (1 - expected / population))))


def _valid(content: dict[str, Any]) -> LaunchConfig:
    try:
        return LaunchConfig.model_validate(content)
    except ValidationError as error:
        raise ValueError("\n".join(problems(error))) from error


def _text(content: dict[str, Any], answers: Answers, comments: Mapping[str, str]) -> str:
    """Format the launch file.

    Args:
      comments: a line before a block, by its name.
    """
    whose = "made-up typists" if answers.data == SYNTHETIC else answers.data
    head = [
        f"# Made by tacit init for about {answers.population:,} devices of {answers.locale}; private text: {whose}.",
        *([f"# {answers.counted}."] if answers.counted else []),
        "# 'tacit explain FIELD' explains a line, 'tacit plan' shows the launch's cost. The server rate is one",
        f"# whose noise the network bears (step noise {law.STEP_NOISE:g}); another rho, cohort or clip wants another.",
        "",
    ]
    lines = {name: value for name, value in content.items() if not isinstance(value, dict)}
    blocks = [lines, *({name: value} for name, value in content.items() if name not in lines)]
    texts = [yaml.safe_dump(block, sort_keys=False, allow_unicode=True) for block in blocks]
    wraps = textwrap.TextWrapper(118, initial_indent="# ", subsequent_indent="# ")
    above = ["".join(f"{wraps.fill(comments[name])}\n" for name in block if name in comments) for block in blocks]
    return "\n".join([*head, *(comment + text for comment, text in zip(above, texts, strict=True))])


def _next(file: Path, answers: Answers, config: LaunchConfig) -> tuple[str, ...]:
    """Commands that are left from here to a launch, the registered budget in place of a registration."""
    from pipeline.ledger.ledger import PrivacyLedger

    then = (f"tacit check {file}", f"tacit plan {file}", f"tacit launch {file}")
    policy, population = config.policy, None
    begin: tuple[str, ...] = ("tacit ledger init  (once)",)
    with suppress(LedgerMissing):
        if answers.here is not None:
            population, begin = PrivacyLedger.of(answers.here).registered(config.population), ()
    if population is not None:
        had = population.budget
        days = f" in any {had.window_days} days" if had.window_days else ""
        return (f"{then[0]}  ({config.population} is registered, for rho {had.max_rho:g}{days})", *then[1:])
    window = f" --window-days {policy.budget.days}" if policy.budget else ""
    ceiling = policy.population_max_words_epsilon
    words = "" if ceiling is None else f" --max-words-epsilon {ceiling:g}"
    budget = policy.budget.rho if policy.budget else policy.population_max_rho
    register = (
        f"tacit ledger register {answers.name} --max-rho {budget:g}{words} "
        f"--delta {policy.population_delta:g}{window} "
        + (" ".join(f"--reviewer {name}" for name in config.reviewers) or "--min-approvals 0")
    )
    first = [] if answers.data == SYNTHETIC else [f"{register}  (once: its budget)"]
    return (*begin, *first, *then)
