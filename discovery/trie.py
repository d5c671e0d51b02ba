"""One layer of LDP TrieHH: ask, add up, choose (Sun & Sun 2024, algorithm 2).

The server sees summed votes only; raw messages are never stored.
"""

import numpy as np

from discovery.certificates.anonymity import (
    ANONYMITY_CHANCE,
    anonymous_votes,
    publication_chance,
    significant_votes,
)
from discovery.certificates.attack import attack
from discovery.certificates.blanket import blanket
from discovery.certificates.clones import clones, closed_2023
from discovery.config import DiscoveryConfig
from discovery.device.answer import END, Broadcast, Question
from discovery.device.randomizer import estimate, estimate_deviation, noise_variance, subset_selection
from discovery.device.votes import ShardVotes
from discovery.results import FoundWord, LayerRow, LayerState

_NO_GAIN = 1e-4


def question_of(
    pass_number: int,
    layer: int,
    prefixes: tuple[str, ...],
    letters: str,
    known_words: frozenset[str],
    config: DiscoveryConfig,
) -> Question:
    """What a layer asks; ``letters`` sorted, with ``END`` as the last."""
    broadcast = Broadcast(layer, prefixes, letters)
    return Question(pass_number, broadcast, subset_selection(config.epsilon0, broadcast.domain), known_words, config)


def close_layer(question: Question, votes: ShardVotes) -> LayerState:
    """Choose prefixes for the next layer and finished words; certify the messages received.

    Raises:
      ArithmeticError: an attack beats a certificate, which is then wrong.
    """
    config, randomizer = question.config, question.randomizer
    messages = votes.devices * config.messages_per_device
    needed = word_votes(question, messages)
    survivors, words = choose(question, votes.votes_d, messages, needed)
    row = LayerRow(
        pass_number=question.pass_number,
        layer=question.broadcast.layer,
        asked=messages,
        messages=messages,
        domain=randomizer.domain,
        size=randomizer.size,
        message_bytes=randomizer.message_bytes,
        noise=float(np.sqrt(messages * noise_variance(randomizer))),
        word_votes=needed,
        one_holder_chance=publication_chance(randomizer, messages, 1, needed),
        kept=len(survivors),
        finished=len(words),
        **certify(question, messages),
    )
    return LayerState(row=row, prefixes=survivors, words=words)


def word_votes(question: Question, messages: int) -> int:
    """Least votes that make a word: more than noise reaches, and than too few holders reach if that is asked for."""
    config, randomizer = question.config, question.randomizer
    needed = significant_votes(randomizer, messages, config.significance_z)
    if config.anonymity is None:
        return needed
    if config.anonymity > messages:
        return messages + 1
    return max(needed, anonymous_votes(randomizer, messages, config.anonymity, ANONYMITY_CHANCE))


def choose(
    question: Question, votes_d: np.ndarray, messages: int, needed: int
) -> tuple[tuple[str, ...], tuple[FoundWord, ...]]:
    """Survivors, sorted, and words among the ``max_prefixes`` candidates with most votes.

    Post-processing of votes. Only words must stand out from noise: asking it of prefixes would cost more
    words than it saves, since a false prefix rarely ends in a false word.
    """
    broadcast, randomizer = question.broadcast, question.randomizer
    estimates_d = estimate(randomizer, votes_d, messages)
    deviations_d = estimate_deviation(randomizer, estimates_d, messages)
    survivors, words = [], []
    # Most votes first; equals in the order of the domain, which no device can influence.
    for item in np.argsort(-votes_d[:-1], kind="stable")[: question.config.max_prefixes].tolist():
        if estimates_d[item] <= 0:
            break
        candidate = broadcast.candidate(item)
        if not candidate.endswith(END):
            survivors.append(candidate)
        elif votes_d[item] >= needed:
            share, spread = estimates_d[item] / messages, 1.96 * deviations_d[item] / messages
            words.append(
                FoundWord(
                    word=candidate[:-1],
                    layer=broadcast.layer,
                    share=share,
                    low=max(share - spread, 0.0),
                    high=min(share + spread, 1.0),
                    pass_number=question.pass_number,
                )
            )
    return tuple(sorted(survivors)), tuple(words)


def certify(question: Question, messages: int) -> dict[str, float | None]:
    """Central epsilon of a layer's messages by both certificates, what an attack reaches, and the paper's form.

    Raises:
      ArithmeticError: the attack beats a certificate, which is then wrong.
    """
    randomizer, delta = question.randomizer, question.config.delta
    upper, tighter = clones(randomizer.epsilon0, messages, delta), blanket(randomizer, messages, delta)
    lower = attack(randomizer, messages, delta)
    if lower > min(upper, tighter) * (1 + 1e-9):
        raise ArithmeticError(f"certificates {upper}, {tighter} are below the attack's {lower}")
    printed = closed_2023(randomizer.epsilon0, messages, delta)
    # Where shuffling takes off next to nothing, the local epsilon is the plainer statement.
    nothing = (1 - _NO_GAIN) * randomizer.epsilon0
    upper, tighter = (randomizer.epsilon0 if bound > nothing else bound for bound in (upper, tighter))
    return {"clones": upper, "blanket": tighter, "attack": lower, "closed_2023": printed}
