"""A command with the contract of ``tacit``: arguments, exit codes, JSON on standard output.

It writes each call to ``calls.jsonl`` in TACIT_HOME and the names of its variables to ``variables.jsonl``. It takes its
exit codes from ``behaviour.json`` there: a negative code is a signal that it sends to itself, 999 a long sleep.
"""

import json
import os
import sys
import time
from pathlib import Path

home = Path(os.environ["TACIT_HOME"])
arguments = sys.argv[1:]
if arguments == ["ready"]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    sys.stderr.write("stand-in: was ready\n")
    arguments = json.loads(line)
if arguments[0] == "--verbose":  # not by `make launch`, which copies standard error to a terminal
    arguments = arguments[1:]
for name, content in (("calls", arguments), ("variables", sorted(os.environ))):
    with (home / f"{name}.jsonl").open("a", encoding="utf-8") as written:
        written.write(json.dumps(content) + "\n")
command = arguments[1] if arguments[0] == "stage" else arguments[0]
earlier = [json.loads(line) for line in (home / "calls.jsonl").read_text(encoding="utf-8").splitlines()][:-1]
times = sum(command in call[:2] for call in earlier)

behaviour = home / "behaviour.json"
codes = json.loads(behaviour.read_text(encoding="utf-8")).get(command, []) if behaviour.exists() else []
code = codes[times] if times < len(codes) else 0
sys.stderr.write(f"stand-in: {command}, try {times + 1}\n")
sys.stderr.flush()
if code == 999:
    time.sleep(600)
if code < 0:
    os.kill(os.getpid(), -code)
if code != 0:
    sys.stderr.write(f"stand-in: {command} gives up\n")
    sys.exit(code)

answer: dict[str, object] = {"stage": command}
if command == "check":
    date = arguments[arguments.index("--date") + 1] if "--date" in arguments else None
    answer = {"ok": True, "errors": [], "launch_id": "-".join(filter(None, ("demo-0123abcd", date)))}
    answer["cpu_minutes"] = {"pretrain": 3, "fine_tune": 400}
if command == "decide":
    decision = home / "decision"
    word = decision.read_text(encoding="utf-8") if decision.exists() else "launch"
    gates = [{"id": "max_rho", "title": "rho", "evidence": "0.5 of 1", "passed": word == "launch"}]
    answer = {
        "decision": word,
        "reasons": ["fine"],
        "gates": gates,
        "headline": {"decision": word, "loss": "epsilon 6.51 at delta 1e-10"},
    }
if command == "report":
    answer = {"files": ["report.html"], "disclosure_sha256": "e" * 64}
    answer["summary"] = [
        "guarantee of one device: epsilon 6.51 at delta 1e-10, rho 0.5000",
        "against the current version 3: +0.42 pp (+0.10 pp to +0.74 pp)",
    ]
if command == "publish":
    held = (home / "decision").exists()
    answer = {"published": not held, "reason": "held: rho" if held else "every gate passed"}
    answer |= {"versions": {} if held else {"keyboard-en-US-NWP": 4}, "alias": None if held else "champion"}
if command == "review":
    answer = {"state": "approved"}
if command == "experiment":
    answer = json.loads((home / "experiment").read_text(encoding="utf-8"))[arguments[1]]
    if answer.get("decision") == "roll back":
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.exit(3)
sys.stdout.write(json.dumps(answer) + "\n")
