"""Published ranges of typing behaviour on phones, and the same measures on simulated typists.

Shape legend: P words.

The simulator's parameters are chosen so that simulated behaviour lies within the ranges of studies. Each
measure has two ranges: published averages, which the median calibration must meet, and the usual range
between persons, which the fast and the sloppy one must meet. An entry without a study says assumption.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evaluation.arms.held_out import HeldOut
from evaluation.keyboard import strip
from evaluation.keyboard.script import Script
from evaluation.keyboard.sessions import Session
from evaluation.keyboard.typist import MEDIAN
from pretrain.text.vocabulary import UNK

# Characters of a standard word in studies, including the space.
WORD_CHARACTERS = 5


@dataclass(frozen=True)
class Range:
    """One measure of the studies; its name is a key of ``measure``.

    Attributes:
      low, high: published averages of groups of people.
      person_low, person_high: usual range between persons.
      source: source of the numbers.
    """

    name: str
    low: float
    high: float
    person_low: float
    person_high: float
    source: str

    def holds(self, value: float, calibration: str) -> bool:
        """Return whether a simulated value lies in the range that its calibration must meet."""
        if calibration == MEDIAN.name:
            return self.low <= value <= self.high
        return self.person_low <= value <= self.person_high


LEINO = "Leino et al. 2024"
LI_FEIT = "Li and Feit 2025"
# Source of each parameter of a calibration; the median's first.
FIELDS = {
    "touch_std": "8 to 9% of touches on another key (Azenkot and Zhai 2012, in Zhang et al. 2024); others: assumption",
    "offset_std": "assumption: small beside the spread",
    "key_seconds": "fitted to standard_words_per_minute; fast and sloppy within one SD of people",
    "look": "0.30 of Ramaswamy et al. 2020 (picks_of_hits) over pick; others: assumption",
    "pick": f"{LI_FEIT}: 32 of 100 checks end in a pick, of the other 68, 43.6% had seen the word: 32 / (32 + 30)",
    "key_look": "fitted to completed_words",
    "key_pick": "as pick",
    "inspect_seconds": "assumption: one glance",
    "notice_key": "fitted to backspaces_per_character; sloppy: assumption",
    "notice": f"{LEINO}: 88.17% of wrong corrections repaired in English; fast: 95% in Finnish; sloppy: assumption",
    "notice_typed": "assumption: what the keyboard left alone is seen less often",
    "compose_pick": "assumption: as pick",
    "slip": "assumption: a tenth of the touches that miss; sloppy twice",
    "hold": "assumption",
}
RANGES = (
    Range(
        *("standard_words_per_minute", 32.0, 40.2, 23.0, 54.1),
        "32 in the wild (Buschek et al. 2018, as Palin's talk says), 36.2 SD 13.2 (Palin et al. 2019), 40.2 SD 13.9 "
        f"({LEINO}); a word is five characters",
    ),
    Range(
        *("errors_left_per_character", 0.0, 0.0234, 0.0, 0.0468),
        "0.79% in the laboratory (Ruan et al. 2018), 2.34% (Palin et al. 2019), from zero, because they also count "
        "misspellings, capitals and punctuation, and simulated typists err by touch only; person to person: "
        "assumption, twice",
    ),
    Range(
        *("backspaces_per_character", 0.057, 0.071, 0.020, 0.102),
        f"0.057 with suggestions, 0.063 with correction, 0.071 with neither; all 0.061 SD 0.041 ({LEINO}, English)",
    ),
    Range(
        *("dark_keystrokes_per_character", 1.12, 1.15, 0.97, 1.23),
        f"with correction, without suggestions: 1.12 in English, 1.15 in Finnish; all 1.09 SD 0.12 and 1.13 SD 0.11 "
        f"({LEINO})",
    ),
    Range(
        *("keystrokes_per_character", 1.03, 1.13, 0.97, 1.21),
        f"with suggestions: 1.08 in English, 1.13 in Finnish; all 1.09 SD 0.12 ({LEINO}), less 0.05 for the picks "
        "before a word of Gboard, see keystroke_savings",
    ),
    Range(
        *("corrected_words", 0.081, 0.137, 0.05, 0.30),
        f"8.1% to 13.7%, medians of four groups of its users; person to person: few below 5%, speed rises until 30% "
        f"({LEINO})",
    ),
    Range(
        *("corrections_wrong", 0.119, 0.230, 0.0595, 0.46),
        f"11.9% and 19.4% in English, 21.8% and 23.0% in Finnish, by phone ({LEINO}); person to person: assumption, "
        "half to twice",
    ),
    Range(
        *("completed_words", 0.024, 0.055, 0.0, 0.10),
        "2.4%, 4.5% and 5.5%, medians of users by phone; most pick 2% to 5%, a third nothing, beyond 10% it slows them "
        f"({LEINO})",
    ),
    Range(
        *("completed_length", 1.29, 1.64, 1.0, 2.0),
        f"picked words are 6.95 letters for 4.23 in English, 8.50 for 6.57 in Finnish ({LEINO}); person to person: "
        "assumption",
    ),
    Range(
        *("picks_of_hits", 0.27, 0.335, 0.15, 0.6),
        "0.30 (3 x 1.84 / 18.09 and 3 x 1.92 / 19.25 of Ramaswamy et al. 2020), within a tenth; person to person: "
        "assumption, half to twice",
    ),
    Range(
        *("keystroke_savings", 0.009, 0.101, 0.0, 0.2),
        f"people with suggestions and without: 1.08 for 1.14 in English, 1.13 for 1.14 in Finnish ({LEINO}), "
        "and at most 0.048 for Gboard's picks before a word (5.8% of words, Ramaswamy et al. 2020, five keystrokes of "
        "six each); person to person: assumption, none to twice",
    ),
    Range(
        *("speed_change", -0.232, 0.0, -0.232, 0.0),
        f"people with suggestions and without: 35.0 for 35.0 on Android, 38.7 for 50.4 on iPhones ({LEINO}); "
        "slower also in Quinn and Zhai 2016, Alharbi et al. 2020, Li and Feit 2025",
    ),
)


def measure(run: Session, script: Script, text: HeldOut) -> dict[str, float]:
    """The measures of studies for one session.

    ``errors_left_per_character`` is the remaining edit distance per character; ``corrected_words`` and
    ``corrections_wrong`` are of all words and of corrections; ``completed_length`` is that of completed words over
    that of all; ``picks_of_hits`` is over words that the strip showed before their first key; ``speed_change``
    and ``keystroke_savings`` compare with the same touches and a dark strip.
    """
    words, characters = len(run.letters_P), int((run.letters_P + 1).sum())
    corrected = int(run.corrected_P.sum())
    keystrokes, dark = int(run.keystrokes_P.sum()), int(run.dark_keystrokes_P.sum())
    picked, completed = run.how_P == strip.PICKED, run.how_P == strip.COMPLETED
    return {
        "standard_words_per_minute": characters / WORD_CHARACTERS / (run.seconds_P.sum() / 60),
        "errors_left_per_character": sum(edits_left(run, script, text)) / characters,
        "backspaces_per_character": float(run.backspaces_P.sum() / characters),
        "dark_keystrokes_per_character": dark / characters,
        "keystrokes_per_character": keystrokes / characters,
        "corrected_words": corrected / words,
        "corrections_wrong": int((run.corrected_P & ~run.right_P).sum()) / max(corrected, 1),
        "completed_words": float(np.mean(completed)),
        "completed_length": float(run.letters_P[completed].sum() / max(completed.sum(), 1) / np.mean(run.letters_P)),
        "picks_of_hits": float(picked.sum() / max(run.in_strip_P.sum(), 1)),
        "keystroke_savings": (dark - keystrokes) / dark,
        "speed_change": float(run.dark_seconds_P.sum() / run.seconds_P.sum() - 1),
    }


def edits_left(run: Session, script: Script, text: HeldOut) -> Iterator[int]:
    """Edit distance of each remaining wrong word from the intended word."""
    for word in np.flatnonzero(~run.right_P & ~run.noticed_P):
        committed = run.committed_P[word]
        if committed == UNK:
            left = script.literal_T[script.touches_P1[word] : script.touches_P1[word + 1]]
        else:
            left = script.spelled_K[script.spelled_V1[committed] : script.spelled_V1[committed + 1]]
        yield distance(left.tolist(), script.letters_K[script.letters_P1[word] : script.letters_P1[word + 1]].tolist())


def distance(one: list[int], other: list[int]) -> int:
    """Fewest insertions, deletions and substitutions that turn one into the other."""
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        before, row = row, [place]
        for column, wanted in enumerate(other):
            row.append(min(before[column] + (letter != wanted), before[column + 1] + 1, row[column] + 1))
    return row[-1]
