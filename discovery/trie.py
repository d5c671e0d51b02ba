"""One layer of LDP TrieHH: query, sum, select (Sun & Sun 2024, algorithm 2).

The server sees summed votes only; raw messages are never stored. The sums are kept for their audit (``state``).
"""

from dataclasses import dataclass

import numpy as np

from discovery.certificates.anonymity import ANONYMITY_CHANCE, anonymous_holders, lemma_1, publication_chance
from discovery.certificates.attack import attack
from discovery.certificates.blanket import blanket
from discovery.certificates.clones import clones, closed_2023
from discovery.certificates.group import NO_GAIN, device, honest_messages
from discovery.config import TrieConfig
from discovery.device.answer import DIGIT, END, Broadcast, Question, spelt
from discovery.device.randomizer import SubsetSelection, estimate, noise_variance, subset_selection
from discovery.device.votes import ShardVotes
from discovery.results import FoundWord, LayerRow, LayerState
from discovery.selection import rounded_down, rounded_up, share_interval, word_votes
from pretrain.writing import case

_DIGITS = 4


def question_of(
    layer: int,
    prefixes: tuple[str, ...],
    letters: str,
    known_words: frozenset[str],
    config: TrieConfig,
) -> Question:
    """Question of a layer; ``letters`` come from ``letters_of``."""
    broadcast = Broadcast(layer, prefixes, letters)
    return Question(broadcast, subset_selection(config.epsilon0, broadcast.domain), known_words, config)


def close_layer(question: Question, votes: ShardVotes) -> LayerState:
    """Select prefixes for the next layer and finished words; certify the messages received.

    Figures use the number of devices in whole tens, rounded down for certificates and up for thresholds: inverting a
    published figure reveals only the tens.

    Raises:
      ArithmeticError: an attack beats a certificate, which is then wrong.
    """
    config, randomizer = question.config, question.randomizer
    messages = votes.devices * config.messages_per_device
    needed = word_votes(question, votes.votes_d, rounded_up(votes.devices) * config.messages_per_device)
    chosen = choose(question, votes.votes_d, messages, needed)
    row = LayerRow(
        layer=question.broadcast.layer,
        asked=messages,
        messages=messages,
        domain=randomizer.domain,
        size=randomizer.size,
        message_bytes=randomizer.message_bytes,
        word_votes=needed,
        kept=len(chosen.prefixes),
        finished=len(chosen.words),
        **figures(randomizer, config, votes.devices, needed),
    )
    return LayerState(row=row, prefixes=chosen.prefixes, words=chosen.words, forms=chosen.forms)


def figures(
    randomizer: SubsetSelection, config: TrieConfig, devices: int, needed: int
) -> dict[str, float | int | None]:
    """Noise, anonymity and certificates of a layer: the same for any number of devices in the same ten.

    Args:
      needed: least votes that make a word.
    """
    fewest, most = (count(devices) * config.messages_per_device for count in (rounded_down, rounded_up))
    anonymity = anonymous_holders(randomizer, most, needed, ANONYMITY_CHANCE)
    return {
        "noise": float(np.sqrt(fewest * noise_variance(randomizer))),
        "one_holder_chance": publication_chance(randomizer, most, 1, needed),
        "anonymity": anonymity,
        "lemma_1": lemma_1(randomizer, fewest, config.max_prefixes, min(anonymity, fewest)),
        **certify(randomizer, config, honest_messages(fewest, config.messages_per_device, config.honest_share)),
    }


@dataclass(frozen=True)
class Chosen:
    """Outcome of a layer's votes: prefixes to extend, sorted; found words; forms of words found before."""

    prefixes: tuple[str, ...]
    words: tuple[FoundWord, ...]
    forms: dict[str, str]


def choose(question: Question, votes_d: np.ndarray, messages: int, needed: int) -> Chosen:
    """Survivors and words among the ``max_prefixes`` candidates with most votes, digits and forms of words found.

    This is post-processing of votes. Only words must be significant: requiring it of prefixes would lose more words
    than it saves, since a false prefix rarely ends in a false word. A digit, and a form other than lower case, must be
    significant like a word, and a form must have more votes than the word's other forms. Shares keep four digits, as
    an exact quotient of whole votes would reveal the number of messages.
    """
    broadcast, layers = question.broadcast, question.config.layers
    estimates_d = estimate(question.randomizer, votes_d, messages)
    survivors, words = [], []
    asked = np.array([END in prefix for prefix in broadcast.prefixes for _ in broadcast.letters_after(prefix)], bool)
    order = np.argsort(-votes_d[:-1], kind="stable")
    # Most votes first; equals in the order of the domain, which no device can influence. Words found already do not
    # count against the cap on prefixes.
    for item in (*order[~asked[order]][: question.config.max_prefixes].tolist(), *order[asked[order]].tolist()):
        if estimates_d[item] <= 0:
            continue
        candidate = broadcast.candidate(item)
        letters, end, behind = candidate.partition(END)
        if not end:
            survivors.append(candidate)
        elif votes_d[item] >= needed and len(behind) <= letters.count(DIGIT):
            if len(behind) == letters.count(DIGIT):
                words.append(_found(question, spelt(candidate), votes_d[item], messages, needed))
            if broadcast.layer < layers:
                survivors.append(candidate)
    return Chosen(tuple(sorted(survivors)), tuple(words), _forms(broadcast, votes_d, needed))


def _found(question: Question, word: str, votes: int, messages: int, needed: int) -> FoundWord:
    randomizer, contributions = question.randomizer, question.config.messages_per_device
    devices = rounded_down(messages // contributions)
    counted = devices * contributions / messages
    low, high = share_interval(randomizer, votes * counted, needed * counted, devices, contributions)
    return FoundWord(
        word=word,
        layer=question.broadcast.layer,
        share=float(f"{float(estimate(randomizer, np.array(votes), messages)) / messages:.{_DIGITS}g}"),
        low=float(f"{low:.{_DIGITS}g}"),
        high=float(f"{high:.{_DIGITS}g}"),
    )


def _forms(broadcast: Broadcast, votes_d: np.ndarray, needed: int) -> dict[str, str]:
    """Words that are mostly typed with a capital or in capitals, each with its form; the others are lower-case."""
    forms = {}
    for prefix in broadcast.prefixes:
        if broadcast.letters_after(prefix) == case.SIGNS:
            first = broadcast.item(prefix + case.SIGNS[0])
            assert first is not None
            votes = votes_d[first : first + len(case.SIGNS)].tolist()
            best = votes.index(max(votes))
            if best and votes[best] >= needed:
                forms[spelt(prefix)] = case.FORMS[best]
    return forms


def certify(randomizer: SubsetSelection, config: TrieConfig, messages: int) -> dict[str, float | None]:
    """Central epsilon of a layer's messages: by both certificates, of a whole device, and of an attack.

    Args:
      messages: number of messages that are assumed to be honest.

    Raises:
      ArithmeticError: the attack beats a certificate, which is then wrong.
    """
    delta = config.delta
    upper, tighter = clones(randomizer.epsilon0, messages, delta), blanket(randomizer, messages, delta)
    lower = attack(randomizer, messages, delta)
    if lower > min(upper, tighter) * (1 + 1e-9):
        raise ArithmeticError(f"certificates {upper}, {tighter} are below the attack's {lower}")
    printed = closed_2023(randomizer.epsilon0, messages, delta)
    nothing = (1 - NO_GAIN) * randomizer.epsilon0
    upper, tighter = (randomizer.epsilon0 if bound > nothing else bound for bound in (upper, tighter))
    whole = device(randomizer, messages, config.messages_per_device, delta)
    return {"clones": upper, "blanket": tighter, "attack": lower, "closed_2023": printed, "device": whole}
