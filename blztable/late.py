"""Late: packages whose files are imported at their first use.

Such a package is a *door*. Its `__init__.py` names its files below TYPE_CHECKING, for readers, for
type checkers and for the law of imports; a user writes `door.file.function(...)`.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def door(package: str) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a package: it imports the file of this name.

    An import that an interrupt ends is made again at the next use.
    """

    def load(name: str) -> ModuleType:
        path = f"{package}.{name}"
        try:
            return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return load
