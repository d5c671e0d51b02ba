"""``tacit shuffle``: central epsilon of shuffled local messages."""

from typing import Annotated

import typer

from pipeline.cli.support import AsJson, answer, check_delta, command
from reports.losses import up

# The range that launches may use and that the certificates are tested for.
_LEAST_EPSILON0, _MOST_EPSILON0 = 0.001, 100
_MOST_MESSAGES, _MOST_DOMAIN = 10**12, 10**9


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

    Example: tacit shuffle --epsilon0 10 --messages 30000000 --domain 1000000 --delta 1e-10
    """
    from discovery.certificates.attack import attack
    from discovery.certificates.blanket import CERTIFICATE as BLANKET
    from discovery.certificates.blanket import blanket
    from discovery.certificates.clones import CERTIFICATE, ERRATUM, clones, closed_2023
    from discovery.device.randomizer import of_size, subset_selection

    check_delta(delta)
    for name, value, least, most in (
        ("epsilon0", epsilon0, _LEAST_EPSILON0, _MOST_EPSILON0),
        ("messages", messages, 1, _MOST_MESSAGES),
        ("domain", domain, 2, _MOST_DOMAIN),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name}: got {value:g}; give a number from {least:,} to {most:,}")
    randomizer = subset_selection(epsilon0, domain)
    if k is not None:
        if not 1 <= k < domain:
            raise ValueError(f"k: got {k}; expected from 1 to {domain - 1}, one less than the domain")
        randomizer = of_size(epsilon0, domain, k)
    by_clones, by_blanket = clones(epsilon0, messages, delta), blanket(randomizer, messages, delta)
    attacked, printed = attack(randomizer, messages, delta), closed_2023(epsilon0, messages, delta)
    content = {
        "epsilon0": epsilon0,
        "messages": messages,
        "domain": domain,
        "k": randomizer.size,
        "delta": delta,
        "clones": by_clones,
        "blanket": by_blanket,
        "attack": attacked,
        "closed_2023": printed,
        "closed_2023_note": ERRATUM,
        "unit": "item",
        "adjacency": "swap",
    }
    lines = (
        f"epsilon {up(by_clones)} at delta {delta:g} by {CERTIFICATE}",
        f"epsilon {up(by_blanket)} by {BLANKET}",
        f"an attack reaches {attacked:.4g}; the truth lies between it and the smaller bound",
        "item level, swap adjacency, if messages cannot be linked to devices; "
        f"a device that sends C messages has C x {epsilon0:g}, local",
        f"{'-' if printed is None else f'{printed:.4g}'}: {ERRATUM}",
    )
    answer(content, as_json, text="\n".join(lines))
