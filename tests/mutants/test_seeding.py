"""A bug is named by function and expression, so layout, comments and place in the file may change under it."""

import ast

import pytest

from tests.mutants import seeding

CODE = '''
LIMIT = 3

def add(values, most=LIMIT):
    """Sum of at most so many."""
    # A comment.
    total = sum(
        values[:most],
    )
    if total > LIMIT: return LIMIT
    return total

class Box:
    def add(self, value):
        self.value += value
        self.times += 1
'''


@pytest.mark.parametrize(
    ("function", "original", "replacement", "same_as"),
    [
        ("add", "sum(values[:most])", "0", ("sum(\n        values[:most],\n    )", "0")),
        ("add", "total > LIMIT", "total >= LIMIT", ("total > LIMIT", "total >= LIMIT")),
        ("add", "return total", "return -total", ("return total", "return -total")),
        ("Box.add", "self.times += 1", "pass", ("self.times += 1", "pass")),
        (
            "Box.add",
            "self.value += value\nself.times += 1",
            "pass",
            ("self.value += value\n        self.times += 1", "pass"),
        ),
        ("", "3", "4", ("LIMIT = 3", "LIMIT = 4")),
    ],
)
def test_a_bug_is_seeded_where_it_is_named(function: str, original: str, replacement: str, same_as: tuple[str, str]):
    assert seeding.count(CODE, function, original, replacement) == 1
    made = seeding.seeded(CODE, function, original, replacement)
    assert ast.dump(ast.parse(made)) == ast.dump(ast.parse(CODE.replace(*same_as)))


@pytest.mark.parametrize(
    ("function", "original", "count"),
    [("add", "LIMIT", 3), ("add", "values[1:]", 0), ("Box.add", "total", 0), ("Box.remove", "self", -1)],
)
def test_what_stands_elsewhere_or_several_times_is_counted(function: str, original: str, count: int):
    assert seeding.count(CODE, function, original, "None") == count
