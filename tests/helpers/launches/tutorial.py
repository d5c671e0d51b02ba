"""The tutorial as somebody follows it: its file, its commands and what they say."""

import re
import runpy
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.command import ended

TUTORIAL = ROOT / "docs" / "tutorial.md"


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
      kind: its language.
      title: the file that it is of, if it says so.
    """

    kind: str
    title: str
    text: str


def blocks(document: Path) -> list[Block]:
    """All blocks in order."""
    rows = re.findall(
        r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', document.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    return [Block(*row) for row in rows]


# Of what is said, the rest holds for every key: ids of files elsewhere, times, and what noise and chance decide.
ANY = re.compile(
    r"(?P<id>(?<=-)[0-9a-f]{8}\b)|\d{4}-\d\d-\d\d \d\d:\d\dZ|[+-]\d+\.\d+(?=[ )])"
    r"|(?:(?<= is )|(?<= has ))-?\d+\.?\d*(?:e-\d+)?"
)


def like(line: str) -> re.Pattern[str]:
    """Lines that say the same of another run, with groups for its ids."""
    text, end = "", 0
    for found in ANY.finditer(line):
        text += re.escape(line[end : found.start()]) + ("([0-9a-f]{8})" if found["id"] else r"[-+0-9.: Z]+")
        end = found.end()
    return re.compile(f"^ *{text}{re.escape(line[end:])} *$", re.MULTILINE)


class Reader:
    """Somebody who does what the tutorial says."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.said = ""
        self.ids: dict[str, str] = {}

    def does(self, block: Block) -> None:
        if block.kind == "python":
            (self.home / block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "sh":
            self.said = "".join(self.runs(line) for line in block.text.replace("\\\n", " ").splitlines())
        elif block.kind == "text":
            for line in block.text.splitlines():
                self.heard(line)
        else:
            raise ValueError(f"a block of {block.kind}")

    def heard(self, line: str) -> str:
        """The line of this run that says what ``line`` says; the same id everywhere stands for the same launch."""
        found = like(line.strip()).search(self.said)
        assert found, f"{line!r} is not in what was said:\n{self.said[-3000:]}"
        for told, here in zip((each["id"] for each in ANY.finditer(line) if each["id"]), found.groups(), strict=True):
            assert self.ids.setdefault(told, here) == here, f"{told} stands for {self.ids[told]} and {here}"
        return found[0]

    def runs(self, line: str) -> str:
        command, _, code = line.partition("  # exit code ")
        program, *arguments = shlex.split(command)
        if program == "export":
            assert arguments == ["TACIT_HOME=$PWD"]
        elif program == "python":
            runpy.run_path(arguments[0], run_name="__main__")
        elif program == "mv":
            Path(arguments[0]).rename(arguments[1])
        else:
            assert program == "tacit"
            arguments = [
                path for each in arguments for path in (map(str, Path().glob(each)) if "*" in each else [each])
            ]
            variables = {"TACIT_HOME": str(self.home), "MLFLOW_TRACKING_URI": None}
            return ended(*arguments, code=int(code or 0), variables=variables).stdout
        return ""
