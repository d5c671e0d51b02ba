"""Exact sensitivity of the tree: the dynamic program against trying every pattern, and published rows.

.venv/stages/bin/python benchmarks/accounting.py
"""

import time
from collections.abc import Callable

from federated.mechanisms.strategy import pattern_sensitivity_squared, tree_matrix, tree_sensitivity_squared

# rounds, min_sep, max_participations of Xu et al. 2023, tables 1 and 2 (their MinS + 1).
PUBLISHED = (
    (930, 213, 4), (1280, 181, 5), (1620, 304, 5), (530, 55, 8), (1900, 527, 3), (2800, 372, 7), (3600, 910, 3),
    (430, 55, 7), (1290, 171, 6),
)  # fmt: skip
SMALL = ((12, 3, 3), (16, 4, 4), (20, 5, 4))


def timed(work: Callable[[], float]) -> tuple[float, float]:
    """Result and CPU milliseconds."""
    began = time.process_time()
    return work(), (time.process_time() - began) * 1e3


def main() -> None:
    """Print both tables."""
    print(f"{'rounds, min_sep, k':<22}{'square':>8}{'program ms':>12}{'brute ms':>12}{'ratio':>8}")
    for row in SMALL:
        fast, fast_ms = timed(lambda row=row: tree_sensitivity_squared(*row))
        slow, slow_ms = timed(lambda row=row: pattern_sensitivity_squared(tree_matrix(row[0]), *row[1:]))
        if fast != slow:
            raise ArithmeticError(f"{row}: {fast} by the program, {slow} by trying every pattern")
        print(f"{row!s:<22}{fast:>8.0f}{fast_ms:>12.2f}{slow_ms:>12.1f}{slow_ms / fast_ms:>8.0f}")
    for row in PUBLISHED:
        square, spent_ms = timed(lambda row=row: tree_sensitivity_squared(*row))
        print(f"{row!s:<22}{square:>8.0f}{spent_ms:>12.2f}")


if __name__ == "__main__":
    main()
