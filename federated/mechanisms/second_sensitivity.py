"""A second, unrelated program for the tree's sensitivity, so that one mistake cannot pass both.

``strategy.tree_sensitivity_squared`` joins subtrees and squares counts. This one walks through
the rounds and adds up pairs: with ``G = C^T C``, ``||C 1_P||^2`` is the sum over pairs of
participations of the number of tree nodes that hold both. The two share the checks of their
arguments and the spans between restarts, and nothing else.
"""

from collections.abc import Sequence

from federated.mechanisms.sensitivity import check_pattern, segments

# About half a second; every published row needs fewer than 300.
MAX_STATES = 100_000
_Counts = tuple[int, ...]
_States = dict[tuple[int, _Counts], int]


def tree_sensitivity_squared_forward(
    rounds: int, min_sep: int, max_participations: int, restarts: Sequence[int] = (), max_states: int = MAX_STATES
) -> int | None:
    """Exact squared sensitivity of tree aggregation by a pass over the rounds.

    A state is what the future can still meet: the participations so far and, for every node
    around the present round that is tall enough to hold two, how many of them it holds. One more
    participation adds its own ``height + 1`` nodes and twice those counts.

    Returns:
      The square in clip norms squared, or None where more than ``max_states`` states would be
      needed (small ``min_sep`` with many participations).

    Raises:
      ValueError: limits that cannot happen; see ``check_pattern``.
    """
    check_pattern(rounds, min_sep, max_participations)
    trees = _trees(rounds, restarts)
    shortest = min_sep.bit_length()  # the lowest level with more than min_sep leaves
    allowed: _States = {(0, ()): 0}
    waiting: dict[int, _States] = {}
    best = visited = 0
    for now in range(rounds):
        start, height = trees[now]
        returning = waiting.pop(now, {})
        if now == start or (now - start) % (1 << shortest) == 0:
            moved: _States = {}
            for (joined, counts), value in allowed.items():
                _keep(moved, (joined, _carried(counts, trees, now - 1, now, shortest)), value)
            allowed = moved
            for state, value in returning.items():
                _keep(allowed, state, value)
            fresh = dict(allowed)
        else:
            # Old states could have joined a round ago with the same gain and been free again earlier.
            fresh = {state: value for state, value in returning.items() if _keep(allowed, state, value)}
        visited += len(fresh)
        if visited > max_states:
            return None
        for (joined, counts), value in fresh.items():
            if joined < max_participations:
                reached = value + height + 1 + 2 * sum(counts)
                best = max(best, reached)
                if now + min_sep < rounds:
                    grown = tuple(count + 1 for count in counts)
                    later = _carried(grown, trees, now, now + min_sep, shortest)
                    _keep(waiting.setdefault(now + min_sep, {}), (joined + 1, later), reached)
    return best


def _trees(rounds: int, restarts: Sequence[int]) -> list[tuple[int, int]]:
    """First round and height of the complete tree that each round belongs to."""
    trees = []
    for start, end in segments(rounds, restarts):
        first = start
        while first < end:
            height = (end - first).bit_length() - 1  # the tallest complete tree that still fits
            trees += [(first, height)] * (1 << height)
            first += 1 << height
    return trees


def _carried(counts: _Counts, trees: list[tuple[int, int]], now: int, later: int, shortest: int) -> _Counts:
    """Counts of the nodes around ``later``: those that already were around ``now``, and zeros."""
    start, height = trees[later]
    if now < start:
        return (0,) * max(height - shortest + 1, 0)
    shared = (now - start) ^ (later - start)
    return tuple(0 if shared >> level else count for level, count in enumerate(counts, shortest))


def _keep(states: _States, state: tuple[int, _Counts], value: int) -> bool:
    """Store a value that is the state's best so far; whether it was."""
    if value <= states.get(state, -1):
        return False
    states[state] = value
    return True
