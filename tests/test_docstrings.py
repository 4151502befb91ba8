"""numpydoc's checks of the docstrings of the public API, as users see them at run time."""

import inspect

import pytest
from numpydoc.validate import validate
from sklearn.base import BaseEstimator

import maxmargin as mm

LEFT_OUT = {
    "SS05",  # "Tags of ..." is no verb in the third person
    "SS06",  # one line is all that many a summary may take
    "ES01",  # a summary that says all needs no extension
    "SA01",  # nor is everything related to something
    "SA04",  # names in See Also that say all need no description
    "EX01",  # methods are shown in the examples of their classes
    "RT02",  # results have names here, as in scikit-learn
    "PR07",  # `n_classes : int` needs no description
    "GL08",  # overridden methods inherit their docstrings; ruff checks all others
}

OF_CONTRACTS = LEFT_OUT | {"PR01", "RT01", "YD01"}
"""What methods of problems, solvers and sources take and return, the contract says once: their base
class. Those of estimators have no other place."""


def public():
    """Names of all public classes, functions and methods, and the checks that are left out."""
    found = {}
    for package in (mm, mm.data, mm.structures):
        for one in (getattr(package, name) for name in package.__all__):
            if not (inspect.isclass(one) or inspect.isfunction(one)):
                continue
            found[f"{one.__module__}.{one.__qualname__}"] = LEFT_OUT
            is_estimator = inspect.isclass(one) and issubclass(one, BaseEstimator)
            for name, method in inspect.getmembers_static(one) if inspect.isclass(one) else ():
                is_documented = inspect.isfunction(method) or isinstance(method, property)
                is_ours = "maxmargin" in (getattr(method, "__module__", None) or "maxmargin")
                if is_documented and is_ours and method.__doc__ and not name.startswith("_"):
                    left_out = LEFT_OUT if is_estimator else OF_CONTRACTS
                    found[f"{one.__module__}.{one.__qualname__}.{name}"] = left_out
    return found


PUBLIC = public()


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_pass_the_checks_of_numpydoc(name):
    errors = validate(name)["errors"]
    assert not [error for error in errors if error[0] not in PUBLIC[name]]


@pytest.mark.parametrize("name", ["SequenceTagger", "PoseEstimator", "LinearClassifier"])
def test_inherited_parameters_are_documented_with_their_defaults(name):
    kind = getattr(mm, name)
    for parameter in inspect.signature(kind).parameters.values():
        entry = kind.__doc__.partition(f"\n{parameter.name} : ")[2].partition("\n")[0]
        default = entry.partition("default=")[2]
        assert default
        assert eval(default) == parameter.default
