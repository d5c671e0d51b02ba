"""``tacit account``: guarantees without running anything."""

from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.account_answer import as_content, as_text
from pipeline.cli.account_options import (
    AnyRounds,
    BandedStrategy,
    BltStrategy,
    IndependentStrategy,
    Source,
    SpacedRounds,
    Strategy,
    TreeStrategy,
    alone,
    check_delta,
    stated,
)
from pipeline.cli.paper import paper
from pipeline.cli.spelling import ARGUMENT, formerly
from pipeline.cli.support import AsJson, answer, command, open_existing
from reports.losses import up

if TYPE_CHECKING:
    from federated.accounting.guarantees import Guarantee

_DEFAULT_DELTA = 1e-10
# Of what a launch may have, and what the certificates are tested for.
_LEAST_EPSILON0, _MOST_EPSILON0 = 0.001, 100
_MOST_MESSAGES, _MOST_DOMAIN = 10**12, 10**9

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    help="The guarantee of a mechanism, or every published number again. Examples: tacit account --paper; "
    "tacit account tree --noise-multiplier 7 --rounds 1000 --min-sep 300 --max-participations 4 --delta 1e-10",
)


@app.callback()
@command
def account(
    context: typer.Context,
    published: Annotated[bool, typer.Option("--paper", help="every published number again, beside ours")] = False,
    slow: Annotated[bool, typer.Option("--slow", help="with --paper: also what takes minutes")] = False,
    as_json: AsJson = False,
) -> None:
    if context.invoked_subcommand is not None:
        if published or slow or as_json:
            raise ValueError(f"{context.invoked_subcommand}: options go after it, and --paper stands alone")
        return
    if not published:
        raise ValueError("account: give --paper, or a mechanism, as in: tacit account tree --help")
    paper(slow, as_json)


@app.command(cls=formerly(run=ARGUMENT))
@command
def tree(shape: SpacedRounds, strategy: TreeStrategy, source: Source, as_json: AsJson = False) -> None:
    """Tree aggregation with Honaker's estimate, by device under zero-out adjacency.

    Example: tacit account tree --noise-multiplier 7 --rounds 1000 --min-sep 300 --max-participations 4 --delta 1e-10
    """
    _account("tree", shape, strategy, source, as_json)


@app.command(cls=formerly(run=ARGUMENT))
@command
def blt(shape: SpacedRounds, strategy: BltStrategy, source: Source, as_json: AsJson = False) -> None:
    """A buffered linear Toeplitz mechanism (McMahan et al. 2024), by device under zero-out adjacency.

    Example: tacit account blt --preset min-sep-400 --noise-multiplier 7.379 --rounds 1280 --mins 300
    --max-participations 4 --delta 1e-10
    """
    _account("blt", shape, strategy, source, as_json)


@app.command(cls=formerly(run=ARGUMENT))
@command
def banded(shape: SpacedRounds, strategy: BandedStrategy, source: Source, as_json: AsJson = False) -> None:
    """A banded strategy of least error (Choquette-Choo et al. 2023), by device under zero-out adjacency.

    BandMF (matrix) needs no search here: whatever it finds has columns of norm 1 that do not overlap.

    Example: tacit account banded --bands 400 --noise-multiplier 4.523 --rounds 2000 --min-sep 400
    --max-participations 2 --delta 1e-10
    """
    _account("banded", shape, strategy, source, as_json)


@app.command(cls=formerly(run=ARGUMENT))
@command
def independent(shape: AnyRounds, strategy: IndependentStrategy, source: Source, as_json: AsJson = False) -> None:
    """DP-FedAvg with independent noise: what holds whoever knows the sample, and what a secret sample gains.

    Poisson sampling is accounted under zero-out adjacency. Rounds of a fixed size are accounted under
    replace-one adjacency, where one device changes a sum by twice the clip norm.

    Example: tacit account independent --sampling poisson --sampling-rate 0.00655 --noise-multiplier 1
    --rounds 5000 --delta 1e-9
    """
    _account("independent", shape, strategy, source, as_json)


@app.command()
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


def _account(kind: str, shape: AnyRounds, strategy: Strategy, source: Source, as_json: bool) -> None:
    """Answer with the guarantee of a launch, of a mechanism file or of the options, whichever is asked for."""
    guarantee = _guarantee(kind, shape, strategy, source)
    answer(as_content(guarantee), as_json, as_text(guarantee))


def _guarantee(kind: str, shape: AnyRounds, strategy: Strategy, source: Source) -> "Guarantee":
    if source.launch is not None:
        alone(f"launch {source.launch}", stated(strategy, shape) | {"mechanism": source.mechanism})
        return _of_launch(source.launch, kind, source.deltas())
    limits, mechanism = shape.limits(), None
    if source.mechanism is not None:
        alone("--mechanism", stated(strategy))
        mechanism = source.read(kind)
    deltas = source.deltas() or (_DEFAULT_DELTA,)
    from federated.accounting.guarantees import guarantee_of

    return guarantee_of(
        mechanism or strategy.build(limits),
        limits.rounds,
        limits.min_sep,
        limits.max_participations,
        deltas,
        twice=source.twice,
    )


def _of_launch(launch: str, kind: str, deltas: tuple[float, ...]) -> "Guarantee":
    """The guarantee of a launch that has trained, from what happened in it."""
    config, folder, _ = open_existing(launch)
    used = config.mechanism.kind
    if used != kind:
        raise ValueError(f"launch: {launch} used kind {used}; use: tacit account {used} {launch}")
    from pipeline.verify.guarantee import guarantee_again, of_launch

    return of_launch(config, guarantee_again(config, folder, deltas))
