"""MLflow experiment of a locale: a description of its columns, and a view with them chosen."""

import json

from pipeline.tracking.columns import METRICS, TAGS, WITH_INTERVAL

VIEW = "launches"


def name(locale: str) -> str:
    """The name of a locale's experiment."""
    return f"keyboard/{locale}"


def tags(experiment_id: str, locale: str) -> dict[str, str]:
    """Tags of an experiment that MLflow's pages read: its note, its kind, and a shared view with columns chosen."""
    return {
        "mlflow.note.content": note(experiment_id, locale),
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{VIEW}": json.dumps(_view(), sort_keys=True),
    }


def note(experiment_id: str, locale: str) -> str:
    """The experiment's description, as Markdown."""
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in {**METRICS, **TAGS}.items())
    ends = ", ".join(f"`{name}`" for name in WITH_INTERVAL)
    return (
        f"**[Launches of {locale}, with columns chosen](#/experiments/{experiment_id}/runs?viewStateShareKey={VIEW})** "
        "(those of table 1 of Xu et al. 2023): a run each, and below it a run for each stage, with its curves and "
        "files.\n\n"
        f"| column | what it is |\n|---|---|\n{rows}\n\n"
        f"{ends} have the ends of their interval beside them, as `_low` and `_high`. A tick is a published launch; a "
        "cross is one that is held, was rejected or rolled back, or failed: `tacit.state` says which; a clock waits "
        "for its next stage or its reviewers. Everything else is in artifacts: `launch.json`, and `result.json` of "
        "each stage. MLflow is a display: `tacit verify LAUNCH` holds it against the launch and the ledger.\n"
    )


def _view() -> dict[str, object]:
    chosen = [f"metrics.`{name}`" for name in METRICS]
    return {
        "searchFilter": 'tags.`tacit.launch` LIKE "%"',
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*(f"tags.`{name}`" for name in TAGS), *chosen],
        "viewMaximized": False,
    }
