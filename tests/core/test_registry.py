"""Names in files: those of now are never taken for names of before."""

import dataclasses
import inspect

import pytest
from every_estimator import CASES, estimators

import maxmargin as mm
from maxmargin.core import registry


def current_names():
    """Fields of registered classes, parameters and fitted attributes of estimators."""
    for name in (*mm.__all__, *mm.structures.__all__):
        getattr(mm, name, None) or getattr(mm.structures, name)
    for kind in registry._NAMES:
        yield from getattr(kind, "_fields", ())
        yield from inspect.signature(kind).parameters
        if dataclasses.is_dataclass(kind):
            yield from (field.name for field in dataclasses.fields(kind))
    for name in estimators():
        yield from inspect.signature(getattr(mm, name)).parameters


def test_no_name_of_now_is_read_as_one_of_before():
    assert set(registry._RENAMED) & set(current_names()) == set()


@pytest.mark.parametrize("name", [n for n in CASES if n != "LowRankKernel"])
def test_no_fitted_attribute_is_renamed_when_it_is_read(name):
    assert set(registry._RENAMED) & set(type(CASES[name]().model).fitted_types()) == set()
