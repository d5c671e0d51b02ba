"""Contradictions between two places of a report."""

import html
import re
from collections.abc import Iterator

from reports.disclosure.document import Disclosure
from reports.figures.comparison import of_utility
from reports.formats import METRICS, arm_name
from reports.losses import strength
from reports.render import pages

OF_METRIC = {words: metric for metric, words in METRICS.items()}


def rows_of_table(text: str, head: str) -> Iterator[list[str]]:
    """Cells of each row of the table that begins with these heads."""
    lines = text[text.index(head) :].split("\n\n", 1)[0].splitlines()[2:]
    for line in lines:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def contradictions(disclosure: Disclosure) -> list[str]:
    """Pairs of statements in the report and the disclosure that cannot both be true."""
    text = html.unescape(pages(disclosure, {})["report.md"]).replace("\\", "")
    against = []
    utility = disclosure.utility
    said: dict[tuple[str, str, str], str] = {}
    if utility:
        for candidate, baseline, metric, value, interval, verdict_said in rows_of_table(
            text, "| candidate | minus | metric"
        ):
            low, high = (float(re.sub("[^-+.0-9]", "", end)) for end in interval.split(" to "))
            if not low <= float(re.sub("[^-+.0-9]", "", value)) <= high:
                against.append(f"{metric}: {value} outside {interval}")
            sign = "no clear difference" if low <= 0 <= high else "up" if low > 0 else "down"
            lower = OF_METRIC[metric] in ("words_modified", "errors_left")
            expected = {"up": "worse" if lower else "better", "down": "better" if lower else "worse"}.get(sign, sign)
            if verdict_said not in ("–", expected):
                against.append(f"{metric} against {baseline}: {verdict_said}, but {interval}")
            said[candidate, baseline, metric] = verdict_said
        for candidate, baseline, *_, why in rows_of_table(text, "| candidate | minus | not inferior"):
            for metric in why.split("; "):
                if said.get((candidate, baseline, metric)) == "better":
                    against.append(f"{metric} against {baseline}: better, and yet it speaks against the candidate")
        for name, figure in of_utility(utility).items():
            spoken = re.search(r"<desc[^>]*>(.*?)</desc>", figure)
            for row in utility.differences if name == "typing" and spoken else ():
                line = f"{arm_name(row.baseline)}, {METRICS[row.metric]}: "
                at = spoken[1].find(line)
                if (
                    at >= 0
                    and said[arm_name(row.candidate), arm_name(row.baseline), METRICS[row.metric]]
                    not in (spoken[1][at:].split("; ")[0])
                ):
                    against.append(f"{line} the picture says another thing than the table")
    gates = {gate.id: gate for gate in disclosure.decision.gates}
    typing = gates["typing"].evidence if "typing" in gates else ""
    if "top3_guardrail" in gates and gates["top3_guardrail"].passed and re.search(r"top.?3", typing):
        against.append("top-3 recall passes one gate and fails another")
    words = set(re.findall(r"\*?\*?(strong|reasonable|weak)\*?\*? \|$", text, flags=re.MULTILINE))
    if not words <= {
        strength(disclosure.accounting.epsilon),
        strength(disclosure.accounting.bound),
        *(strength(each.against_server) for each in disclosure.releases if each.against_server is not None),
        "weak",
    }:
        against.append(f"epsilon is called {words}")
    if "at best or worst" in text:
        against.append("best or worst")
    if "people typed on their devices" in text and disclosure.population.source != "files":
        against.append("a simulation's text is called what people typed")
    return against
