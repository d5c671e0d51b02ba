"""``tacit account``: guarantees without running anything."""

from typing import Annotated

import typer

from pipeline.cli.paper import paper
from pipeline.cli.support import AsJson, command
from pipeline.cli_account_correlated import banded, blt, tree
from pipeline.cli_account_independent import independent
from pipeline.cli_account_shuffle import shuffle

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    help="The guarantee of a mechanism, or every published number again. Examples: tacit account --paper; "
    "tacit account tree --noise-multiplier 7 --rounds 1000 --min-sep 300 --max-participations 4 --delta 1e-10",
)
for _function in (tree, blt, banded, independent, shuffle):
    app.command()(_function)


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
