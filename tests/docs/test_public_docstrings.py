"""Every public docstring is complete numpydoc, agrees with the signature, and its examples run.

Public are the names of `blztable.__all__`, the classes that their methods return, and all public
methods and properties of these classes. Each example runs by itself in an empty folder.
"""

import dataclasses
import doctest
import inspect

import pytest
from numpydoc.docscrape import FunctionDoc
from numpydoc.validate import validate

import blztable as blz
from blztable.table.batches import Batches
from blztable.table.datasets.dataset import BlzDataset

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

# Codes of numpydoc that are off, each with the reason.
OFF = {
    "GL01": "the summary begins on the line of the quotes, as ruff formats it",
    "GL02": "the quotes close on a line of their own after the sections",
    "ES01": "many summaries say everything",
    "SA01": "the text names related methods where they help",
    "SS05": "a plain noun ('Number of rows.') describes a property, not an action",
}
# Classes that only functions and methods of blztable construct: their docstring says which, and
# the constructor is not public. Dataclasses document their fields as attributes.
NOT_OF_A_CLASS = {"PR01", "PR02", "PR03"}


def is_ours(member: object) -> bool:
    return (getattr(member, "__module__", None) or "").startswith("blztable")


def public_objects() -> dict[str, object]:
    """Every public object by its name below the package."""
    public = {name: getattr(blz, name) for name in blz.__all__}
    public |= {kind.__name__: kind for kind in (Batches, BlzDataset)}
    # In the order of `__all__`: several processes must collect the same tests.
    for kind in filter(inspect.isclass, list(public.values())):
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            if isinstance(member, classmethod):
                member = member.__func__
            function = member.fget if isinstance(member, property) else member
            # A refusal, `BlzDataset.join = _is_refused`, has nothing to say.
            refused = getattr(function, "__name__", "_").startswith("_")
            if not name.startswith("_") and not refused and is_ours(function):
                # An inherited method is one object, whatever class it is looked up in.
                public[f"{kind.__name__}.{name}"] = member
    return public


PUBLIC = public_objects()
FUNCTIONS = [name for name, member in PUBLIC.items() if inspect.isfunction(member)]
# What they return is a value to look at: the example of the class calls all methods.
VALUES = ("Column", "Report", "VersionDiff")
OF_VALUES = [name for name in FUNCTIONS if name.split(".")[0] in VALUES]
PROPERTIES = [name for name, member in PUBLIC.items() if isinstance(member, property)]
CLASSES = [name for name, member in PUBLIC.items() if inspect.isclass(member)]
DATACLASSES = [name for name in CLASSES if dataclasses.is_dataclass(PUBLIC[name])]


def import_name(name: str) -> str:
    kind, dot, method = name.partition(".")
    owner = PUBLIC[kind]
    return f"{owner.__module__}.{owner.__qualname__}{dot}{method}"


def errors(name: str) -> list[str]:
    off = OFF.keys() | (NOT_OF_A_CLASS if name in CLASSES else set())
    off |= {"EX01"} if name in (*PROPERTIES, *OF_VALUES) else set()
    found = validate(import_name(name))["errors"]
    return [f"{code}: {text}" for code, text in found if code not in off]


def test_all_that_is_public_is_looked_at():
    assert {"to_blz", "CTable.append", "Transaction.append", "CTable.to_arrow"} <= {*FUNCTIONS}
    assert {"CTable.columns", "Transaction.attrs", "Column.type", "Report.summary"} <= {*PROPERTIES}
    assert {"CTable", "ConflictError", "Vacuumed", "Batches"} <= {*CLASSES}
    assert len(PUBLIC) == len(FUNCTIONS) + len(PROPERTIES) + len(CLASSES)


@pytest.mark.parametrize("name", PUBLIC)
def test_numpydoc_finds_nothing_wrong(name):
    assert errors(name) == []


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "." not in name])
def test_a_function_says_what_it_raises(name):
    assert FunctionDoc(PUBLIC[name])["Raises"], f"{name}: no Raises section"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_that_two_methods_have_is_said_once_by_their_class(kind):
    named: dict[tuple[str, ...], list[str]] = {}
    for name in FUNCTIONS:
        if name.startswith(f"{kind}."):
            for error in FunctionDoc(PUBLIC[name])["Raises"]:
                named.setdefault((error.type, *error.desc), []).append(name)
    assert [names for names in named.values() if len(names) > 1] == []


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_is_in_the_example_of_its_class_and_has_none_of_its_own(name):
    assert ">>>" not in inspect.getdoc(PUBLIC[name])


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_says_by_its_annotation_what_it_returns(name):
    assert "return" in PUBLIC[name].fget.__annotations__
    assert "Returns" not in inspect.getdoc(PUBLIC[name]), f"{name}: the annotation says it"


@pytest.mark.parametrize(
    "name", [name for name in CLASSES if dataclasses.is_dataclass(PUBLIC[name])]
)
def test_a_dataclass_documents_its_fields_in_order(name):
    document = FunctionDoc(PUBLIC[name], doc=inspect.getdoc(PUBLIC[name]))
    documented = [one for entry in document["Attributes"] for one in entry.name.split(", ")]
    fields = [field.name for field in dataclasses.fields(PUBLIC[name])]
    assert documented == [field for field in fields if not field.startswith("_")]


@pytest.mark.parametrize("name", OF_VALUES)
def test_a_method_of_a_value_is_in_the_example_of_its_class_and_has_none_of_its_own(name):
    kind, _, method = name.partition(".")
    assert ">>>" not in inspect.getdoc(PUBLIC[name])
    assert f".{method}(" in inspect.getdoc(PUBLIC[kind])


@pytest.mark.parametrize("name", [*sorted({*FUNCTIONS} - {*OF_VALUES}), *CLASSES])
def test_the_examples_run_by_themselves(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(PUBLIC[name]) or ""
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert examples.examples, f"{name}: no example"
    printed: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(examples, out=printed.append)
    assert not printed, "".join(printed)


def test_a_docstring_that_lacks_something_is_found():
    def read(path, columns=None):
        """Reads a table.

        Parameters
        ----------
        path : str
            The path.
        names : list
            The names.
        """
        return path, columns

    read.__module__ = __name__
    globals()["read"] = read
    codes = {code for code, _ in validate(f"{__name__}.read")["errors"]}
    assert {"PR01", "PR02", "RT01", "EX01"} <= codes
