"""The keyboard's lexicon, as a trie over its characters.

Shape legend: N nodes, W words in alphabetical order of their characters.
"""

from dataclasses import dataclass

import numpy as np

from evaluation.keyboard.layouts import Keyboard
from pretrain.text.vocabulary import SPECIALS, Vocabulary


@dataclass(frozen=True)
class Lexicon:
    """Nodes in depth-first order, the root first: a node's subtree is a run of nodes and a run of words.

    Attributes:
      char_N: int64, the character that leads to the node; -1 at the root.
      depth_N: int64, letters from the root.
      end_N: int64, the node after the subtree.
      first_N, last_N: int64, the words below (and at) the node are ``id_W[first:last]``.
      word_N: int64, vocabulary id of the word that ends here, -1 if none does.
      id_W: int64, vocabulary ids in alphabetical order.
      place_V: int64, a word's place in that order, -1 for specials.
    """

    char_N: np.ndarray
    depth_N: np.ndarray
    end_N: np.ndarray
    first_N: np.ndarray
    last_N: np.ndarray
    word_N: np.ndarray
    id_W: np.ndarray
    place_V: np.ndarray


def build(vocabulary: Vocabulary, keys: Keyboard) -> Lexicon:
    """The trie of all words except specials."""
    spelled = sorted(
        (tuple(keys.spell(word)), number) for number, word in enumerate(vocabulary.words) if number >= len(SPECIALS)
    )
    char, depth, end, first, last, word = [-1], [0], [0], [0], [0], [-1]
    path: list[int] = [0]
    before: tuple[int, ...] = ()
    for place, (letters, number) in enumerate(spelled):
        shared = 0
        while shared < min(len(before), len(letters)) and before[shared] == letters[shared]:
            shared += 1
        for node in path[shared + 1 :]:
            end[node], last[node] = len(char), place
        del path[shared + 1 :]
        for letter in letters[shared:]:
            path.append(len(char))
            for column, value in ((char, letter), (depth, len(path) - 1), (end, 0), (first, place), (last, 0)):
                column.append(value)
            word.append(-1)
        word[path[-1]] = number
        before = letters
    for node in path:
        end[node], last[node] = len(char), len(spelled)
    ids = np.array([number for _, number in spelled], dtype=np.int64)
    place_V = np.full(len(vocabulary), -1, dtype=np.int64)
    place_V[ids] = np.arange(len(ids))
    return Lexicon(
        char_N=np.array(char, dtype=np.int64),
        depth_N=np.array(depth, dtype=np.int64),
        end_N=np.array(end, dtype=np.int64),
        first_N=np.array(first, dtype=np.int64),
        last_N=np.array(last, dtype=np.int64),
        word_N=np.array(word, dtype=np.int64),
        id_W=ids,
        place_V=place_V,
    )
