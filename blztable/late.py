"""Late: packages whose files are imported at their first use.

Such a package is a *door*. Its `__init__.py` names its files below TYPE_CHECKING, for readers, for
type checkers and for the law of imports; a user writes `door.file.function(...)`.

A fork waits for an import of another thread: the child would find it locked for ever.
"""

import os
import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

_importing = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire,
        after_in_parent=_importing.release,
        after_in_child=_importing.release,
    )


def door(package: str) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a package: it imports the file of this name.

    An import that an interrupt ends is made again at the next use.
    """

    def load(name: str) -> ModuleType:
        path = f"{package}.{name}"
        try:
            with _importing:
                return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return load
