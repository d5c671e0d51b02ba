"""Cells of the crossing: named by what they are, done once, at the rho that they name, on nested people."""

import csv
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks.utility import crossing, populations
from benchmarks.utility.arms import mechanism_of, word_loss
from benchmarks.utility.cell import Cell
from benchmarks.utility.cell_lists import LISTS
from benchmarks.utility.populations import PublicStart
from federated import mechanisms
from federated.accounting import guarantees
from pretrain.config import ModelConfig
from pretrain.text.vocabulary import SPECIALS
from tests.federated.reference_sgd import device_loss
from tests.helpers.text.typed_text import stream, text, vocabulary

CELL = Cell("chat", 0, "train")
MODEL = ModelConfig(embedding_dim=4, hidden_dim=4, tied=True)


def test_cells_that_differ_have_names_that_differ() -> None:
    cells = {cell for cells in LISTS.values() for cell in cells}
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.population for cell in cells} <= populations.POPULATIONS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["banded", "blt", "tree"])
def test_training_spends_the_rho_of_its_cell(kind: str) -> None:
    block = mechanism_of(replace(CELL, mechanism=kind, rounds=8, participations=2, rho=0.3), people=100)
    limits = (block.rounds, block.min_sep, block.max_participations)
    worst = guarantees.guarantee_of(mechanisms.build(block), *limits, (block.delta,), twice=False)
    assert worst.rho == pytest.approx(0.3)
    assert block.report_goal * block.rounds <= 100 * block.max_participations


def test_central_training_has_the_loss_of_devices() -> None:
    first, generator = len(SPECIALS), torch.Generator().manual_seed(1)
    logits_MV = torch.randn(30, 12, generator=generator, dtype=torch.float64) * 3
    targets_M = torch.arange(30) % (12 - first)
    for loss in (0.2, 0.5):
        expected = 30 * device_loss(logits_MV[None], targets_M[None] + first, loss)
        torch.testing.assert_close(word_loss(logits_MV[:, first:], targets_M, loss), expected)


def test_a_row_is_appended_once_under_the_same_columns(tmp_path: Path) -> None:
    results, other = tmp_path / "rows.csv", replace(CELL, draw=1)
    assert crossing.done(results) == set()
    for cell in (CELL, other):
        crossing.append(results, cell, {"top1": 1.5})
    assert crossing.done(results) == {CELL.name, other.name}
    with results.open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["top1"], first["draw"], second["draw"], first["sigma"]) == ("1.5", "0", "1", "")
    committed = crossing.RESULTS.read_text(encoding="utf-8").partition("\n")[0]
    assert ",".join(first) == committed, "rows go on under the same columns"
    results.write_text("cell,rho\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"--results: the columns of .*rows.csv are not cell, .*; add what"):
        crossing.done(results)


def test_a_cell_at_work_is_taken(tmp_path: Path) -> None:
    with crossing.taken(tmp_path, CELL) as mine, crossing.taken(tmp_path, CELL) as again:
        assert (mine, again) == (True, False)
    with crossing.taken(tmp_path, CELL) as mine:
        assert mine


def test_people_are_nested_and_nobody_held_out_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = vocabulary()
    start = PublicStart(words, stream(text(tmp_path), words), tmp_path, MODEL, 1)
    monkeypatch.setattr(populations, "public_start", lambda locale, work, cell: start)
    rows = [(f"{number:03}", " ".join([words.words[5 + number % 20]] * (number + 1))) for number in range(50)]
    (tmp_path / "users").mkdir()
    clients, lines = zip(*rows, strict=True)
    table = pa.table({"client_id": clients, "text": lines, "locale": ["en-US"] * 50, "ts": pa.nulls(50, pa.string())})
    pq.write_table(table, tmp_path / "users" / "en-US_chitchat.parquet")

    def lengths(cell: Cell, part: str) -> list[int]:
        people = getattr(populations.opened(cell, tmp_path, tmp_path), part)
        return [len(people.owner(number)) for number in range(len(people))]

    # Everybody typed another number of words, so a length names a person.
    few, many = (lengths(replace(CELL, people=count), "train") for count in (10, 30))
    assert many[:10] == few
    folds = [lengths(replace(CELL, fold=fold), "held_out") for fold in range(populations.FOLDS)]
    everybody = [length for fold in folds for length in fold]
    assert len(set(everybody)) == len(everybody) == 50
    for fold, held in enumerate(folds):
        assert set(lengths(replace(CELL, fold=fold), "train")) == set(everybody) - set(held)
    with pytest.raises(ValueError, match=r"people: 41 of chat, which has 40 beside those held out"):
        populations.opened(replace(CELL, people=41), tmp_path, tmp_path)
