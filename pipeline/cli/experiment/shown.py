"""Terminal text of a live experiment's results, from its logs."""

from collections.abc import Mapping

from evaluation.comparison.verdicts import LOWER_IS_BETTER
from evaluation.live.logs import CONTROL, TREATMENT
from pipeline.experiments.decide import Look
from reports.disclosure.utility import ArmMetric
from reports.formats import metric_name

_NAME = 60


def lines(seen: Look) -> list[str]:
    """Days, buckets, every metric of both arms with its relative change, and the gates."""
    until = f"logs until {seen.logged_until}"
    page = [
        f"days {seen.first_day} to {seen.last_day}, {until}" + (", of simulated users" if seen.simulated else ""),
        f"{seen.treated_buckets:,} of {seen.buckets:,} buckets had the model, {seen.share:.2%} were to "
        f"(chance {seen.split_chance:.3g})",
        "",
        f"{'':<{_NAME}}{'control':>18}{'with the model':>18}  relative change (95%)",
    ]
    arms = {(row.arm, row.metric): row for row in seen.arms}
    for row in seen.differences:
        cells = "".join(f"{_value(arms[arm, row.metric]):>18}" for arm in (CONTROL, TREATMENT))
        less = " (less is better)" if row.metric in LOWER_IS_BETTER else ""
        page.append(f"{metric_name(row.metric) + less:<{_NAME}}{cells}  {_change(row.relative)}")
    page += [f"no interval: {', '.join(map(metric_name, seen.undefined))}"] if seen.undefined else []
    page += ["", *(f"{'ok' if gate.passed else 'NOT':>4}  {gate.title}: {gate.evidence}" for gate in seen.gates)]
    if not seen.over:
        page.append("a look: it decides nothing, and its intervals miss more often the more often one looks")
    return page


def _value(row: ArmMetric) -> str:
    scale, unit = (1, "") if row.metric == "words_per_minute" else (100, "%")
    return f"{scale * row.value:.2f}{unit} ± {scale * (row.high - row.low) / 2:.2f}"


def _change(relative: Mapping[str, float] | None) -> str:
    if relative is None:
        return "none: the control has none"
    # Zero has no sign.
    value, low, high = (round(relative[name], 4) + 0.0 for name in ("value", "low", "high"))
    return f"{value:+.2%} ({low:+.2%} to {high:+.2%})"
