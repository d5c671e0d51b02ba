"""Why a launch is held: the gates that failed, each with what to do about it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pipeline.publication.gates.words import words_of

if TYPE_CHECKING:
    from pipeline.cli.launches.spent import Left, Spent


@dataclass(frozen=True)
class Failed:
    """A gate that failed.

    Attributes:
      field: of the launch file, where the threshold is set; empty where tacit sets it.
      fix: what to do.
    """

    id: str
    title: str
    value: float | None
    threshold: float | None
    evidence: str
    field: str
    fix: str

    @property
    def content(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def lines(self) -> list[str]:
        """The lines that a terminal shows."""
        where = f" ({self.field} in the launch file)" if self.field else ""
        return [f"  - {self.title}: {self.evidence}{where}", f"      {self.fix}"]


def failed_gates(decided: Mapping[str, Any]) -> list[Failed]:
    """The failed gates of a result of ``decide``, in the order in which they were asked."""
    return [
        Failed(
            **{name: gate[name] for name in ("id", "title", "value", "threshold", "evidence")},
            field=words_of(gate["id"]).field,
            fix=words_of(gate["id"]).fix,
        )
        for gate in decided.get("gates", ())
        if not gate["passed"]
    ]


@dataclass(frozen=True)
class Hold:
    """Cost of a launch on hold, the reasons of the hold, and the next steps.

    Attributes:
      spent: by the launch itself.
      left: of its population's budget.
    """

    gates: Sequence[Failed]
    spent: "Sequence[Spent]"
    left: "Sequence[Left]"
    next: Sequence[str]

    @property
    def content(self) -> dict[str, Any]:
        return {
            "failed_gates": [gate.content for gate in self.gates],
            "spent": [vars(each) for each in self.spent],
            "left": [each.content for each in self.left],
            "next": list(self.next),
        }

    @property
    def lines(self) -> list[str]:
        """The lines that a terminal shows."""
        return (
            [line for gate in self.gates for line in gate.lines]
            + budget_lines(self.spent, self.left)
            + [f"next:    {step}" for step in self.next]
        )


def budget_lines(spent: "Iterable[Spent]", left: "Iterable[Left]") -> list[str]:
    """Spend of a launch and remainder of its population's budget, for a terminal."""
    lines = [f"spent:   {each}" for each in spent] or ["spent:   nothing"]
    return [*lines, *(f"left:    {each}, for {each.population}" for each in left)]
