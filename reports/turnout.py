"""Sentences about how full the rounds were, and how long they took."""

from reports.disclosure.guarantee import Participation
from reports.formats import at_least


def turnout(seen: Participation, rounds: int) -> str:
    """How full the rounds were, in a sentence; empty where the sample is secret."""
    if seen.mean_devices is None:
        return ""
    return by_the_clock(seen) + (
        f"Rounds with fewer devices than the report goal: {seen.rounds_below_goal:,} of {rounds:,}; devices in a "
        f"round, as a mean: {at_least(seen.mean_devices)}. Devices expected to check in in a round's hour, as a mean: "
        f"{at_least(seen.check_ins)}, and in the worst hour {at_least(seen.fewest_check_ins)}. Rounds that are not "
        "full weaken no guarantee, as neither noise nor denominator depends on who comes."
    )


def by_the_clock(seen: Participation) -> str:
    """How long rounds took and which separation came out, in two sentences; empty where rounds are counted."""
    table = seen.timetable
    if table is None:
        return ""
    came_out = "no device came back" if seen.observed_min_sep is None else f"{seen.observed_min_sep:,} came out"
    return (
        f"By the clock, in which rounds last as long as they take to fill, the run took {table.run_days:g} days; a "
        f"round took {table.shortest_minutes:g} to {table.longest_minutes:g} minutes, {table.median_minutes:g} as a "
        f"median. Rounds between two of a device were reserved at {seen.enforced_min_sep:,} apart, the least that the "
        f"server let in, and {came_out}. "
    )
