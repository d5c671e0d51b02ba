"""CPU seconds of a mechanism's search by rounds, and of the coefficients of C^-1, the search's inner step.

    .venv/stages/bin/python -m benchmarks.papers.blt.cost    twenty seconds of CPU, half of it BandMF's

McMahan et al. 2024 (BLT), figure 1 and table 2. A BLT of three buffers, the best of twelve starts, against banded
Toeplitz strategies and BandMF of as many bands as the min separation, a fifth of the rounds. Coefficients of C^-1 in
two ways: by solving the triangular system, and by algorithm 5, which gives C^-1 as a BLT of its own. The paper timed a
V100 GPU; here everything runs on one thread of a CPU, so orders of magnitude are compared and not seconds.
"""

import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.papers import paper
from federated.accounting.published_rows import BLT
from federated.mechanisms.optimise_banded import optimise_banded
from federated.mechanisms.optimise_blt import decays, optimise_blt, scales, starts

COMMAND = "python -m benchmarks.papers.blt.cost"
PARTICIPATIONS, BUFFERS = 5, 3
ROUNDS = {
    "BLT": (250, 500, 1000, 2000, 5000, 20_000),
    "banded Toeplitz": (250, 500, 1000, 2000, 5000),
    "BandMF": (250, 500, 1000),
}
# Table 2: rounds -> seconds by solving the system and by algorithm 5, and the one over the other.
PRINTED = {
    2000: ("0.021", "3.8e-5", "550"),
    20_000: ("0.258", "3.6e-5", "7176"),
    200_000: ("4.772", "4.5e-5", "104884"),
}
LOOKS = {"BLT": 2, "banded Toeplitz": 5, "BandMF": 4}


def search_seconds(kind: str, rounds: int) -> float:
    """CPU seconds of one search."""
    limits = rounds, rounds // PARTICIPATIONS, PARTICIPATIONS
    if kind == "BLT":
        return optimise_blt(*limits, BUFFERS, "rms").seconds
    return optimise_banded(*limits, limits[1], "matrix" if kind == "BandMF" else "toeplitz").seconds


def solved(column_N: np.ndarray) -> np.ndarray:
    """First column of C^-1 by forward substitution, O(n^2)."""
    rounds = len(column_N)
    reversed_N, inverse_N = column_N[::-1].copy(), np.zeros(rounds)
    inverse_N[0] = 1.0
    for number in range(1, rounds):
        inverse_N[number] = -(reversed_N[rounds - 1 - number : rounds - 1] @ inverse_N[:number])
    return inverse_N


def of_blt(decays_Q: np.ndarray, rounds: int) -> np.ndarray:
    """Coefficients of the BLT with the decays at even places, by algorithm 5 and equation 2."""
    powers_BN = np.exp(np.log(decays_Q[::2])[:, None] * np.arange(rounds - 1))
    return np.concatenate([[1.0], scales(decays_Q)[0] @ powers_BN])


def seconds(made: Callable[[], object], repeats: int) -> float:
    """CPU seconds of one call, the least of several."""
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        made()
        spent.append(time.process_time() - began)
    return min(spent)


def inverses(rounds: int) -> tuple[float, float, float]:
    """Seconds by solving, seconds by algorithm 5, and the largest difference of the two results."""
    decays_Q = decays(starts(rounds, rounds // PARTICIPATIONS, BUFFERS)[0])[0]
    column_N = of_blt(decays_Q, rounds)
    inverse_Q = np.roll(decays_Q, -1)  # C^-1 has the two kinds of decays exchanged
    by_solving = seconds(lambda: solved(column_N), 1 if rounds > 50_000 else 3)
    by_algorithm = seconds(lambda: of_blt(inverse_Q, rounds), 20)
    apart = float(np.abs(solved(column_N[:2000]) - of_blt(inverse_Q, rounds)[:2000]).max())
    return by_solving, by_algorithm, apart


def slope(rounds: tuple[int, ...], spent: list[float]) -> float:
    """Exponent of the rounds in the cost, over the last two of them."""
    return float(np.log(spent[-1] / spent[-2]) / np.log(rounds[-1] / rounds[-2]))


def claims(spent: dict[str, list[float]], inverted: dict[int, tuple[float, float, float]]) -> list[paper.Claim]:
    """Statements of the BLT paper beside these numbers."""
    largest = ROUNDS["BandMF"][-1]
    matrix, blt = spent["BandMF"][-1], spent["BLT"][ROUNDS["BLT"].index(largest)]
    gain = {rounds: by_solving / by_algorithm for rounds, (by_solving, by_algorithm, _) in inverted.items()}
    return [
        paper.Claim(
            "a BLT is found much faster than BandMF (figure 1)",
            f"{blt:.2f} against {matrix:.1f} CPU s at {largest:,} rounds",
            blt < matrix / 10,
        ),
        paper.Claim(
            "its search scales to many more rounds (figure 1)",
            f"{spent['BLT'][-1]:.1f} s at {ROUNDS['BLT'][-1]:,} rounds; doubling the rounds multiplies the cost by "
            f"{2 ** slope(ROUNDS['BLT'], spent['BLT']):.1f}, BandMF's by "
            f"{2 ** slope(ROUNDS['BandMF'], spent['BandMF']):.1f}",
            spent["BLT"][-1] < matrix,
        ),
        paper.Claim(
            "algorithm 5 is orders of magnitude faster than solving for C^-1, and more so with more rounds: "
            + ", ".join(f"{int(times):,} times at {rounds:,}" for rounds, (*_, times) in PRINTED.items())
            + " (table 2)",
            ", ".join(f"{times:,.0f} times" for times in gain.values())
            + f"; the two differ by at most {max(apart for *_, apart in inverted.values()):.0e}",
            min(gain.values()) > 10 and list(gain.values()) == sorted(gain.values()),
        ),
        paper.Claim(
            "algorithm 5 costs about the same at any number of rounds, which a GPU holds at once: "
            + ", ".join(f"{1e3 * float(by_algorithm):.3f} ms" for _, by_algorithm, _ in PRINTED.values())
            + " (table 2)",
            ", ".join(f"{1e3 * by_algorithm:.2f} ms" for _, by_algorithm, _ in inverted.values())
            + " on one CPU thread",
            inverted[200_000][1] < 2 * inverted[2000][1],
        ),
    ]


def numbers(inverted: dict[int, tuple[float, float, float]]) -> list[paper.Number]:
    """Table 2."""
    why = "one thread of a CPU for a V100"
    made = []
    for rounds, printed in PRINTED.items():
        solving, algorithm = inverted[rounds][:2]
        named = zip(("solving, s", "algorithm 5, s", "the one over the other"), printed, strict=True)
        for (name, text), here in zip(named, (solving, algorithm, solving / algorithm), strict=True):
            made.append(paper.Number(f"{BLT}, table 2", f"C^-1 of {rounds:,} rounds: {name}", text, here, why))
    return made


def main() -> None:
    """Time, judge, write."""
    chosen = paper.parser(__doc__).parse_args()
    # Matrices of these sizes on several threads spend more CPU on waiting than on work.
    with threadpool_limits(1, user_api="blas"):
        for kind in ROUNDS:
            search_seconds(kind, 100)  # the first call of a kind loads what it needs
        spent = {kind: [search_seconds(kind, rounds) for rounds in listed] for kind, listed in ROUNDS.items()}
        inverted = {rounds: inverses(rounds) for rounds in PRINTED}
    searches = [paper.Line(kind, ROUNDS[kind], values, LOOKS[kind]) for kind, values in spent.items()]
    steps = [
        paper.Line(f"{name}{source}", list(PRINTED), values, colour, style)
        for place, (name, colour) in enumerate((("solving", 0), ("algorithm 5", 1)))
        for source, values, style in (
            (", here", [times[place] for times in inverted.values()], "-"),
            (", printed", [float(times[place]) for times in PRINTED.values()], ":"),
        )
    ]
    rows: list[list[object]] = [
        [f"search: {kind}", f"{rounds:,}", value, None]
        for kind, values in spent.items()
        for rounds, value in zip(ROUNDS[kind], values, strict=True)
    ]
    rows += [
        [f"C^-1: {name}", f"{rounds:,}", inverted[rounds][place], float(printed[place])]
        for place, name in enumerate(("solving", "algorithm 5"))
        for rounds, printed in PRINTED.items()
    ]
    result = paper.Result(
        name="blt-cost",
        title="Cost of a mechanism's search",
        paper="McMahan et al. 2024 (BLT), figure 1 and table 2",
        setting=f"{PARTICIPATIONS} participations, min separation a fifth of the rounds, BLTs of {BUFFERS} buffers. "
        "CPU seconds of one thread on a shared machine; printed: a V100.",
        table=[["what", "rounds", "CPU s here", "s printed"], *rows],
        claims=claims(spent, inverted),
        numbers=numbers(inverted),
        draws=[
            paper.lines(searches, "rounds", "CPU seconds of a search", "xy"),
            paper.lines(steps, "rounds", "seconds for C^-1", "xy"),
        ],
    )
    paper.write(result, COMMAND, chosen.results)


if __name__ == "__main__":
    main()
