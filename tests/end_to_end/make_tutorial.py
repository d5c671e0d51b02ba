"""Paste what the tutorial's commands say into it, by a run: when their words or numbers have changed.

.venv/stages/bin/python tests/end_to_end/make_tutorial.py

A line is found again by its words: what is said in others is written by hand once.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.helpers.launches.tutorial import TUTORIAL, Reader, blocks


def main() -> None:
    """Run all commands in a new home, and write the page."""
    page = TUTORIAL.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        reader = Reader(Path(home))
        for block in blocks(TUTORIAL):
            if block.kind != "text":
                reader.does(block)
                continue
            lines = [_again(line, reader.said) for line in block.text.splitlines()]
            page = page.replace(
                f"```text\n{block.text}```", "```text\n" + "".join(f"{line}\n" for line in lines) + "```"
            )
    TUTORIAL.write_text(page, encoding="utf-8")


def _again(line: str, said: str) -> str:
    """The line of what was said that has the same words, whatever its numbers."""
    pattern = re.sub(r"-[0-9a-f]{8}\b|[+-]?[0-9][-+0-9.:eZ ]*", "\0", line.strip())
    likely = re.compile(".+?".join(map(re.escape, pattern.split("\0"))))
    found = next((each for each in said.splitlines() if likely.fullmatch(each.strip())), None)
    if found is None:
        sys.exit(f"{TUTORIAL.name}: no line like {line!r} was said:\n{said}")
    return found.rstrip()


if __name__ == "__main__":
    main()
