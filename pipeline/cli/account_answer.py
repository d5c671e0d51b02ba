"""A guarantee as JSON and as a small table."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from reports.losses import up

if TYPE_CHECKING:
    from federated.accounting.amplification import Amplified
    from federated.accounting.guarantees import Guarantee

_WIDTH = 110


def as_content(guarantee: "Guarantee") -> dict:
    """A guarantee as JSON values, the answer of ``--json``."""
    content = {
        "rounds": guarantee.rounds,
        "min_sep": guarantee.min_sep,
        "mins": guarantee.min_sep - 1,
        "max_participations": guarantee.max_participations,
        "sensitivity_squared": guarantee.sensitivity_squared,
        "rho": guarantee.rho,
        "mu": guarantee.mu,
        "epsilon": _by_delta(guarantee.epsilon),
        "epsilon_pld": _by_delta(guarantee.epsilon_pld),
        "method": "; ".join(guarantee.methods),
        "unit": guarantee.unit,
        "adjacency": guarantee.adjacency,
    }
    sampled = guarantee.amplified
    if sampled is not None:
        content["amplified"] = {
            name: _by_delta(value) if isinstance(value, Mapping) else value for name, value in vars(sampled).items()
        }
    return content


def as_text(guarantee: "Guarantee") -> str:
    """A guarantee as lines for a person. Epsilons are rounded up."""
    lines = [
        ("sensitivity^2", f"{guarantee.sensitivity_squared:g}"),
        ("rho (zCDP)", f"{guarantee.rho:.6g}"),
        ("mu (GDP)", f"{guarantee.mu:.6g}"),
        *((f"epsilon at delta {delta:g}", up(value)) for delta, value in guarantee.epsilon.items()),
        ("per", f"{guarantee.unit}, {guarantee.adjacency} adjacency"),
        ("for", f"{guarantee.rounds:,} rounds, {_limits_text(guarantee)}"),
        *(("by" if number == 0 else "", method) for number, method in enumerate(guarantee.methods)),
    ]
    text = _aligned(lines)
    return text if guarantee.amplified is None else f"{text}\n\n{_amplified_text(guarantee.amplified)}"


def _limits_text(guarantee: "Guarantee") -> str:
    if guarantee.max_participations == 1:
        return "each device in one at most"
    joined = f"each device in {guarantee.max_participations:,} at most"
    return (
        joined if guarantee.min_sep == 1 else f"{joined}, {guarantee.min_sep:,} apart (MinS {guarantee.min_sep - 1:,})"
    )


def _amplified_text(sampled: "Amplified") -> str:
    lines = [("with sampling", f"{sampled.sampling}, rate {sampled.sampling_rate:g}")]
    for delta, value in sampled.epsilon.items():
        second = "" if sampled.epsilon_second is None else f"  (second accountant: {up(sampled.epsilon_second[delta])})"
        lines.append((f"epsilon at delta {delta:g}", up(value) + second))
    lines.append(("adjacency", sampled.adjacency))
    lines += [("by" if number == 0 else "", method) for number, method in enumerate(sampled.methods)]
    return _aligned([*lines, ("only if", sampled.assumption)])


def _aligned(lines: list[tuple[str, str]]) -> str:
    """Names in one column, values beside them, long ones folded."""
    indent = max(len(name) for name, _ in lines) + 2
    return "\n".join(
        textwrap.fill(value, _WIDTH, initial_indent=f"{name:<{indent}}", subsequent_indent=" " * indent)
        for name, value in lines
    )


def _by_delta(values: Mapping[float, float]) -> dict[str, float]:
    return {f"{delta:g}": value for delta, value in values.items()}
