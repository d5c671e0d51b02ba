"""Contradictions between two places of a report."""

import html
import re
from collections.abc import Iterator

from reports.disclosure.document import Disclosure
from reports.figures.comparison import of_utility
from reports.formats import METRICS, arm_name, change
from reports.losses import strength
from reports.render import pages


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
    said: dict[tuple[str, str], str] = {}
    if utility:
        (head,) = re.findall(r"^\| metric \| this launch \|.*$", text, flags=re.MULTILINE)
        arms = [cell.strip() for cell in head.strip("|").split("|")][1:]
        for name, *cells in rows_of_table(text, "| metric | this launch |"):
            for arm, cell in zip(arms, cells, strict=True):
                said[arm, name.removesuffix(" ↓")] = "better" if "▲" in cell else "worse" if "▼" in cell else ""
        for row in utility.differences:
            mark = said.get((arm_name(row.baseline), METRICS[row.metric]))
            if row.candidate != "private" or mark is None:
                continue
            seen = change(row)
            if not seen.low <= seen.value <= seen.high:
                against.append(f"{row.metric}: {seen.told()}")
            sign = "" if seen.low <= 0 <= seen.high else "up" if seen.low > 0 else "down"
            lower = row.metric in ("words_modified", "errors_left")
            expected = {"up": "worse" if lower else "better", "down": "better" if lower else "worse"}.get(sign, sign)
            if mark != expected:
                against.append(f"{row.metric} against {row.baseline}: {mark}, but {seen.told()}")
        for judged in utility.verdicts:
            for metric in judged.failed:
                if judged.candidate == "private" and said.get((arm_name(judged.baseline), METRICS[metric])) == "better":
                    against.append(
                        f"{metric} against {judged.baseline}: better, and yet it speaks against the candidate"
                    )
        for name, figure in of_utility(utility).items():
            spoken = re.search(r"<desc[^>]*>(.*?)</desc>", figure)
            for row in utility.differences if name == "typing" and spoken else ():
                line = f"{arm_name(row.baseline)}, {METRICS[row.metric]}: "
                at = spoken[1].find(line)
                mark = said.get((arm_name(row.baseline), METRICS[row.metric]))
                if (
                    at >= 0
                    and mark is not None
                    and (mark or "no clear difference") not in spoken[1][at:].split("; ")[0]
                ):
                    against.append(f"{line} the picture says another thing than the table")
    gates = {gate.id: gate for gate in disclosure.decision.gates}
    typing = gates["typing"].evidence if "typing" in gates else ""
    if "top3_guardrail" in gates and gates["top3_guardrail"].passed and re.search(r"top.?3", typing):
        against.append("top-3 recall passes one gate and fails another")
    words = set(re.findall(r"per device: \*?\*?(strong|reasonable|weak)\*?\*? \|$", text, flags=re.MULTILINE))
    if words != {strength(disclosure.accounting.bound)} and not disclosure.launch.void:
        against.append(f"epsilon is called {words}")
    if "at best or worst" in text:
        against.append("best or worst")
    if "people typed on their devices" in text and disclosure.population.source != "files":
        against.append("a simulation's text is called what people typed")
    return against
