"""Logs of devices: sums by hand, and no value that is an error or moves what another device adds."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.live import devices, noisy
from evaluation.noisy.questions import MOST_WORDS
from pipeline.experiments.audit import rows_of
from tests.helpers.audits.live_logs import FIRST, ROW, WRONG, device_logs, table

DAYS = 3


def read(folder: Path, *tables: pa.Table) -> devices.DeviceLogs:
    paths = [folder / f"{number}.parquet" for number in range(len(tables))]
    for path, each in zip(paths, tables, strict=True):
        pq.write_table(each, path)
    return devices.read(paths, FIRST, DAYS)


def test_counts_of_a_device_add_up_over_days_and_files(tmp_path: Path):
    second = FIRST + timedelta(days=1)
    one = table({}, {"device": "b", "arm": "treatment", "shown": 100})
    two = table({"day": second, "shown": 7, "seconds": 0.5}, {"device": "c", "day": second})
    got = read(tmp_path, one, two)
    assert got.treated_D.tolist() == [False, True, False]
    assert got.sums["shown"].tolist() == [17, 100, 10]
    assert got.sums["seconds"].tolist() == [20.5, 20, 20]
    assert got.logged_DT.tolist() == [[True, True, False], [True, False, False], [False, True, False]]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_device_with_an_impossible_row_contributes_nothing(tmp_path: Path, wrong: dict):
    other = {"device": "b"}
    got = read(tmp_path, table({"day": FIRST + timedelta(days=1)}, other, wrong))
    assert got.sums["shown"].tolist() == [10], "only the other one"
    rows = rows_of([tmp_path / "0.parquet"], FIRST, DAYS)
    assert len(rows.device_R) == 3, "the audit has its own rule for what is impossible"


def test_a_device_twice_a_day_or_in_both_arms_contributes_nothing(tmp_path: Path):
    assert read(tmp_path, table({}, {})).sums["shown"].tolist() == []
    assert read(tmp_path, table({}), table({})).sums["shown"].tolist() == []
    second = {"day": FIRST + timedelta(days=1), "arm": "treatment"}
    assert read(tmp_path, table({}, second)).sums["shown"].tolist() == []
    assert read(tmp_path, table({}), table(second)).sums["shown"].tolist() == []


def test_rows_of_nobody_and_of_other_days_are_left_out(tmp_path: Path):
    nobody = [{"device": None}, {"device": ""}, {"device": "x" * 201}, {"device": "é" * 101}]
    other_days = [{"day": FIRST - timedelta(days=1)}, {"day": FIRST + timedelta(days=DAYS)}, {"day": None}]
    made = table({}, *nobody, *other_days)
    assert read(tmp_path, made).sums["shown"].tolist() == [10]
    assert len(rows_of([tmp_path / "0.parquet"], FIRST, DAYS).device_R) == 1


@pytest.mark.parametrize("order", range(3))
def test_no_device_moves_a_bit_of_what_another_contributes(tmp_path: Path, order: int):
    """Batches end elsewhere without its rows, and rows may come in any order: sums of seconds must not notice."""
    made = device_logs(40, DAYS, 1, words=2000.0)
    with_all = read(tmp_path, made)
    rng = np.random.default_rng(order)
    rest = made.filter(pa.compute.not_equal(made["device"], "d3")).take(rng.permutation(len(made) - DAYS))
    without = read(tmp_path, *(rest.slice(start, 17) for start in range(0, len(rest), 17)))

    def vectors(got: devices.DeviceLogs) -> set[bytes]:
        return {values.tobytes() for _, values in noisy.contributions(got, ("NWP", "SC"))}

    assert vectors(without) < vectors(with_all)
    assert len(vectors(with_all)) == 40 == len(vectors(without)) + 1


def test_a_device_counts_as_at_most_some_words_at_its_own_rates(tmp_path: Path):
    much = {name: 1000 * value for name, value in ROW.items()}
    got = read(tmp_path, table({}, {"device": "b", **much, "seconds": 20_000.0}))
    few, many = (values for _, values in noisy.contributions(got, ("NWP",)))
    layout = noisy.layout(("NWP",))
    place = {name: number for number, name in enumerate(layout.weights)}
    weight = layout.weights["prate"]
    assert few[place["prate"]] == weight * ROW["picked"] / MOST_WORDS
    assert many[place["prate"]] == weight * ROW["picked"] / ROW["shown"]
    assert few[place["words"]] == many[place["words"]] == layout.weights["words"], "each is one device"
