"""Launches as the site lists them, of several locales, features and states. Nobody launched them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from reports.figures.trends import Course
from reports.site import Launches, LedgerLaunch

_DAY = datetime(2026, 8, 3, 9, 30, tzinfo=UTC)


def row(launch_id: str, **changes: Any) -> dict[str, Any]:
    """What ``tacit runs`` says of a launch that was published, with some of it replaced."""
    usual = {
        "launch_id": launch_id,
        "locale": "en-US",
        "features": ["NWP"],
        "population": "us-keyboards",
        "simulated": False,
        "seeded": False,
        "began": _DAY.isoformat(),
        "state": "published",
        "detail": "as version 1 of keyboard-en-US-NWP",
        "failed": False,
        "approvers": ["ana"],
        "decision": "launch",
        "rho": 0.45,
        "epsilon": 4.6112,
        "delta": 1e-10,
        "guarantee": "4.62",
        "loss": "epsilon 4.62 at delta 1e-10, rho 0.4500",
        "top1_gain": 0.029,
        "top1_gain_low": 0.026,
        "top1_gain_high": 0.033,
        "running": None,
    }
    return usual | changes


def _later(days: int) -> str:
    return (_DAY + timedelta(days=days)).isoformat()


_UNKNOWN = dict.fromkeys(
    ("decision", "rho", "epsilon", "guarantee", "loss", "top1_gain", "top1_gain_low", "top1_gain_high")
)
_WHY = "gain in top-1 recall: +0.3 points (-0.1 to +0.7), at least +0.5 wanted; canaries: one of 24 was found"
ROWS = (
    row("fr-FR-1b2c3d4e", locale="fr-FR", population="fr-keyboards", began=_later(92), state="unfinished", approvers=[])
    | _UNKNOWN
    | {
        "failed": True,
        "detail": "fine_tune stopped at 2026-11-03 11:02Z with exit code 65 (BudgetExceeded); see its log",
    },
    row("en-US-3f9d1c20", began=_later(84), state="held", decision="hold", detail=_WHY, approvers=[])
    | {"top1_gain": 0.003, "top1_gain_low": -0.001, "top1_gain_high": 0.007},
    row("es-ES-77aa10b3", locale="es-ES", population="es-keyboards", began=_later(70), state="waiting", approvers=[])
    | {"detail": "for approval by ana or luis", "features": ["NWP", "SC"], "top1_gain": 0.021, "top1_gain_low": 0.017}
    | {"top1_gain_high": 0.025},
    row("demo-en-GB-5e6f7a8b", locale="en-GB", population="made-up-typists", began=_later(61), simulated=True)
    | _UNKNOWN
    | {"state": "unfinished", "running": "fine_tune", "approvers": [], "detail": "not every stage has ended"},
    row("en-US-90c1e2f4", began=_later(56), features=["NWP", "SC", "OTF"], detail="as version 3 of keyboard-en-US-NWP")
    | {"approvers": ["ana", "luis"], "top1_gain": 0.034, "top1_gain_low": 0.030, "top1_gain_high": 0.038},
    row("es-ES-0d4be9a1", locale="es-ES", population="es-keyboards", began=_later(31), state="rejected", approvers=[])
    | {"detail": "by luis at 2026-09-05T10:00:00Z: words of a trade union among the discovered ones"},
    row("en-US-c41f00d5", began=_later(28), state="rolled back", detail="by ana at 2026-09-02T08:11:00Z: complaints"),
    row("es-ES-6c5d4e3f", locale="es-ES", population="es-keyboards", began=_later(2), top1_gain=0.018)
    | {"top1_gain_low": 0.013, "top1_gain_high": 0.022, "approvers": ["luis"], "epsilon": 12.31, "rho": 1.2}
    | {"guarantee": "12.31 (local words 7.70)"},
    row("en-US-8a7b6c5d"),
)


def _course(population: str, days: int | None, ceiling: float, *steps: tuple[int, float]) -> Course:
    points = [(_DAY + timedelta(days=when), spent, ceiling) for when, spent in steps]
    return Course(population, days, tuple(points))


COURSES = (
    _course("us-keyboards", 60, 1.0, (-3, 0.0), (0, 0.45), (28, 0.9), (56, 0.9), (60, 0.9), (84, 0.9), (100, 0.9)),
    _course("us-keyboards", None, 4.0, (-3, 0.0), (0, 0.45), (28, 0.9), (56, 1.35), (84, 1.8), (100, 1.8)),
    _course("es-keyboards", None, 2.5, (0, 0.0), (2, 1.2), (31, 1.65), (70, 2.1), (100, 2.1)),
)
ELSEWHERE = (
    LedgerLaunch(
        launch_id="pt-BR-aa00bb11-20261001",
        populations=("br-keyboards",),
        spent=("rho 0.45 by fine_tune", "epsilon per typed word 8 by discover, reserved"),
        began=_later(59),
        ended=_later(60),
        approvers=("luis",),
    ),
)
LAUNCHES = Launches(ROWS, ELSEWHERE, COURSES)
