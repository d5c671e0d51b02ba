"""The matrix of single changes to a finished launch: what is changed, and what finds it first.

``matrix.json`` names for each change the check by which the public verifier (`tacit verify DIR --public`) and the whole
one (`tacit verify`) find it. A change that public files cannot show has a reason instead; the table in
``benchmarks/results`` is made of the file: ``python -m tests.golden.tampering.matrix``.
"""

import json
import shutil
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.answers import Review, stage_of
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import ERASED, STATE, RunDir
from pipeline.verify import files, proof
from pipeline.verify.check import Check
from pipeline.verify.launch import verify, verify_public
from tests.golden.tampering.edits import (
    SPENT,
    Edit,
    Launch,
    another_place,
    half_spent,
    in_json,
    in_text,
    in_tracking,
    receipt,
    receipt_of_another,
    removed,
    unwitnessed,
    written,
)
from tests.golden.tampering.ways import ACCOUNTED, BETTER, LEFT, REPORTED, TRACKED, Tampering

FILE = Path(__file__).with_suffix(".json")
TABLE = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "2026-11-28-tampering.md"
Row = Mapping[str, str]


def in_ledger(*statements: str) -> Edit:
    """Change the ledger's database as its administrator can: without its triggers."""

    def edit(launch: Launch) -> None:
        with sqlite3.connect(launch.settings.runs_dir / "ledger.db") as database:
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                database.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                assert database.execute(statement).rowcount, statement

    return edit


def old_dump(launch: Launch) -> None:
    """The ledger as it was before the launch, whose folder is gone."""
    in_ledger("DELETE FROM privacy_ledger WHERE launch_id != ''")(launch)
    shutil.rmtree(launch.run.path / "private")


def forged_erasure(launch: Launch) -> None:
    """A statement that the launch verified and was erased, and no private folder."""
    stated = {"verified": True, "erased_at": "2026-11-28T00:00:00+00:00"}
    written(f"public/launch/{ERASED}", json.dumps(stated))(launch)
    shutil.rmtree(launch.run.path / "private")


def inserted(**changes: str) -> Edit:
    """Append a copy of the last entry with other fields, and a hash that none has."""

    def edit(launch: Launch) -> None:
        in_ledger()(launch)
        with sqlite3.connect(launch.settings.runs_dir / "ledger.db") as database:
            last = database.execute("SELECT * FROM privacy_ledger ORDER BY seq DESC LIMIT 1")
            row = dict(zip([column[0] for column in last.description], last.fetchone(), strict=True))
            row |= {"seq": row["seq"] + 1, "hash": row["hash"][::-1] + "f"} | changes
            places = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO privacy_ledger ({', '.join(row)}) VALUES ({places})", [*row.values()])

    return edit


def approval(launch: Launch) -> None:
    """Approve in a reviewer's name without the reviewer's key, in an entry as the ledger itself writes it."""
    ledger, config = PrivacyLedger.of(launch.settings), launch.file("public/launch/launch.json").read_bytes()
    report = launch.result("report")["result"]["disclosure_sha256"]
    forged = Review(account="os:ana", answer="approve", reason="read it", report=report)
    population = LaunchConfig.model_validate_json(config).population
    ledger.note("review", population, launch.run.launch_id, stage_of(forged), forged.model_dump())


def beside_the_launch(change: Callable[[Path], object]) -> Edit:
    """Change something in the folder of all launches."""
    return lambda launch: change(launch.settings.runs_dir)


HISTORY = (
    Tampering("a spend inserted into the database", "", inserted(kind="reserve", stage="adapt")),
    Tampering("a review inserted into the database", "", inserted(kind="review", stage="publish")),
    Tampering("an approval written with the ledger's key", "", approval),
    Tampering(
        "a spend lowered in the database", "", in_ledger("UPDATE privacy_ledger SET rho = rho / 2 WHERE rho > 0")
    ),
    Tampering(
        "the last entry deleted",
        "",
        in_ledger("DELETE FROM privacy_ledger WHERE seq = (SELECT MAX(seq) FROM privacy_ledger)"),
    ),
    Tampering("all digests of records deleted", "", in_ledger("DELETE FROM privacy_ledger WHERE kind LIKE 'result%'")),
    Tampering(
        "a digest of a record replaced",
        "",
        in_ledger("UPDATE privacy_ledger SET binding = '{}' WHERE kind = 'result' AND stage = 'audit'"),
    ),
    Tampering("another population's name on a spend", "", in_ledger("UPDATE privacy_ledger SET population = 'others'")),
    Tampering("an old dump, the run's private folder removed", "", old_dump),
    Tampering("a forged erasure", "", forged_erasure),
    Tampering(
        "the log's checkpoint",
        "",
        beside_the_launch(lambda runs: (runs / "log" / "checkpoint").write_text("tacit\n0\n\n", encoding="utf-8")),
    ),
    Tampering("the log deleted", "", beside_the_launch(lambda runs: shutil.rmtree(runs / "log"))),
    Tampering("the launch file's noise", "", in_json("public/launch/launch.json", "counts.noise_multiplier", 2.0)),
    Tampering("the launch file's reviewers", "", in_json("public/launch/launch.json", "reviewers", ["somebody"])),
    Tampering("the state picture", "", in_text(f"public/launch/{STATE}", "published", "held")),
    Tampering("a file more beside the launch file", "", written("public/launch/more.json")),
    Tampering("the proof deleted", "", removed("public/proof")),
    Tampering("the proof's layout", "", in_text("public/proof/root.layout", "payload", "paylod")),
    Tampering("a proof's file more", "", written("public/proof/more.link")),
    Tampering("the place of a spend in the log", "", receipt(another_place)),
    Tampering("a spend in the log", "", receipt(half_spent)),
    Tampering("a spend of another launch in the log", "", receipt_of_another),
    Tampering("the log's checkpoint without the witness", "", receipt(unwitnessed)),
    Tampering("no proof of a spend in the log", "", removed(SPENT)),
    Tampering(
        "the model's description in MLflow",
        "publish",
        in_tracking("UPDATE model_versions SET description = 'no noise'"),
    ),
    Tampering(
        "the alias of another version", "publish", in_tracking("UPDATE registered_model_aliases SET version = 99")
    ),
)
WAYS = {way.name: way for way in (*BETTER, *ACCOUNTED, *REPORTED, *LEFT, *TRACKED, *HISTORY)}
CLASSES = {
    "results and models": BETTER,
    "accounting": ACCOUNTED,
    "report and bundle": REPORTED,
    "files": LEFT,
    "MLflow": TRACKED,
    "ledger, launch and proof": HISTORY,
}
# Reasons for which public files cannot show a change.
REASONS = {
    "MLflow": "MLflow is not among the public files, which stay as they are",
    "private": "only the private folder is changed, and its seal holds a secret",
    "folder": "it lies outside the public folder",
    "ledger": "the ledger's database is not public",
    "erasure": "whether the ledger holds the erasure is not public",
    "state": "which answers people gave is in the ledger",
    "log": "the transparency log is beside the launches",
    "written again": "nothing: the ledger writes its log again, and the witness holds the root",
    "alias": "nothing: aliases move with later launches, and only the ledger decides what is served",
}


def applied(launch: Launch, way: Tampering) -> None:
    """Make one change, and the digests that the launch's own files state along with it."""
    way.edit(launch)
    if way.stage and way not in TRACKED and way not in LEFT:
        launch.along(way.stage, ledger_too=False)


def by_public(launch: Launch) -> str:
    """The first check of the public verifier that does not pass; empty if all do. The cheap ones come first."""
    path = launch.run.path / "public" / "launch" / "launch.json"
    config, run = (
        LaunchConfig.model_validate_json(path.read_bytes()),
        RunDir(launch.run.root, launch.run.launch_id, as_it_lies),
    )

    def cheap() -> Iterator[Check]:
        records = {name: record for name in files.STAGES if (record := run.record(name))}
        yield from files.published(config, run, records)
        yield from proof.proven(config, run, records)

    try:
        return _first(cheap) or _first(lambda: verify_public(launch.run.path / "public", launch.settings))
    except (ValueError, OSError, LookupError):
        return _first(lambda: verify_public(launch.run.path / "public", launch.settings))


def by_everything(launch: Launch, *subjects: str) -> str:
    """The first check of the whole verifier that does not pass; empty if all do."""
    path = launch.run.path / "public" / "launch" / "launch.json"
    config = LaunchConfig.model_validate_json(path.read_bytes())
    return _first(lambda: verify(config, launch.run, launch.settings, subjects))


def _first(checks: Callable[[], Iterator[Check]]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return next((check.id for check in checks() if check.passed is not True), "")


def rows() -> dict[str, Row]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def table() -> str:
    """The matrix as a Markdown page."""
    found = rows()
    public = sum(bool(row["public"]) for row in found.values())
    lines = [
        "# Single changes to a finished launch",
        "",
        f"{len(found)} changes, each with the digests that the launch's own files state changed along. The public",
        f"verifier alone (`tacit verify DIR --public`) finds {public}; the others are in records that are not public,",
        "and `tacit verify` finds them; two change nothing that is believed. A test holds",
        "`tests/golden/tampering/matrix.json` against real changes of a seeded launch, and",
        "`python -m tests.golden.tampering.matrix` makes this page of it.",
        "",
        "| class | change | public verifier | `tacit verify` | why public files cannot show it |",
        "|---|---|---|---|---|",
    ]
    for kind, ways in CLASSES.items():
        for way in ways:
            row = found[way.name]
            cells = [f"`{row[name]}`" if row[name] else "" for name in ("public", "all")]
            lines.append(f"| {kind} | {way.name} | {cells[0]} | {cells[1]} | {REASONS.get(row['reason'], '')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
    sys.stdout.write(f"{TABLE}\n")
