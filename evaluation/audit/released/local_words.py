"""The audit of words found locally: every message, the sum of votes, and the selection of words, recomputed.

The messages of a device are a function of its text and of random bits of its own, which in a simulation follow from the
stage's key, the question and the device. The audit recomputes them one by one, and their sum must equal the kept votes:
votes without noise, with less or more noise, of other devices or of more messages differ. From the votes it selects
prefixes and words again.

Written from the paper (Sun & Sun 2024, algorithm 2) and from the definition of the streams, independently of the code
that queries devices: an audit must not share its mistakes.

Shape legend: d items of a question, the last of which is None.
"""

import functools
import hashlib
import hmac
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from evaluation.audit.verdict import Verdict

# Characters of a candidate for the end of its word and for a digit before it; then digits, then a form's sign.
END, DIGIT, DIGITS, SIGNS = "\x03", "\x04", "0123456789", "\x05\x06\x07"
FORMS = ("lower", "capital", "upper")
# Largest expected share of a layer's words that nobody types; largest probabilities of publishing a word in a single
# message, or in fewer messages than required.
_FALSE, _ONE_HOLDER, _TOO_FEW = 0.05, 0.05, 1e-6
_SERIES = 1
_NONE = "no fault: whole numbers are compared"


@dataclass(frozen=True)
class Rule:
    """Rule of a local discovery, from the launch file.

    Attributes:
      messages: number of messages of every device.
      greedy: True if a device reports its most frequent words, False for any words.
      layers: depth of the trie.
      letters: that a word may hold, sorted, then ``DIGIT``, then ``END``.
      anonymity: least number of messages with a word; None for no such threshold.
      known: words that no device reports.
    """

    epsilon0: float
    messages: int
    greedy: bool
    layers: int
    letters: str
    max_prefixes: int
    anonymity: int | None
    known: frozenset[str]


@dataclass(frozen=True)
class Layer:
    """Records of one layer. Private: its words are not reviewed yet.

    Attributes:
      asked: indices of the queried devices.
      votes_d: int64, sum of all messages.
      messages: number of messages that the layer assumes.
      prefixes, words, forms: its selection; forms other than lower case, by word.
    """

    asked: np.ndarray
    votes_d: np.ndarray
    messages: int
    prefixes: tuple[str, ...]
    words: frozenset[str]
    forms: Mapping[str, str]


def local_words_audit(
    key: bytes, layers: Sequence[Layer], published: Mapping[str, str], typed: Callable[[int], Sequence[str]], rule: Rule
) -> tuple[Verdict, ...]:
    """Verdicts on the devices' messages, on their sum, and on the selection from it.

    Args:
      published: words that left the discovery, each with its form.
      typed: words of a device, with the signs of their forms; before any bound.
    """
    questions = [_Question(number, _prefixes(layers, number), rule) for number in range(1, len(layers) + 1)]
    pairs = list(zip(questions, layers, strict=True))
    bounded = _are_bounded(pairs)
    made_again = bounded and all(
        np.array_equal(_votes(question, layer.asked, typed, key), layer.votes_d) for question, layer in pairs
    )
    chosen = all(
        _chosen(question, layer) == (layer.prefixes, layer.words, dict(layer.forms)) for question, layer in pairs
    )
    followed = chosen and _published(layers) == dict(published) and _ended(layers, rule)
    return (
        _verdict(
            "messages",
            "each device answers in one layer, with as many messages as the launch file says, each of one length",
            bounded,
            "a device answered twice, or a layer counts other messages than its devices send",
        ),
        _verdict(
            "votes",
            "votes are the sum of what devices send by Subset Selection at the stated epsilon, made again from what "
            "they typed and from their random bits",
            made_again,
            "votes are not the sum of the messages that devices send",
        ),
        _verdict(
            "choice",
            "prefixes, words and forms follow from the votes by the stated thresholds",
            followed,
            "prefixes, words or forms are not those that the votes and thresholds give",
        ),
    )


def _verdict(name: str, tested: str, passed: bool, otherwise: str) -> Verdict:
    return Verdict(name, tested, _NONE, passed, "" if passed else otherwise)


def _prefixes(layers: Sequence[Layer], number: int) -> tuple[str, ...]:
    return layers[number - 2].prefixes if number > 1 else ("",)


def _ended(layers: Sequence[Layer], rule: Rule) -> bool:
    """Return whether every queried layer had candidates, and layers are missing only if no prefix was left."""
    return len(layers) == rule.layers or (len(layers) < rule.layers and bool(layers) and not layers[-1].prefixes)


def _published(layers: Sequence[Layer]) -> dict[str, str]:
    forms: dict[str, str] = {}
    for layer in layers:
        forms = dict(layer.forms) | forms
    return {word: forms.get(word, FORMS[0]) for layer in layers for word in layer.words}


@dataclass(frozen=True)
class _Question:
    """The question of a layer: its items, and the randomiser of a message."""

    layer: int
    prefixes: tuple[str, ...]
    rule: Rule

    @functools.cached_property
    def candidates(self) -> list[str]:
        """The candidate of each item except the last."""
        return [prefix + letter for prefix in self.prefixes for letter in self.after(prefix)]

    def after(self, prefix: str) -> str:
        """Letters that may follow a prefix."""
        word, end, digits = prefix.partition(END)
        if not end:
            return self.rule.letters
        return DIGITS if len(digits) < word.count(DIGIT) else SIGNS

    @functools.cached_property
    def items(self) -> dict[str, int]:
        """The item of each candidate."""
        return {candidate: item for item, candidate in enumerate(self.candidates)}

    @property
    def domain(self) -> int:
        """Number of items."""
        return len(self.candidates) + 1

    @functools.cached_property
    def randomiser(self) -> tuple[int, float, float]:
        """Items of a message, probability that it contains the true one, and probability for another one.

        The size is the one of the two whole numbers next to ``d / (e^epsilon + 1)`` whose estimates vary less.
        """
        odds = math.exp(-self.rule.epsilon0)
        ideal = self.domain * odds / (1 + odds)
        sizes = sorted({min(max(size, 1), self.domain - 1) for size in (math.floor(ideal), math.ceil(ideal))})

        def variance(size: int) -> float:
            p, q = self._chances(size)
            return q * (1 - q) / (p - q) ** 2

        size = min(sizes, key=variance)
        return size, *self._chances(size)

    def _chances(self, size: int) -> tuple[float, float]:
        d, odds = self.domain, math.exp(-self.rule.epsilon0)
        # Rounded down to a multiple of 2^-53, which 53 random bits represent exactly.
        p = math.floor(size / (size + (d - size) * odds) * (1 - 2.0**-50) * 2.0**53) / 2.0**53
        return p, (p * (size - 1) + (1 - p) * size) / (d - 1)

    def item(self, word: str) -> int | None:
        """The item of a typed word; None if the device does not report it."""
        form = max(SIGNS.find(word[-1:]), 0) if word else 0
        word = word[:-1] if form else word
        hidden = "".join(DIGIT if letter in DIGITS else letter for letter in word)
        path = hidden + END + "".join(letter for letter in word if letter in DIGITS) + SIGNS[form]
        allowed = set(self.rule.letters) - {END}
        silent = not 1 <= len(word) < self.rule.layers or word in self.rule.known or not set(hidden) <= allowed
        return None if silent or self.layer > len(path) else self.items.get(path[: self.layer])

    @functools.cached_property
    def stream(self) -> str:
        """Name of the random bits of its answers; it depends on the whole question."""
        content = [
            *(_SERIES, self.layer, self.rule.letters, self.prefixes, sorted(self.rule.known), self.rule.epsilon0),
            *(self.randomiser[0], self.rule.messages, self.rule.layers, "greedy" if self.rule.greedy else "random"),
        ]
        return f"answers {hashlib.sha256(json.dumps(content).encode()).hexdigest()}"


class _Bits:
    """One device's random words of 32 bits: AES-256 in counter mode from the device's number."""

    def __init__(self, key: bytes, device: int) -> None:
        self._stream = Cipher(algorithms.AES256(key), modes.CTR(device.to_bytes(8, "big") + bytes(8))).encryptor()
        self._left = np.empty(0, dtype="<u4")

    def words(self, count: int) -> np.ndarray:
        while len(self._left) < count:
            self._left = np.concatenate([self._left, np.frombuffer(self._stream.update(bytes(1024)), dtype="<u4")])
        taken, self._left = self._left[:count], self._left[count:]
        return taken.astype(np.uint64)

    def wide(self, count: int) -> np.ndarray:
        """Numbers of 64 bits, from two words each."""
        pairs = self.words(2 * count).reshape(count, 2)
        return pairs[:, 0] << np.uint64(32) | pairs[:, 1]

    def subset(self, population: int, count: int) -> np.ndarray:
        """Distinct numbers below ``population`` (Lemire 2019); for a majority, the complement of the drawn numbers."""
        if 2 * count > population:
            return np.delete(np.arange(population), self.subset(population, population - count))
        drawn: dict[int, None] = {}
        while len(drawn) < count:
            for word in self.words(count - len(drawn)).tolist():
                number, low = divmod(word * population, 2**32)
                if low >= 2**32 % population:
                    drawn[number] = None
        return np.array(list(drawn), dtype=np.int64)


def _votes(question: _Question, asked: np.ndarray, typed: Callable[[int], Sequence[str]], key: bytes) -> np.ndarray:
    """Sum of the messages of all queried devices, int64 ``[d]``."""
    stream_key = hmac.digest(key, f"tacit discovery 3|{question.stream}".encode(), hashlib.sha256)
    item_of = functools.cache(question.item)
    votes_d = np.zeros(question.domain, dtype=np.int64)
    for device in asked.tolist():
        bits = _Bits(stream_key, device)
        for item in _bounded(Counter(map(item_of, typed(device))), question, bits).tolist():
            votes_d[_message(item, question, bits)] += 1
    return votes_d


def _bounded(counted: Counter[int | None], question: _Question, bits: _Bits) -> np.ndarray:
    """The items of a device's messages, in random order: distinct ones, padded with the item None."""
    held = np.array(sorted(item for item in counted if item is not None), dtype=np.int64)
    most = question.rule.messages
    if len(held) > most and question.rule.greedy:
        held = np.array(sorted(held.tolist(), key=lambda item: -counted[item])[:most])
    elif len(held) > most:
        held = held[bits.subset(len(held), most)]
    filled = np.concatenate([held, np.full(most - len(held), question.domain - 1, dtype=np.int64)])
    return filled[np.argsort(bits.wide(most), kind="stable")]


def _message(item: int, question: _Question, bits: _Bits) -> np.ndarray:
    size, p, _ = question.randomiser
    told = (int(bits.wide(1)[0]) >> 11) * 2.0**-53 < p
    others = bits.subset(question.domain - 1, size - told)
    others += others >= item
    return np.append(others, item) if told else others


def _are_bounded(pairs: Sequence[tuple[_Question, Layer]]) -> bool:
    devices = np.concatenate([np.empty(0, dtype=np.int64), *(layer.asked for _, layer in pairs)])
    return len(np.unique(devices)) == len(devices) and all(
        layer.messages == len(layer.asked) * question.rule.messages
        and len(layer.votes_d) == question.domain
        and int(layer.votes_d.sum()) == layer.messages * question.randomiser[0]
        and int(layer.votes_d.min()) >= 0
        for question, layer in pairs
    )


def _chosen(question: _Question, layer: Layer) -> tuple[tuple[str, ...], frozenset[str], dict[str, str]]:
    """Surviving prefixes, finished words, and forms: most votes first, equals in the order of items."""
    rule, votes_d, (_, _, q) = question.rule, layer.votes_d, question.randomiser
    if len(votes_d) != question.domain:
        return (), frozenset(), {}
    tens = (len(layer.asked) // 10 + 1) * 10  # above a whole ten too
    needed = _needed(question, votes_d, tens * rule.messages)
    order = sorted(range(question.domain - 1), key=lambda item: -votes_d[item])
    found_before = [END in candidate[:-1] for candidate in question.candidates]
    fresh = [item for item in order if not found_before[item]][: rule.max_prefixes]
    prefixes, words = [], []
    for item in (*fresh, *(item for item in order if found_before[item])):
        letters, end, behind = question.candidates[item].partition(END)
        if votes_d[item] <= layer.messages * q:
            continue
        if not end:
            prefixes.append(question.candidates[item])
        elif votes_d[item] >= needed and len(behind) <= letters.count(DIGIT):
            words += [_spelt(letters, behind)] if len(behind) == letters.count(DIGIT) else []
            prefixes += [question.candidates[item]] if question.layer < rule.layers else []
    return tuple(sorted(prefixes)), frozenset(words), _forms(question, votes_d, needed)


def _forms(question: _Question, votes_d: np.ndarray, needed: int) -> dict[str, str]:
    forms = {}
    for prefix in question.prefixes:
        if question.after(prefix) == SIGNS:
            votes = [int(votes_d[question.items[prefix + sign]]) for sign in SIGNS]
            best = votes.index(max(votes))
            if best and votes[best] >= needed:
                letters, _, digits = prefix.partition(END)
                forms[_spelt(letters, digits)] = FORMS[best]
    return forms


def _spelt(letters: str, digits: str) -> str:
    left = iter(digits)
    return "".join(next(left) if letter == DIGIT else letter for letter in letters)


def _needed(question: _Question, votes_d: np.ndarray, messages: int) -> int:
    """Least votes that make a finished candidate a word: against noise, and against words of too few people."""
    rule, (_, p, q) = question.rule, question.randomiser
    if question.layer == 1:
        return messages + 1
    ends = [item for item, candidate in enumerate(question.candidates) if candidate[-1] in (END, *DIGITS)]
    finished = votes_d[ends] if ends else votes_d[:-1]
    # Benjamini and Hochberg 1995.
    chances = np.sort(stats.binom.sf(finished - 1, messages, q))
    allowed = _FALSE * np.arange(1, len(chances) + 1) / len(chances)
    accepted = np.flatnonzero(chances <= allowed)
    needed = _significant(messages, q, float(allowed[accepted[-1] if len(accepted) else 0]))
    if messages > 1:
        needed = max(needed, _hidden(messages, p, q, 1, _ONE_HOLDER))
    if rule.anonymity is None:
        return needed
    too_many = rule.anonymity > messages
    return messages + 1 if too_many else max(needed, _hidden(messages, p, q, rule.anonymity - 1, _TOO_FEW))


def _significant(messages: int, q: float, chance: float) -> int:
    """Least votes above the mean that an item without holders reaches with at most this probability."""
    votes = math.floor(messages * q) + 1
    while stats.binom.sf(votes - 1, messages, q) > chance:
        votes += 1
    return votes


def _hidden(messages: int, p: float, q: float, holders: int, chance: float) -> int:
    """Least votes that an item in ``holders`` messages reaches with at most this probability."""
    held = np.arange(holders + 1)
    weights = stats.binom.pmf(held, holders, p)

    def reached(votes: int) -> float:
        return float(weights @ stats.binom.sf(votes - 1 - held, messages - holders, q))

    low, high = 0, messages + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) <= chance else (middle, high)
    return high
