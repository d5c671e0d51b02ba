"""Options of ``tacit ledger`` that state a population's budget, and the budget that they make."""

from typing import Annotated

import typer
from pydantic import ValidationError

from pipeline.ledger.budget import Budget

MaxRho = Annotated[float, typer.Option(help="device-level rho of all launches together")]
MaxTotal = Annotated[
    float, typer.Option("--max-epsilon", help="epsilon of one device over all releases of all launches, words too")
]
Delta = Annotated[float, typer.Option(help="delta at which that epsilon holds, over all launches together")]
MaxEpsilon = Annotated[
    float | None, typer.Option("--max-discovery-epsilon", help="epsilon of one typed word, of all launches together")
]
WindowDays = Annotated[
    int | None, typer.Option(help="both hold in any so many days, and text is kept no longer; default: for ever")
]
LifetimeRho = Annotated[float | None, typer.Option(help="beside a window: device-level rho of all launches for ever")]
LifetimeEpsilon = Annotated[
    float | None, typer.Option(help="beside a window: epsilon over all releases of all launches for ever")
]


def budget_of(**named: float | None) -> Budget:
    """The budget of these options; ValueError that names the option."""
    for option in ("lifetime_rho", "lifetime_epsilon"):
        if named[option] is not None and named["window_days"] is None:
            raise ValueError(
                f"--{option.replace('_', '-')}: stands beside --window-days; without a window "
                f"--{option.replace('lifetime', 'max').replace('_', '-')} is for ever"
            )
    try:
        return Budget.model_validate(named)
    except ValidationError as error:
        wrong = error.errors()[0]
        option = "--" + str(wrong["loc"][0]).replace("_", "-")
        bounds = {"--window-days": "from 1 to 36,500", "--delta": "between 0 and 1"}
        bound = bounds.get(option, "above 0 and finite")
        raise ValueError(f"{option}: {wrong['input']!r}; give a positive number, {bound}") from error
