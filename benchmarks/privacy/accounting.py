"""Exact sensitivity of the tree: CPU time of every published row, and against trying every pattern.

.venv/stages/bin/python -m benchmarks.privacy.accounting

Each published row has at most ``LIMIT_MS``; ArithmeticError when one needs more.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from federated.accounting.published_rows import BLT, NOTEBOOK, ROWS, XU, Row
from federated.mechanisms.second_sensitivity import tree_sensitivity_squared_forward
from federated.mechanisms.sensitivity import tree_matrix, tree_sensitivity_squared
from tests.helpers.audits.strategies import pattern_sensitivity_squared

LIMIT_MS = 300.0
PAPERS = {XU: "Xu, table", BLT: "BLT, table", NOTEBOOK: "notebook,"}
REPEATS = 5
# rounds, min_sep, max_participations: small enough for trying every pattern.
SMALL = ((12, 3, 3), (16, 4, 4), (20, 5, 4))


def timed(work: Callable[[], float], repeats: int = REPEATS) -> tuple[float, float]:
    """Result and median CPU milliseconds."""
    spent, result = [], 0.0
    for _ in range(repeats):
        began = time.process_time()
        result = work()
        spent.append((time.process_time() - began) * 1e3)
    return result, statistics.median(spent)


def shape(row: Row) -> tuple[int, int, int]:
    """Rounds, min_sep and participations of a published row."""
    return row.inputs["rounds"], row.inputs["mins"] + 1, row.inputs["max_participations"]


def main() -> None:
    """Print both tables."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"{'rounds, min_sep, k':<22}{'square':>8}{'program ms':>12}{'brute ms':>12}{'ratio':>8}")
    for row in SMALL:
        fast, fast_ms = timed(lambda row=row: tree_sensitivity_squared(*row))
        slow, slow_ms = timed(lambda row=row: pattern_sensitivity_squared(tree_matrix(row[0]), *row[1:]))
        if fast != slow:
            raise ArithmeticError(f"{row}: {fast} by the program, {slow} by trying every pattern")
        print(f"{row!s:<22}{fast:>8.0f}{fast_ms:>12.2f}{slow_ms:>12.1f}{slow_ms / fast_ms:>8.0f}")

    print(f"\n{'published row':<36}{'rounds/min_sep/k':>18}{'square':>8}{'program ms':>12}{'second ms':>12}  rho")
    slowest = 0.0
    for published in ROWS:
        if published.recipe != "tree" or published.quantity != "rho":
            continue
        square, spent_ms = timed(lambda published=published: tree_sensitivity_squared(*shape(published)))
        again, second_ms = timed(lambda published=published: tree_sensitivity_squared_forward(*shape(published)), 1)
        if square != again:
            raise ArithmeticError(f"{published.name}: {square} by one program, {again} by the other")
        slowest = max(slowest, spent_ms)
        name = f"{PAPERS[published.source]} {published.table} {published.row}"
        rho = square / (2 * published.inputs["noise_multiplier"] ** 2)
        numbers = f"{'/'.join(map(str, shape(published))):>18}{square:>8.0f}{spent_ms:>12.2f}{second_ms:>12.2f}"
        aside = f" ({published.departs})" if published.departs else ""
        print(f"{name:<36}{numbers}  {rho:.4f}, printed {published.printed}{aside}")
    print(f"slowest {slowest:.2f} ms, limit {LIMIT_MS:.0f} ms: {'kept' if slowest <= LIMIT_MS else 'MISSED'}")
    if slowest > LIMIT_MS:
        raise ArithmeticError(f"a published row took {slowest:.0f} ms, more than {LIMIT_MS:.0f}")


if __name__ == "__main__":
    main()
