"""``tacit account``: compute the guarantee of a mechanism, or of all releases of a launch or its file."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.paper import paper
from pipeline.cli.support import AsJson, answer, check_delta, command, completions, open_existing
from reports.losses import up

if TYPE_CHECKING:
    from federated.accounting.amplification import AmplifiedGuarantee
    from federated.accounting.guarantees import Guarantee
    from reports.disclosure.total import Total

_WIDTH = 110


@command
def account(
    launch: Annotated[
        str | None,
        typer.Argument(
            metavar="LAUNCH",
            help="a launch file: all its releases, at its enforced limits. A trained launch, by its name or how an id "
            "begins: all its releases, at the observed participation",
            autocompletion=completions,
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            metavar="BLOCK",
            help="a mechanism block of a launch file, as YAML or as a file with it ('tacit explain mechanism')",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="a published setting: a launch of Xu et al. 2023 or McMahan et al. 2024, or the parameters of a BLT "
            "that ran in production, min-sep-100, min-sep-400 or min-sep-1000; a given block's fields replace its own",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="one field of the block; may be given several times"),
    ] = None,
    strategy: Annotated[
        Path | None,
        typer.Option("--strategy", metavar="FILE", help="the mechanism.json of a plan, instead of a new search"),
    ] = None,
    delta: Annotated[
        list[float] | None, typer.Option(help="may be given several times; default: the block's, or 1e-10")
    ] = None,
    twice: Annotated[bool, typer.Option("--twice", help="also run dp_accounting, as a launch does: 2 s more")] = False,
    published: Annotated[bool, typer.Option("--paper", help="recompute the papers' privacy and noise")] = False,
    slow: Annotated[bool, typer.Option("--slow", help="with --paper: also numbers that take minutes")] = False,
    as_json: AsJson = False,
) -> None:
    """Compute the guarantee of a launch, a mechanism block or a published setting.

    A block has the form and the checks of a launch file's; min_sep is the
    papers' MinS + 1. Fields that do not affect a guarantee are optional:
    clip_norm, randomness, and report_goal unless devices are sampled.

    Correlated noise is accounted by device, under zero-out adjacency.
    Independent noise gets two statements: one that holds even if the sample is
    known, and one amplified by a secret sample. For rounds of a fixed size the
    second statement is under replace-one adjacency, where one device changes a
    sum by twice the clip norm.

    Example: tacit account dags/launches/demo-en-US.yaml --set noise_multiplier=8

    tacit account --preset 'NWP de-DE'

    tacit account --preset min-sep-400 --mechanism
    'noise_multiplier: 7.379, rounds: 1280, min_sep: 301, max_participations: 4'

    tacit account --mechanism 'kind: tree, noise_multiplier: 7, rounds: 1280,
    min_sep: 181, max_participations: 5, restarts: [128, 1152]'

    tacit account --mechanism 'kind: banded, noise_multiplier: 4.523,
    rounds: 2000, min_sep: 400, max_participations: 2, bands: 400'

    tacit account --mechanism 'kind: independent, noise_multiplier: 1,
    rounds: 5000, sampling: poisson, report_goal: 655, population: 100000'

    tacit account --paper
    """
    base = {"mechanism": mechanism, "preset": preset}
    given = base | {"set": changes, "strategy": strategy}
    if slow and not published:
        raise ValueError("slow: needs --paper; add --paper, or leave it out")
    if published:
        _alone("--paper", {"launch": launch, **given, "delta": delta})
        paper(slow, as_json)
        return
    from pipeline.run.named import is_file

    deltas = tuple(delta or ())
    for each in deltas:
        check_delta(each)
    if launch is not None and not is_file(launch):
        _alone(f"launch {launch}", given, "; name its launch file to compute other mechanisms")
        _trained(launch, deltas, as_json)
        return
    from pipeline.preflight import block

    if launch is not None:
        _alone(f"launch file {launch}", base, "; change its mechanism by --set")
        trained, losses = block.of_file(launch, changes or (), deltas, strategy, twice=twice)
        _answer(losses, trained, as_json)
    else:
        asked = block.block(None, mechanism, preset, changes or ())
        _answer({}, block.guarantee(asked, deltas, strategy, twice=twice), as_json)


def _alone(source: str, others: Mapping[str, object], fix: str = "") -> None:
    """ValueError if other options are given beside a complete source."""
    doubled = [name for name, value in others.items() if value]
    if doubled:
        raise ValueError(f"{doubled[0]}: {source} already states this; leave out {', '.join(doubled)}{fix}")


def _as_content(guarantee: "Guarantee") -> dict:
    """Convert a guarantee to JSON values, for ``--json``."""
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


def _trained(launch: str, deltas: tuple[float, ...], as_json: bool) -> None:
    """Account a trained launch from what happened."""
    from pipeline.verify.guarantee import guarantee_again, losses_again

    config, folder, _ = open_existing(launch)
    trained = guarantee_again(config, folder, deltas)
    _answer(losses_again(config, trained, folder.result), trained, as_json)


def _answer(losses: "Mapping[float, Total]", trained: "Guarantee", as_json: bool) -> None:
    """Print the account of a mechanism, below the loss to all releases of its launch, by delta, if it has one."""
    if not losses:
        answer(_as_content(trained), as_json, account_text(trained))
        return
    loss = next(iter(losses.values()))
    content = {
        "unit": loss.unit,
        "adjacency": trained.adjacency,
        "rho": loss.rho,
        "epsilon": _by_delta({delta: each.epsilon for delta, each in losses.items()}),
        "parts": {
            f"{delta:g}": [part.model_dump(mode="json") for part in each.parts] for delta, each in losses.items()
        },
        "training": _as_content(trained),
    }
    answer(content, as_json, launch_text(losses, trained))


def launch_text(losses: "Mapping[float, Total]", trained: "Guarantee") -> str:
    """Format the loss of one device to all releases of a launch, its parts, and the account of its training."""
    from pipeline.releases.ceiling import in_words

    lines = [line for loss in losses.values() for line in (("one device", loss.sentence), ("parts", in_words(loss)))]
    alone = f"Training alone:\n{account_text(trained)}" if trained.rounds else "It trains nothing on devices."
    return f"{_aligned(lines)}\n\n{alone}"


def account_text(guarantee: "Guarantee") -> str:
    """Format a guarantee as lines of text. Epsilons are rounded up."""
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


def _amplified_text(sampled: "AmplifiedGuarantee") -> str:
    lines = [("with sampling", f"{sampled.sampling}, rate {sampled.sampling_rate:g}")]
    for delta, value in sampled.epsilon.items():
        second = "" if sampled.epsilon_second is None else f"  (second accountant: {up(sampled.epsilon_second[delta])})"
        lines.append((f"epsilon at delta {delta:g}", up(value) + second))
    lines.append(("adjacency", sampled.adjacency))
    lines += [("by" if number == 0 else "", method) for number, method in enumerate(sampled.methods)]
    return _aligned([*lines, ("only if", sampled.assumption)])


def _aligned(lines: list[tuple[str, str]]) -> str:
    """Format names in one column and values beside them, with long values wrapped."""
    indent = max(len(name) for name, _ in lines) + 2
    return "\n".join(
        textwrap.fill(
            value, _WIDTH, initial_indent=f"{name:<{indent}}", subsequent_indent=" " * indent, break_on_hyphens=False
        )
        for name, value in lines
    )


def _by_delta(values: Mapping[float, float]) -> dict[str, float]:
    return {f"{delta:g}": value for delta, value in values.items()}
