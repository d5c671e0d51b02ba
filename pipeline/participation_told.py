"""What a stage may tell of participation: bounds as they are, counts of devices rounded down to tens."""

from collections.abc import Mapping

from federated.participation.cohorts import Observed

# More would drown MLflow: long runs have thousands of different separations.
_MOST_BARS = 24


def told(observed: Observed) -> dict:
    """Fields of ``results.FineTune``; ``metrics`` holds both histograms for MLflow, in at most 24 bars each."""
    turnout = observed.turnout
    joined, apart = _tens(observed.participation_histogram), _tens(observed.separation_histogram)
    return {
        "observed_min_sep": observed.min_sep,
        "observed_mins": observed.mins,
        "observed_max_participations": observed.max_participations,
        "violations": observed.violations,
        "participation_histogram": joined,
        "separation_histogram": apart,
        "synthetic_devices": observed.synthetic_devices,
        "rounds_below_goal": None if turnout is None else turnout.rounds_below_goal,
        "mean_devices": None if turnout is None else _ten(turnout.mean_devices),
        "check_ins": None if turnout is None else _ten(turnout.check_ins),
        "fewest_check_ins": None if turnout is None else _ten(turnout.fewest_check_ins),
        "metrics": {
            **{f"devices that joined/{name}": count for name, count in bars(joined).items()},
            **{f"participations apart by/{name}": count for name, count in bars(apart).items()},
        },
    }


def bars(histogram: Mapping[str, int]) -> dict[str, int]:
    """The histogram with neighbours put together where it has more than 24 keys; a bar is named ``first-last``."""
    keys = sorted(map(int, histogram))
    if len(keys) <= _MOST_BARS:
        return {str(key): histogram[str(key)] for key in keys}
    width = -(-(keys[-1] - keys[0] + 1) // _MOST_BARS)
    found: dict[str, int] = {}
    for key in keys:
        first = keys[0] + (key - keys[0]) // width * width
        name = f"{first}-{min(first + width - 1, keys[-1])}"
        found[name] = found.get(name, 0) + histogram[str(key)]
    return found


def _tens(histogram: Mapping[int, int]) -> dict[str, int]:
    return {str(key): _ten(count) for key, count in histogram.items()}


def _ten(count: float) -> int:
    return int(count // 10) * 10
