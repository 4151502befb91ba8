"""Which combinations of parameters are tried by default."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test with many combinations of parameters, leave all but a diagonal to the slow run."""
    families = {}
    for item in items:
        if item.get_closest_marker("diagonal") and not item.get_closest_marker("slow"):
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for family in families.values():
        diagonal = on_diagonal([item.callspec.params for item in family])
        for number, item in enumerate(family):
            if number not in diagonal:
                item.add_marker(pytest.mark.slow)


def on_diagonal(combinations):
    """Numbers of few combinations that hold every value of every parameter at least once."""
    values = [{(name, repr(value)) for name, value in one.items()} for one in combinations]
    missing, chosen = set().union(*values), set()
    while missing:
        best = max(range(len(values)), key=lambda number: len(values[number] & missing))
        missing -= values[best]
        chosen.add(best)
    return chosen
