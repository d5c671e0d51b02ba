"""``tacit account shuffle``: what shuffling adds to local messages, from both certificates and an attack."""

from typing import Annotated

import typer

from pipeline.cli.display import round_up
from pipeline.cli.support import AsJson, answer, command


@command
def shuffle(
    epsilon0: Annotated[float, typer.Option(help="local epsilon of one message")],
    messages: Annotated[int, typer.Option(help="messages of one layer that were received")],
    delta: Annotated[float, typer.Option(help="delta of the central statement")],
    domain: Annotated[int, typer.Option(help="items of that layer's domain, None included: prefixes x letters + 1")],
    k: Annotated[int | None, typer.Option(help="items in a message; default: what a device would choose")] = None,
    as_json: AsJson = False,
) -> None:
    """Central epsilon of shuffled Subset Selection messages: two upper bounds and what an attack reaches.

    Example: tacit account shuffle --epsilon0 10 --messages 30000000 --domain 1000000 --delta 1e-10
    """
    from discovery.certificates.attack import attack
    from discovery.certificates.blanket import CERTIFICATE as BLANKET
    from discovery.certificates.blanket import blanket
    from discovery.certificates.clones import CERTIFICATE, ERRATUM, clones, closed_2023
    from discovery.device.randomizer import of_size, subset_selection

    randomizer = subset_selection(epsilon0, domain)
    if k is not None:
        if not 1 <= k < domain:
            raise ValueError(f"k: got {k}; expected from 1 to {domain - 1}, one less than the domain")
        randomizer = of_size(epsilon0, domain, k)
    content = {
        "epsilon0": epsilon0,
        "messages": messages,
        "domain": domain,
        "k": randomizer.size,
        "delta": delta,
        "clones": clones(epsilon0, messages, delta),
        "blanket": blanket(randomizer, messages, delta),
        "attack": attack(randomizer, messages, delta),
        "closed_2023": closed_2023(epsilon0, messages, delta),
        "closed_2023_note": ERRATUM,
        "unit": "item",
        "adjacency": "swap",
    }
    printed = content["closed_2023"]
    lines = (
        f"epsilon {round_up(content['clones'])} at delta {delta:g} by {CERTIFICATE}",
        f"epsilon {round_up(content['blanket'])} by {BLANKET}",
        f"an attack reaches {content['attack']:.4g}; the truth lies between it and the smaller bound",
        "item level, swap adjacency, if messages cannot be linked to devices; "
        f"a device that sends C messages has C x {epsilon0:g}, local",
        f"{'-' if printed is None else f'{printed:.4g}'}: {ERRATUM}",
    )
    answer(content, as_json, text="\n".join(lines))
