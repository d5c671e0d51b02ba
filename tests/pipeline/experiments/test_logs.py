"""Logs of an experiment: sums by hand, and everything that a file may get wrong."""

import tracemalloc
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.experiments import logs

FIRST, DAYS = date(2026, 11, 2), 3
ROW = {"shown": 10, "picked": 2, "correct": 5, "triggered": 3, "accepted": 1, "committed": 12, "modified": 1}


def table(*rows: dict) -> pa.Table:
    usual = {"arm": "control", "bucket": "a", "day": FIRST, **ROW, "seconds": 20.0}
    return pa.Table.from_pylist([usual | row for row in rows], logs.SCHEMA)


def read(folder: Path, *tables: pa.Table) -> logs.Logs:
    for number, each in enumerate(tables):
        pq.write_table(each, folder / f"{number}.parquet")
    return logs.read([str(folder / "*.parquet")], FIRST, DAYS)


def test_counts_of_a_bucket_add_up_over_days_and_files(tmp_path: Path):
    second = FIRST + timedelta(days=1)
    one = table({}, {"bucket": "b", "arm": "treatment", "shown": 100})
    two = table({"day": second, "shown": 7, "seconds": 0.5}, {"bucket": "b", "arm": "treatment", "day": second})
    got = read(tmp_path, one, two)
    assert got.treated_B.tolist() == [False, True]
    assert got.sums["shown"].tolist() == [17, 110]
    assert got.sums["seconds"].tolist() == [20.5, 40]
    assert got.counts("treatment")["shown"].tolist() == [110]
    third = FIRST + timedelta(days=2)
    assert got.missing == {"control": (third,), "treatment": (third,)}
    assert got.last_day == second
    assert len(got.digests) == 2
    assert not got.simulated


def test_buckets_may_be_numbers_and_text_may_be_large_or_a_category(tmp_path: Path):
    made = table({}, {"bucket": "7"})
    numbers = made.set_column(1, "bucket", pa.array([1, 7]))
    large = numbers.set_column(0, "arm", made["arm"].cast(pa.large_string()).dictionary_encode())
    assert read(tmp_path, large).sums["shown"].tolist() == [10, 10]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"picked": 6}], r"row 2 of these: picked is above correct; what is picked is counted among correct"),
        ([{"correct": 11}], r"correct is above shown"),
        ([{"accepted": 4}], r"accepted is above triggered"),
        ([{"modified": 13}], r"modified is above committed"),
        ([{"shown": -1}], r"shown is not between 0 and 1,000,000,000,000; look at what counts it"),
        ([{"committed": 10**13}], r"committed is not between"),
        ([{"seconds": float("nan")}], r"seconds is not between"),
        ([{"seconds": 0.0}], r"committed in seconds 0; log the seconds"),
        ([{"arm": "treated"}], r"row 2 of these: arm is neither 'control' nor 'treatment'; write one of them"),
        ([{"bucket": ""}], r"row 2 of these: bucket is no key of 1 to 200 bytes"),
        ([{"shown": None}], r"shown is null; write every value"),
        (
            [{"day": FIRST - timedelta(days=1)}],
            r"row 2 of these: day is outside .* 2026-11-02 to 2026-11-04; leave it out",
        ),
        ([{"day": FIRST + timedelta(days=3)}], r"day is outside the experiment"),
        ([{}, {}], r"row 3 of these: its bucket has two rows for its day; give each file once"),
        ([{}, {"arm": "treatment", "day": FIRST + timedelta(days=1)}], r"row \d of these: its bucket is in both arms"),
        ([], r"no rows at all"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, rows: list[dict], said: str):
    with pytest.raises(ValueError, match=rf"^logs: .*{said}"):
        read(tmp_path, table({"bucket": "fine"}, *rows) if rows else table())


@pytest.mark.parametrize(
    "rows",
    [[{}, {}], [{}, {"arm": "treatment", "day": FIRST + timedelta(days=1)}]],
)
def test_one_file_does_not_hide_it_from_another(tmp_path: Path, rows: list[dict]):
    with pytest.raises(
        ValueError, match=r"1\.parquet, row group 0, rows 1 to 1: row 1 of these: its bucket (has|is in both)"
    ):
        read(tmp_path, *(table(row) for row in rows))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda made: made.drop_columns(["seconds"]), "column 'seconds' is missing"),
        (lambda made: made.append_column("device_id", made["arm"]), "1 of its columns are not part of the logs"),
        (lambda made: made.append_column("arm", made["arm"]), "column 'arm' is there twice"),
        (lambda made: made.set_column(2, "day", made["day"].cast(pa.timestamp("s"))), r"'day' is timestamp\[ms\], not"),
        (lambda made: made.set_column(3, "shown", made["shown"].cast(pa.float64())), "'shown' is double, not int64"),
        (lambda made: made.set_column(10, "seconds", made["shown"]), "'seconds' is int64, not double; cast it"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, change, said: str):
    with pytest.raises(ValueError, match=rf"^logs: .*0\.parquet.* ?{said}"):
        read(tmp_path, change(table({})))


def test_what_is_no_parquet_is_refused(tmp_path: Path):
    for content, said in ((b"arm,bucket\n", "is no Parquet file"), (b"PAR1", "is not readable, so damaged")):
        path = tmp_path / "a.parquet"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=said):
            logs.read([str(path)], FIRST, DAYS)
    with pytest.raises(ValueError, match="no file matches"):
        logs.read([str(tmp_path / "none.parquet")], FIRST, DAYS)


def test_simulated_logs_say_so(tmp_path: Path):
    for simulated in (True, False):
        logs.write(table({}), tmp_path / "0.parquet", simulated=simulated)
        assert logs.read([str(tmp_path / "0.parquet")], FIRST, DAYS).simulated is simulated


@pytest.mark.slow
def test_memory_follows_buckets_and_not_rows(tmp_path: Path):
    buckets = 2_000
    made = table(*({"bucket": str(number)} for number in range(buckets)))
    many = [made.set_column(2, "day", pa.array([FIRST + timedelta(days=day)] * buckets)) for day in range(90)]
    pq.write_table(pa.concat_tables(many), tmp_path / "0.parquet")
    del many
    tracemalloc.start()
    got = logs.read([str(tmp_path / "0.parquet")], FIRST, 90)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert got.sums["shown"].sum() == 90 * buckets * 10
    assert got.missing["control"] == ()
    assert peak < 20_000_000, "180,000 rows of text alone are more"


def test_too_many_buckets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "MOST_BUCKETS", 3)
    with pytest.raises(ValueError, match="more than 3 of them; a bucket holds many devices"):
        read(tmp_path, table(*({"bucket": name} for name in "abcd")))
