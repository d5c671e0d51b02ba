"""Tables of ``tacit plan`` on a terminal: mechanisms of the same noise, and what each split of rho would give."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from reports.losses import up

if TYPE_CHECKING:
    from federated.planning.search import Option
    from federated.planning.verdict import Outcome, Verdict


def show_options(options: "tuple[Option, ...]", target_rho: float, console: Console) -> None:
    """The alternatives in 80 columns, and what else must be known about some of them."""
    several = len({row.rounds for row in options}) > 1
    title = "The same noise in the model by other means; ok: meets the target"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    columns = ("mechanism", *(("rounds",) if several else ()), "report\ngoal", "noise\nmult.", "min_sep", "joins\n<=")
    for name in (*columns, "rho", "epsilon", "copies", "ok"):
        table.add_column(name, justify="left" if name == "mechanism" else "right", no_wrap=True)
    for row in options:
        meets = "-" if row.rho is None else "yes" if row.rho <= target_rho else "no"
        cells = [row.label, f"{row.rounds:,}", f"{row.report_goal:,}", f"{row.noise_multiplier:g}", f"{row.min_sep:,}"]
        cells += [f"{row.max_participations:,}", "-" if row.rho is None else f"{row.rho:.4g}", up(row.epsilon)]
        cells += [f"{row.copies:,}", meets]
        table.add_row(*cells[:1], *cells[1 if several else 2 :], style="bold" if row is options[0] else None)
    console.print(table)
    for row in options:
        if row.note:
            console.print(f"{row.label}: {row.note}", highlight=False, markup=False)


def show_trade(verdict: "Verdict", of_file: "Outcome | None", console: Console) -> None:
    """What each split of rho would give."""
    title = f"Gain over {100 * verdict.start:.2f}% on held-out pseudo-users, points of top-1 recall"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("spent on", "ships", "rounds", "goal", "rho", "gain", "pays"):
        table.add_column(name, justify="left" if name in ("spent on", "ships") else "right", no_wrap=True)
    for place, row in enumerate(verdict.outcomes):
        shape = (f"{row.rounds:,}", f"{row.report_goal:,}") if row.rounds else ("-", "-")
        pays = "yes" if verdict.pays(row) else "no"
        gain = f"{100 * row.gain:+.2f} ± {200 * row.error:.2f}"
        label = f"{row.label} (this file)" if of_file is not None and row is of_file else row.label
        style = "bold" if place == verdict.best else None
        table.add_row(label, row.ships, *shape, f"{row.rho:.3g}", gain, pays, style=style)
    console.print(table)
