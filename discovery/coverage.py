"""How much of what people type a list of words covers."""

from collections.abc import Collection, Mapping


def coverage(found: Collection[str], unknown_counts: Mapping[str, int]) -> float:
    """Share of out-of-vocabulary tokens that the found words would cover; 0 if there are none.

    Args:
      unknown_counts: occurrences of each word outside the base vocabulary.
    """
    total = sum(unknown_counts.values())
    return sum(unknown_counts.get(word, 0) for word in set(found)) / total if total else 0.0
