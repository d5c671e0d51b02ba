"""``tacit shuffle``: compute the central epsilon of shuffled local messages."""

from typing import Annotated

import typer

from pipeline.cli.support import AsJson, answer, check_delta, command
from reports.losses import up


@command
def shuffle(
    epsilon0: Annotated[float, typer.Option(help="local epsilon of one message")],
    messages: Annotated[int, typer.Option(help="messages received in one layer")],
    delta: Annotated[float, typer.Option(help="delta of the central statement")],
    domain: Annotated[int, typer.Option(help="items of that layer's domain, None included: prefixes x letters + 1")],
    k: Annotated[int | None, typer.Option(help="items in a message; default: a device's own choice")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the central epsilon of shuffled Subset Selection messages: two upper bounds and an attack's lower bound.

    Example: tacit shuffle --epsilon0 10 --messages 30000000 --domain 1000000 --delta 1e-10
    """
    from discovery.certificates.blanket import CERTIFICATE as BLANKET
    from discovery.certificates.clones import CERTIFICATE as CLONES
    from discovery.certificates.shuffled import shuffled

    check_delta(delta)
    found = shuffled(epsilon0, messages, domain, delta, k)
    printed = found.closed_2023
    lines = (
        f"epsilon {up(found.clones)} at delta {delta:g} by {CLONES}",
        f"epsilon {up(found.blanket)} by {BLANKET}",
        f"an attack reaches {found.attack:.4g}; the true value is between it and the smaller bound",
        "item level, swap adjacency, if messages cannot be linked to devices; "
        f"a device that sends C messages has C x {epsilon0:g}, local",
        f"{'-' if printed is None else f'{printed:.4g}'}: {found.closed_2023_note}",
    )
    answer(found, as_json, text="\n".join(lines))
