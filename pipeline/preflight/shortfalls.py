"""Checks that anticipate refusals of later stages, by the launch file and rounded counts of devices.

Guarantee: counts are rounded down, so a population that passes ``too_few`` has at least that many devices, and no stage
finds too few later. A sum has at most nine devices more than its count, and is checked against its limit with these.
``tacit check``, ``init``, ``plan``, the stage ``plan`` and the first spend, when the public vocabulary is known, ask
``refusals``; no later stage refuses what these checks could find (``tests/pipeline/preflight/test_shortfalls.py``).
"""

import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from evaluation.config import ALPHA
from pipeline.launch.config import LaunchConfig
from pipeline.releases.policy import above_policy
from pipeline.releases.terms import Terms
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import releases
from pretrain.text.packaged import documents, typed_text
from pretrain.text.tokenise import sentences
from pretrain.text.words import WordStore

if TYPE_CHECKING:
    from federated.secagg.bounds import Encoding

# Two people seldom write the same sentence of so many words; where so large a share of devices have one that public
# text has too, they are its authors; one document in five shows that.
_LONG_SENTENCE, _AUTHORS, _ONE_IN = 8, 0.1, 5
# A tenth of fewer devices, rounded down to tens, is at most one device.
FEW = 20


def of_file(config: LaunchConfig, size: int | None = None) -> list[str]:
    """Problems that later stages would find in the launch file's own fields.

    Args:
      size: least number of the model's parameters; None before the public vocabulary is known, so that it has as many
        as the file allows at most.
    """
    if not TRAINING.asked(config):
        return []
    from evaluation.audit.directions import unauditable

    rounds, sample = config.mechanism.rounds, config.mechanism.secret_sample
    size = most_parameters(config) if size is None else size
    # Under a timer a canary joins as soon as the timer allows.
    share = 1.0 if sample is None else 1 - (1 - sample.rate) ** rounds
    lines = [f"audit.directions: {line}" for line in unauditable(config.audit.directions, rounds, size, share)]
    return lines + _canaries_left_out(config, share)


def _canaries(terms: Terms) -> list[str]:
    words = terms.seen.known_words
    return of_file(terms.config, None if words is None else parameters(terms.config, len(words)))


def _canaries_left_out(config: LaunchConfig, share: float) -> list[str]:
    """Problems of canaries that would not train, or would leave no place to people.

    An honest launch would be held: the gates need a canary on one device that trained, and the verdict ``canaries_in``
    one of each population in the launch.

    Args:
      share: probability that a canary device joins some round.
    """
    from federated.participation.cohorts import most_assigned

    grid, mechanism = config.audit, config.mechanism
    devices = sum(grid.users) * len(grid.examples) * grid.repeats
    if mechanism.secret_sample is None:
        most = most_assigned(devices, mechanism.rounds, mechanism.min_sep, mechanism.max_participations)
        if most < mechanism.report_goal:
            return []
        return [
            f"audit: {devices} canary devices, of which {most} join one round, fill the {mechanism.report_goal} places "
            "of mechanism.report_goal, and no person trains in it; lower audit.users, audit.examples or audit.repeats"
        ]
    alone = len(grid.examples) * grid.repeats if 1 in grid.users else 0
    missed = (1 - share) ** alone
    if not alone or missed <= ALPHA:
        return []
    return [
        f"audit.repeats: {grid.repeats}, so {alone} canaries are on one device, and the secret sample leaves all "
        f"of them out with probability {missed:.2g}; chance holds at most {ALPHA:g} of honest launches: raise "
        f"audit.repeats until at least {math.ceil(math.log(ALPHA) / math.log1p(-share))} are, or mechanism.rounds"
    ]


def parameters(config: LaunchConfig, words: int) -> int:
    """Number of the model's parameters with a vocabulary of ``words``, without torch, which is slow to import."""
    embedding, hidden = config.model.embedding_dim, config.model.hidden_dim
    gates = 3 * hidden
    matrices = 1 if config.model.tied else 2
    return words * (matrices * embedding + 1) + (2 * embedding + 1) * gates + hidden * embedding


def most_parameters(config: LaunchConfig) -> int:
    """Number of the model's parameters if every place for a new word is used."""
    return parameters(config, config.vocabulary.base_size + config.vocabulary.max_new_words)


def short_of_devices(terms: Terms) -> list[str]:
    """Problems of stages that have too few devices, and of rounds that would not fill.

    Of splits that are not drawn yet those that no draw of the keyed hash would mend; drawn ones may have more.
    """
    config, expected = terms.config, terms.splits
    if expected is None:
        return []
    if terms.drawn:
        return _short(config, expected)
    devices = sum(expected.values())
    # Includes the nine devices that rounding may hide; exceeded with probability one in a thousand.
    most = {
        name: math.floor(part + 3 * math.sqrt(part * (1 - part / devices))) + 9 if devices else 9
        for name, part in expected.items()
    }
    lines, sure = _short(config, expected), {line.partition(":")[0] for line in _short(config, most)}
    return [line for line in lines if line.partition(":")[0] in sure or (sure and devices < FEW)]


def _large_delta(terms: Terms) -> list[str]:
    devices, delta = sum((terms.splits or {}).values()), terms.config.mechanism.delta
    if not devices or delta < 1 / devices:
        return []
    return [
        f"mechanism.delta: {delta:g} allows all text of one of {devices}+ devices to be released; "
        f"lower it to {1 / (100 * devices):.0e} or less"
    ]


def _short(config: LaunchConfig, devices_by_split: Mapping[str, int]) -> list[str]:
    lines = too_few(config, devices_by_split)
    if not TRAINING.asked(config) or (lines and sum(devices_by_split.values()) < FEW):
        return lines
    from federated.planning.feasibility import shortfalls  # numpy is slow to import

    reasons = shortfalls(config.mechanism, devices_by_split["train"])
    return lines + [f"mechanism: this plan cannot be carried out: {reason}" for reason in reasons]


def most_training_devices(config: LaunchConfig, train: int) -> int:
    """Upper bound on the devices that training draws from, canaries included.

    Args:
      train: number of training devices, rounded down to tens.
    """
    grid = config.audit
    return train + 10 + sum(grid.users) * len(grid.examples) * grid.repeats * len(grid.launched)


def encoding_of(config: LaunchConfig, train: int) -> "Encoding | None":
    """Encoding of a round's secure sum, None for an open one.

    Args:
      train: number of training devices, rounded down to tens.

    Raises:
      ValueError: the sum of a round could overflow, or secure aggregation cannot have rounds of this size.
    """
    from federated.rounds.rule import RoundRule  # with torch: slow to import

    rule, most = RoundRule(config.mechanism, config.seed), most_training_devices(config, train)
    rule.require_sums(most)
    return rule.encoding(most_parameters(config), train, most - train - 10) if config.mechanism.secagg else None


def without_sums(terms: Terms) -> list[str]:
    """Problems of the sums of rounds; of other launches than these the launch file's own limits exclude them."""
    config = terms.config
    if not TRAINING.asked(config) or (config.mechanism.secagg is None and config.mechanism.secret_sample is None):
        return []
    try:
        encoding_of(config, terms.seen.devices or 0)
    except ValueError as error:
        return [f"mechanism: this plan cannot be carried out: {error}"]
    return []


def too_few(config: LaunchConfig, devices_by_split: Mapping[str, int]) -> list[str]:
    """Problems of stages that have too few devices to run, or to give a result.

    Args:
      devices_by_split: numbers of devices, rounded down to tens.
    """
    lines = [line for release in releases(config) for line in release.needs(config, devices_by_split[release.split])]
    lines += _buckets(config, devices_by_split["test"])
    devices = sum(devices_by_split.values())
    if lines and devices < FEW:
        # No field of the launch file could be changed instead.
        return [
            f"private_text: population {config.private_text.name!r} has {devices}+ devices, too few to split into "
            "train, validation and test devices; bring more, or correct client_id, which identifies devices and is "
            "never empty"
        ]
    return lines


# Each looks at a launch's terms before its first spend, and returns a line for each problem.
CHECKS: tuple[Callable[[Terms], list[str]], ...] = (
    _canaries,
    without_sums,
    _large_delta,
    short_of_devices,
    above_policy,
)


def refusals(terms: Terms) -> list[str]:
    """Reasons why a launch would be refused, or held whatever its model's quality, each with field, value and fix."""
    return [line for check in CHECKS for line in check(terms)]


def unheard(config: LaunchConfig, speaking: int) -> list[str]:
    """Problems of a comparison without a budget that has too few test devices with a word.

    Args:
      speaking: number of test devices with a word.
    """
    if speaking >= config.ab_test.buckets:
        return []
    return [
        f"ab_test.buckets: {config.ab_test.buckets}, but fewer test devices have a word; lower it, raise "
        "private_text.test_fraction, or bring more devices"
    ]


def written_by_devices(config: LaunchConfig, devices: WordStore) -> list[str]:
    """Problem of private text that pretraining reads: it would judge a model that has seen it.

    Args:
      devices: their text.
    """
    text = typed_text(config.locale)
    if text is None:
        return []
    some = (document for _, document in islice(documents([text]), 0, None, _ONE_IN))
    public = {" ".join(words) for document in some for words in sentences(document, config.locale)}
    lexicon = ("\n", *devices.lexicon)
    typed = (" ".join(lexicon[word] for word in devices.owner(number)) for number in range(len(devices)))
    long = ({line.strip() for line in text.split("\n") if len(line.split()) >= _LONG_SENTENCE} for text in typed)
    if sum(not public.isdisjoint(lines) for lines in long) <= _AUTHORS * len(devices):
        return []
    return [
        f"public_text.source: 'sample-with-chat' holds text of population {config.private_text.name!r}, its held-out "
        "devices among it; use 'sample'"
    ]


def _buckets(config: LaunchConfig, test: int) -> list[str]:
    if test >= config.ab_test.buckets:
        return []
    return [
        f"ab_test.buckets: {config.ab_test.buckets}, but there are {test}+ test devices; lower it to "
        f"{max(test // 5, 2)} or raise private_text.test_fraction"
    ]
