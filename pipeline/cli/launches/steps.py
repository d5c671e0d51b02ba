"""Next steps for a launch, by its state."""

from pipeline.cli.launches.held import failed_gates
from pipeline.cli.launches.known import UNKNOWN, Launch

_READ = "read {run}/public/report/report.html"


def next_steps(launch: Launch, *, runs: bool = False) -> list[str]:
    """Sentences for whoever started it, the most useful first.

    Args:
      runs: whether a stage of it runs now.
    """
    from pipeline.verify.erase import in_words, statement  # with SQLAlchemy: slow to import

    run_id, path = launch.run.launch_id, launch.run.path
    read = _READ.format(run=path)
    stated = statement(launch.run)
    erased = [] if stated is None else [in_words(stated)]
    if launch.state == "unfinished" and erased:
        return [*erased, "it cannot go on: launch for a later date, or under another name"]
    if launch.state == "unfinished":
        if runs:
            return ["wait, or see how far it is with 'tacit status'"]
        code = launch.stop.exit_code if launch.stop else None
        look = [f"see what exit code {code} asks for: tacit explain {code}"] if code else []
        return [*look, f"go on with it: tacit launch {run_id}"]
    if launch.state == "held":
        fixes = dict.fromkeys(gate.fix for gate in failed_gates(launch.results.get("decide", {})))
        return [*erased, *fixes, f"{read}; a changed launch file is another launch, with a spend of its own"]
    if launch.state == "waiting":
        return [f"{read}, see its main concerns: tacit review {run_id}, then answer with --answer"]
    if launch.state == "approved":
        return [f"publish it: tacit launch {run_id}"]
    if launch.state == "in experiment":
        return [
            f"look at its logs: tacit ab {run_id} --logs FILES",
            f"decide it when its days are over: tacit experiment decide {run_id}; or stop it: tacit experiment stop",
        ]
    if launch.state == "published":
        return [
            f'try it: tacit predict {path}/public/publish/bundle "see you"',
            f"derive it again: tacit verify {run_id}",
        ]
    if launch.state == UNKNOWN:
        return ["make the ledger (tacit ledger init), or set TACIT_LEDGER_URL to where it is"]
    return erased or [f"it is over; erase what is private of it: tacit erase {run_id}"]
