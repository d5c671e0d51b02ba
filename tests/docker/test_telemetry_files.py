"""Prometheus's rules and Grafana's dashboard ask for metrics that there are, and each alert has its heading."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml

from pipeline.telemetry.allowed import ATTRIBUTES, METRICS
from tests.helpers.telemetry.prometheus import prometheus_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker" / "telemetry"
RULES = [rule for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"] for rule in group["rules"]]
BOARD = json.loads((FOLDER / "grafana" / "launches.json").read_text(encoding="utf-8"))
OF_AIRFLOW = sorted((ROOT / ".venv" / "airflow" / "lib").glob("python3.*/site-packages/airflow"))
AIRFLOW = (*OF_AIRFLOW, ROOT)[0] / "_shared" / "observability"


def ours() -> set[str]:
    """What Prometheus calls our metrics; a histogram is three."""
    named = {prometheus_name(name): metric.kind for name, metric in METRICS.items()}
    histograms = {f"{name}_{part}" for name, kind in named.items() if kind == "histogram" for part in ("sum", "count")}
    return {name for name, kind in named.items() if kind != "histogram"} | histograms


def airflows() -> set[str]:
    """What Prometheus calls Airflow's, by Airflow's own list of them."""
    listed = yaml.safe_load((AIRFLOW / "metrics" / "metrics_template.yaml").read_text(encoding="utf-8"))["metrics"]
    suffix = {"counter": "_total"}
    return {f"airflow_{each['name'].replace('.', '_')}{suffix.get(each['type'], '')}" for each in listed}


def expressions() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in RULES)
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$__range", "1h").replace("$locale", "en-US")
            yield panel["title"], text


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """Every metric that an expression asks for."""
    seen: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            seen.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return seen


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_every_expression_asks_for_metrics_and_labels_that_there_are(name: str, expression: str) -> None:
    found = selectors(expression)
    assert found
    for selector in found:
        if selector.name in ("pg_up", "redis_up", "up"):
            continue  # of the databases' exporters, and Prometheus' own
        if selector.name.startswith("airflow_"):
            assert not AIRFLOW.exists() or selector.name in airflows()
            continue
        assert selector.name in ours()
        assert {matcher.name for matcher in selector.matchers.matchers} <= ATTRIBUTES.keys()


def headings() -> set[str]:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    return set(re.findall(r"^### (.+)$", text, flags=re.MULTILINE))


def anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def test_every_alert_has_its_heading_and_every_heading_its_alert() -> None:
    named = {rule["alert"] for rule in RULES}
    assert {heading.removeprefix("Alert ") for heading in headings() if heading.startswith("Alert ")} == named
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{anchor('Alert ' + rule['alert'])}"
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_panels_stand_side_by_side_and_know_their_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    (source,) = yaml.safe_load((FOLDER / "grafana" / "datasource.yaml").read_text(encoding="utf-8"))["datasources"]
    assert {panel["datasource"]["uid"] for panel in BOARD["panels"]} == {source["uid"]}


def test_the_limit_of_memory_is_that_of_the_workers() -> None:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    (rule,) = (rule for rule in RULES if rule["alert"] == "StageNearMemoryLimit")
    stated = re.search(r"0\.9 \* (\d+) \* 1024 \^ 3", rule["expr"])
    assert stated is not None
    assert compose["services"]["worker-cpu"]["mem_limit"] == f"{stated[1]}g"
