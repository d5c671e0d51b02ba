"""``tacit rehearse``: a dress rehearsal of a launch file with made-up people."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.support import AsJson, answer, command, duration
from pipeline.telemetry.logs import printable

if TYPE_CHECKING:
    from pipeline.rehearsal.rehearse import Step


@command
def rehearse(
    launch: Annotated[Path, typer.Argument(metavar="FILE", help="a launch file of people's text")],
    people: Annotated[int | None, typer.Option(help="made-up devices; default: planning.population_estimate")] = None,
    scale: Annotated[
        float,
        typer.Option(help="size of the network, its vocabulary and its public training, as a share of the file's"),
    ] = 1.0,
    public: Annotated[
        list[str] | None,
        typer.Option(
            help="files of public text in the layout of C4 (repeatable); default: C4 from HF_ENDPOINT's mirror, "
            "or the locale's words, each as often as any other"
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="a folder for all of it; default: rehearsals/NAME in the working directory")
    ] = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="stop before the launch, for Airflow to run it; 'make rehearse' does both")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rehearse a launch file: every stage, gate, approval, proof, publication, rollback and erasure, with stand-ins.

    Made-up people of the file's locale type words by their frequency. Report goal and noise shrink with their number;
    rounds stay, unless one would have under 100 devices. All of it happens in an installation of its own in a folder,
    so nothing spends or is published elsewhere. The report, rehearsal.md there, names each stand-in, and minutes and
    memory of each stage. It says nothing of what people would gain, and gates on that let everything through. An
    interrupted rehearsal goes on where it ended.

    Example: tacit rehearse dags/launches/es-ES.yaml --people 20000 --scale 0.02
    """
    from pipeline.rehearsal import page
    from pipeline.rehearsal.rehearse import Prepared
    from pipeline.rehearsal.rehearse import rehearse as core

    def tell(step: "Step") -> None:
        memory = "" if step.memory_mib is None else f", {step.memory_mib:,.0f} MiB"
        typer.echo(printable(f"{step.name}: {duration(step.seconds)}{memory}"), err=True)

    place = folder or Path("rehearsals") / launch.stem
    done = core(launch, place, people=people, scale=scale, public=tuple(public or ()), prepare=prepare, tell=tell)
    if isinstance(done, Prepared):
        text = " ".join([*(f"{name}={value}" for name, value in done.environment.items()), str(done.launch_file)])
        answer(done, as_json, text=text)
        return
    written = page.write(done, place)
    answer(done, as_json, text=f"rehearsed {launch.name}: {written}")
