"""Question to a reviewer: the launch in three lines, and the concerns that an approval accepts."""

from reports.disclosure.document import Disclosure
from reports.formats import change, percent, warnings
from reports.front import gained
from reports.losses import up
from reports.worst import worst_facts


def concerns(disclosure: Disclosure) -> tuple[str, ...]:
    """Warnings and worst facts of the report, worst first; an approval accepts each of them."""
    return (*(warning.text for warning in warnings(disclosure)), *worst_facts(disclosure))


def summary(disclosure: Disclosure) -> tuple[str, ...]:
    """Guarantee, gain over the starting point, and gain over what users have, a line each."""
    guarantee, utility = disclosure.accounting, disclosure.utility
    parts = ", ".join(f"{' and '.join(part.releases)} {up(part.epsilon)}" for part in guarantee.total.parts)
    lines = [f"guarantee of one device: epsilon {up(guarantee.bound)} at delta {guarantee.delta:g} ({parts})"]
    first = utility.value("private", "top1_recall") if utility else None
    if utility is None or first is None:
        return (*lines, "no comparison on held-out devices")
    lines.append(
        f"first suggestion right {percent(first.value)} of the times ({percent(first.low)} to {percent(first.high)})"
    )
    had, difference = utility.champion, gained(disclosure)
    if had is None:
        lines.append("users have no model of this keyboard yet")
    elif difference is None:
        lines.append(f"not compared with version {had.version}, which users have: {had.left_out or 'no figure'}")
    else:
        lines.append(f"against version {had.version}, which users have: {change(difference).told()}")
    return tuple(lines)
