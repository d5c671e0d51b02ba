"""The lists of seeded bugs fit the code, or nobody would know until somebody runs them."""

from tests.mutants.run import read


def test_every_bug_stands_once_where_its_list_says():
    assert {bug.name: bug.misfit() for bug in read() if bug.misfit()} == {}
