"""Pictures of the documents, and how far a person goes in a browser for an answer; both from real launches.

    .venv/stages/bin/python -m benchmarks.pictures HOME FOLDER

HOME is a home in which the demo was launched (`make launch`) and `make web` was run, or TACIT_WEB names where. Pages of
Airflow and MLflow are those of three launches of the tutorial's people through `make stack`: a first one, which users
have; the tutorial's careful one, which is held; and one that a reviewer approves and some users try. Only the site is
of launches that nobody made. FOLDER gets every picture of `docs/images`. Standard output gets a table of tasks on the
screens of a desk and of a phone: clicks, screens above the end of the answer, and words above it on its page.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import count, groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import yaml
from PIL import Image

from pipeline.tracking import table
from reports import site
from reports.keyboard import Writing
from tests.helpers.launches.command import ended
from tests.helpers.launches.tutorial import TUTORIAL, Reader, blocks
from tests.helpers.processes.forked import begun
from tests.helpers.processes.server import token_of, until
from tests.helpers.processes.stack import REVIEWER, Stack, stack
from tests.helpers.reports.browser import Page, tab
from tests.helpers.reports.keyboard_run import add_published, no_public_model, published_in
from tests.helpers.reports.listed_launches import LAUNCHES

COLOURS = 96
PATIENCE = 1800.0  # seconds for each wait, on a machine that does other things too
DESK, PHONE = (1440, 900), (390, 844)
PAPER = (450, 632)  # of a page of the PDF, in pixels
TABLE = ".ag-root"
READ = 238 / 60  # words a second, of adults who read English silently (Brysbaert 2019)
FIRST, CAREFUL, TRIED = "en-US-first", "en-US-careful", "en-US"
SPENDS = ("--max-rho", "2", "--max-words-epsilon", "40", "--delta", "1e-5", "--min-approvals", "0")
# Airflow keeps in the browser which view a person chose.
GRAPH = """document.querySelector('[title^="Show Graph"]').click();
setTimeout(() => document.querySelector('[aria-label="Collapse Details Panel"]')?.click(), 1000);
setTimeout(() => document.querySelector('.react-flow__controls-fitview')?.click(), 2000)"""
TYPED = "document.querySelector('#after button').click()"
# Where a text ends, and how many words a person may read before it; Airflow shows the tab Launch in a frame.
SEEN = """((text, inside) => {
  const frame = document.querySelector('iframe');
  const page = (frame ? frame.contentDocument : document).querySelector(inside);
  if (!page) return null;
  const top = frame ? frame.getBoundingClientRect().top : scrollY;
  const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT);
  const count = said => (said.match(/\\S+/g) || []).length;
  let words = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode, at = node.data.indexOf(text), around = node.parentElement;
    if (!around.checkVisibility() || /^(STYLE|SCRIPT)$/.test(around.tagName)) continue;
    if (at < 0) { words += count(node.data); continue }
    const range = document.createRange();
    range.setStart(node, at);
    range.setEnd(node, at + text.length);
    const place = range.getBoundingClientRect(), left = frame ? frame.getBoundingClientRect().left : 0;
    return [place.bottom + top, place.right + left, words + count(node.data.slice(0, at))];
  }
  return null;
})"""


@dataclass(frozen=True)
class Task:
    """A question that people have, and the way to its answer.

    Attributes:
      page: where the person begins.
      answer: a text that answers, on the page that the clicks lead to.
      inside: the part of that page that is read.
      clicks: selectors of what is clicked on the way.
      phone: whether the page can be read on a phone at all.
      more: clicks that change something, which are counted and not made.
    """

    asks: str
    page: str
    place: Path | str
    answer: str
    inside: str = "body"
    clicks: tuple[str, ...] = ()
    more: int = 0
    phone: bool = True


def main() -> int:
    asked = _arguments()
    asked.folder.mkdir(parents=True, exist_ok=True)
    (report,) = (asked.home / "runs").glob("demo-en-US-*/public/report/report.html")
    with tab("chromium") as page:
        camera = Camera(page, asked.folder)
        of_report(camera, report)
        of_site(camera)
        of_keyboard(camera, asked.home, report.parents[2].name)
        print("| task | begins at | clicks | screens, desk | screens, phone | words before it | s, all read |")
        print("|---|---|---:|---:|---:|---:|---:|")
        camera.walk(*tasks_of_report(report))
        with through_stack() as servers:
            of_stack(camera, servers)
    return 0


class Camera:
    """A browser in which pictures are taken and ways are walked, as a person who logged in sees them."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page, self.folder = page, folder
        page.call("Emulation.setScrollbarsHidden", hidden=True)

    def sees(
        self, place: Path | str, text: str, size: tuple[int, int], then: str = "", dark: bool = False
    ) -> Image.Image:
        """Open a page, wait until a text stands on it, do something, and look at the whole."""
        self.page.open("about:blank", *size)  # a page of one script would not load another address of its own anew
        self.page.open(place, *size, dark)
        until(lambda: text in str(self.page.evaluate("document.body.innerText")), 120)
        self.page.evaluate(f"{then}; new Promise(done => setTimeout(done, 3000))")
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            self.page.screenshot(Path(file.name))
            return Image.open(file.name).convert("RGB")

    def take(self, name: str, place: Path | str, text: str, size: tuple[int, int], **how: Any) -> None:
        self.keep(name, self.sees(place, text, size, **how).crop((0, 0, *size)))
        self.page.evaluate("try { localStorage.clear() } catch {}")  # the next stands as for who never chose a view

    def keep(self, name: str, image: Image.Image) -> None:
        """In few colours."""
        path = self.folder / f"{name}.png"
        image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(path, optimize=True)

    def walk(self, *tasks: Task) -> None:
        """Print how far each is, from the top of its page, on both screens."""
        for task in tasks:
            screens, words = [], 0
            for size in (DESK, PHONE)[: 1 + task.phone]:
                self.sees(task.place, "", size)
                for selector in map(json.dumps, task.clicks):
                    until(partial(self.page.evaluate, f"!!document.querySelector({selector})"), 60)
                    self.page.evaluate(f"document.querySelector({selector}).click()")
                look = f"{SEEN}({json.dumps(task.answer)}, {json.dumps(task.inside)})"
                bottom, right, words = until(partial(self.page.evaluate, look), 60)
                screens.append(f"{bottom / size[1]:.1f}{', aside' * (right > size[0])}")
            screens += ["–"] * (not task.phone)
            row = (task.asks, task.page, len(task.clicks) + task.more, *screens, words, round(words / READ))
            print("|", *(f"{cell} |" for cell in row), flush=True)


def tasks_of_report(report: Path) -> tuple[Task, ...]:
    """Questions of a reviewer about a launch, which the report alone answers."""
    asked = {
        "was it published, and why": "gates",
        "what one device loses, and at which delta": "at δ",
        "how much better than what users have, with its error": "Share of typed words",
        "whom one trusts": "This trusts",
        "what is not covered": "deleted afterwards",
        "how it is checked, and where its proof is": "proof/",
        "which data it used": "chitchat",
    }
    return tuple(Task(asks, "report", report, answer) for asks, answer in asked.items())


def of_report(camera: Camera, report: Path) -> None:
    """Page one by day and by night, the phone's top and end of page one, and the pages on paper."""
    for name, dark in (("report-light", False), ("report-dark", True)):
        camera.take(name, report, "Decision", (985, 1720), dark=dark)
    width, height = PHONE[0], 1480
    day = camera.sees(report, "Decision", (width, height))
    night = camera.sees(report, "Decision", (width, height), dark=True)
    below = int(camera.page.evaluate("document.getElementById('gates').offsetTop")) - height // 2
    parts = [day.crop((0, 0, width, height)), night.crop((0, below, width, below + height))]
    camera.keep("report-phone", _beside(parts, 20))
    camera.keep("report-pdf", _beside(list(_paper(camera.page, report.with_suffix(".pdf"))), 6))


def _paper(page: Page, pdf: Path) -> Iterator[Image.Image]:
    """Pages of a PDF as the browser shows them; behind the last one it shows that again."""
    last = b""
    for number in count(1):
        page.open("about:blank", 460, 650)
        page.call("Page.navigate", url=f"{pdf.as_uri()}#toolbar=0&navpanes=0&view=Fit&page={number}")
        time.sleep(8)  # what shows a PDF is another page, whose events do not come here
        shot = Image.open(BytesIO(b64decode(page.call("Page.captureScreenshot")["data"]))).convert("RGB")
        bright = np.asarray(shot.convert("L")) > 250
        rows = max((list(run) for white, run in groupby(range(shot.height), bright[:, 20].item) if white), key=len)
        left = int(bright[rows[0] + 20].argmax())
        paper = shot.crop((left, rows[0], left + round(len(rows) * 210 / 297), rows[-1])).resize(PAPER)
        if paper.tobytes() == last:
            return
        last = paper.tobytes()
        yield paper


def _beside(parts: Sequence[Image.Image], gap: int) -> Image.Image:
    """Pictures of one height in a row."""
    whole = Image.new("RGB", (sum(part.width + gap for part in parts) - gap, parts[0].height), "#888888")
    for number, part in enumerate(parts):
        whole.paste(part, (number * (part.width + gap), 0))
    return whole


def of_site(camera: Camera) -> None:
    """The site of made-up launches, one of which has its files."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        add_published(runs, "en-US-90c1e2f4")
        index = site.build(
            runs, runs / "nothing", lambda locale: Writing((), {}), published_in(runs), no_public_model, LAUNCHES
        ).index
        camera.take("site", index, "Launches", (1200, 2420))
        camera.take("site-phone", index, "Launches", (PHONE[0], 2100), dark=True)


def of_keyboard(camera: Camera, home: Path, launch_id: str) -> None:
    ended("site", variables={"TACIT_HOME": str(home), "MLFLOW_TRACKING_URI": None})
    page = home / "runs" / "keyboards" / f"{launch_id}.html"
    camera.take("keyboard", page, "ready after", (1100, 760), then=TYPED)


@contextmanager
def through_stack() -> Iterator[Stack]:
    """A stack that has the three launches' files, and a budget for their people."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as meeting:
        launches = _launch_files(Path(folder))
        tacit = begun(Path(meeting), os.getpid()).tacit
        with stack(tacit, variables={"TACIT_LAUNCHES": str(launches)}) as servers:
            answers = ("--reviewer", REVIEWER, "--airflow", servers.airflow.address)
            servers.done("tacit", "ledger", "register", "en-US", *SPENDS, *answers)
            yield servers


def _launch_files(home: Path) -> Path:
    """Do what the tutorial does up to its launches, and write three launch files of its two."""
    every = blocks(TUTORIAL)
    reader, wanted = Reader(home), ("python", "tacit ledger", "tacit init", "mv")
    lines = [line for each in every if each.kind == "sh" for line in each.text.replace("\\\n", " ").splitlines()]
    with chdir(home):
        for block in every:
            if block.kind == "python":
                reader.does(block)
        for line in lines:
            if line.startswith(wanted):
                reader.runs(line)
    (home / "launches").mkdir()
    for name, source in ((FIRST, "en-US"), (CAREFUL, "careful"), (TRIED, "en-US")):
        launch = yaml.safe_load((home / f"{source}.yaml").read_text(encoding="utf-8")) | {"name": name}
        launch["public_text"]["train"] = [str(home / "public.jsonl")]
        launch["private_text"]["paths"] = [str(home / "people.jsonl")]
        launch["policy"] |= {"population_max_rho": 2.0, "population_max_words_epsilon": 40.0}
        if name == FIRST:  # a third of the other's way, which is then not held for being worse
            launch["server"]["learning_rate"] /= 3
        if name == TRIED:
            launch |= {"reviewers": [REVIEWER], "experiment": {"share": 0.05, "days": 14, "min_gain": -0.01}}
        (home / "launches" / f"{name}.yaml").write_text(yaml.safe_dump(launch), encoding="utf-8")
    return home / "launches"


def of_stack(camera: Camera, servers: Stack) -> None:
    """Three launches, one after the other, and what people see of each."""
    airflow, page = servers.airflow, camera.page

    def logged_in(user: str = "admin") -> None:
        page.call("Network.setCookie", name="_token", value=token_of(replace(airflow, user=user)), url=airflow.address)

    def begun_run(dag: str) -> tuple[str, str]:
        run = servers.trigger(dag)
        return run, f"{airflow.address}/dags/{dag}/runs/{quote(run, safe='')}"

    def ended_as(dag: str, run: str) -> str:
        return until(lambda: servers.ended(run, dag), PATIENCE)

    run, _ = begun_run(FIRST)
    assert ended_as(FIRST, run) == "success"
    run, place = begun_run(CAREFUL)
    assert ended_as(CAREFUL, run) == "failed"
    logged_in()
    camera.take("airflow-graph", place, "decision", (1440, 660), then=GRAPH)
    tab_launch = f"{place}/plugin/launch"
    camera.take("airflow-held", tab_launch, "Launch", (1440, 866))
    camera.walk(
        Task("why it was held", "Airflow, the run", place, "must exceed", clicks=("a[href$='/plugin/launch']",)),
    )
    run, place = begun_run(TRIED)
    until(lambda: servers.state(run, "approve", TRIED) == "awaiting_input" or servers.ended(run, TRIED), PATIENCE)
    time.sleep(4)  # an answer that comes at once may meet the task before it is parked
    logged_in(REVIEWER)
    form = f"{place}/tasks/approve/required_actions"
    camera.take("airflow-approval", form, "Reject", (1440, 960))
    boxes = int(page.evaluate("document.querySelectorAll('[name^=element_concern_]').length"))
    camera.walk(Task("approve it", "Airflow, the request", form, "Approve", more=boxes + 1))
    logged_in()
    servers.answer(run, dag=TRIED)
    assert ended_as(TRIED, run) == "success"
    trial = f"experiment-{TRIED}"
    runs = until(lambda: airflow.api("GET", f"/dags/{trial}/dagRuns")["dag_runs"], PATIENCE)
    run = runs[0]["dag_run_id"]
    until(lambda: servers.state(run, "logs", trial) == "up_for_reschedule", PATIENCE)
    place = f"{airflow.address}/dags/{trial}/runs/{quote(run, safe='')}"
    camera.take("airflow-experiment-waits", place, "settle", (1400, 700))
    of_mlflow(camera, servers)


def of_mlflow(camera: Camera, servers: Stack) -> None:
    """The table of launches, as its reader sees it."""
    password = (servers.home / "passwords" / "mlflow-reader").read_text(encoding="utf-8").strip()
    login = "Basic " + b64encode(f"mlflow-reader:{password}".encode()).decode()
    camera.page.call("Network.setExtraHTTPHeaders", headers={"Authorization": login})
    place = f"http://127.0.0.1:{servers.environment['MLFLOW_PORT']}/{table.view('1')}"
    camera.take("mlflow-launches", place, CAREFUL, (1440, 600))
    camera.walk(
        Task("was it published", "MLflow's table", place, "published", TABLE, phone=False),
        Task("what one device loses", "MLflow's table", place, "12.89", TABLE, phone=False),
        Task("how much better than before, with its error", "MLflow's table", place, "±", TABLE, phone=False),
    )
    camera.page.call("Network.setExtraHTTPHeaders", headers={})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path, help="where the demo was launched")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
