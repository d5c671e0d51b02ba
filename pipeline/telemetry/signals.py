"""Export a stage as a span and metrics, from its mechanism and its public result; off by default.

with watched(launch_id, stage, locale, features, mechanism) as finished:
    finished(result, reused=False)
"""

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from federated.config.mechanism import MechanismConfig
from pipeline.ground import settings
from pipeline.ground.errors import exit_code
from pipeline.telemetry import export, work
from pipeline.telemetry.allowed import Value, error_type

_BUG = 1
_ROUND = {"round": "tacit.rounds.done", "rounds": "tacit.rounds.total", "seconds": "tacit.round.duration"}
# Labels of a metric beside those of its stage.
_BESIDE = {
    "tacit.stage.exit_code": ("error_type",),
}


class ResultCallback(Protocol):
    """Function to call with a stage's public result."""

    def __call__(self, result: Mapping[str, Any], *, reused: bool) -> None: ...


@contextmanager
def watched(
    launch_id: str, stage: str, locale: str, features: tuple[str, ...], mechanism: MechanismConfig | None
) -> Iterator[ResultCallback]:
    """Export the span and metrics of a stage, from its beginning to its end.

    Args:
      mechanism: the mechanism, if the launch trains on devices.

    Guarantee: everything that leaves the process passes ``allowed.only``, and comes from the launch file, the stage's
    public result, the clock, or this process's memory use; an error is exported by its class alone.
    """
    with work.at(launch_id, stage, locale, features) as at_work:
        emitter = export.emitter(settings.telemetry())
        if emitter is None:
            yield lambda result, *, reused: None
            return
        labels = _labels(at_work)
        begun, values = time.monotonic(), dict[str, Value](_planned(mechanism, stage))
        emitter.record(values, labels)
        span = emitter.begin(launch_id, labels | values)
        ended: dict[str, Value] = {}
        try:
            yield lambda result, *, reused: values.update(_facts(stage, result, reused=reused))
        except BaseException as error:
            ended = {"tacit.stage.exit_code": exit_code(error) or _BUG, "error_type": error_type(error)}
            raise
        finally:
            failed = bool(ended)
            values |= {"tacit.stage.exit_code": 0, "tacit.stage.duration": time.monotonic() - begun} | _memory() | ended
            for name, value in values.items():
                beside = {more: values[more] for more in _BESIDE.get(name, ()) if more in values}
                emitter.record({name: value}, labels | beside)
            emitter.end(span, values, failed)
            emitter.flush()


def progress(point: Mapping[str, object]) -> None:
    """Export a finished round; other points of progress are ignored."""
    emitter = export.emitter(settings.telemetry()) if "round" in point else None
    if emitter is not None:
        values = {name: point[key] for key, name in _ROUND.items() if isinstance(point.get(key), int | float)}
        emitter.record(values, _labels(work.now()))  # type: ignore[arg-type]  # numbers, as checked above


def budget(population: str, left: Callable[[], float]) -> None:
    """Export the share, 0 to 1, of a population's budget that is left; ``left`` is called if anything is exported."""
    emitter = export.emitter(settings.telemetry())
    if emitter is not None:
        emitter.record({"tacit.budget.left": left()}, _labels(work.now()) | {"population": population})


def _labels(at_work: work.Work) -> dict[str, Value]:
    return {
        "launch_id": at_work.launch_id,
        "stage": at_work.stage,
        "attempt": at_work.attempt,
        "locale": at_work.locale,
        "features": at_work.features,
    }


def _planned(mechanism: MechanismConfig | None, stage: str) -> dict[str, Value]:
    """Rounds, devices and noise of the launch file, if the stage trains on devices."""
    if stage != "fine_tune" or mechanism is None:
        return {}
    return {
        "tacit.rounds.total": mechanism.rounds,
        "tacit.devices.goal": mechanism.report_goal,
        "tacit.noise.multiplier": mechanism.noise_multiplier,
        "tacit.noise.clip_norm": mechanism.clip_norm,
    }


def _facts(stage: str, result: Mapping[str, Any], *, reused: bool) -> dict[str, Value]:
    """Values of a stage's public result that are on the allowlist."""
    facts: dict[str, Value] = {"tacit.stage.reused": int(reused)}
    decision, loss = result.get("decision"), result.get("headline") or {}
    if stage == "fine_tune" and "rounds" in result:
        facts["tacit.rounds.done"] = result["rounds"]
    if decision in ("launch", "hold"):
        facts |= {"decision": decision, "tacit.launch.held": int(decision == "hold")}
        facts |= {f"tacit.loss.{name}": loss[name] for name in ("rho", "epsilon") if name in loss}
    return facts


def _memory() -> dict[str, Value]:
    """Peak memory so far."""
    peak = {"tacit.memory.peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        peak["tacit.memory.gpu_peak"] = torch.cuda.max_memory_allocated()
    return {name: amount for name, amount in peak.items() if amount > 0}
