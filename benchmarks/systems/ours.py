"""blztable with its settings: the default, and those that a user may choose.

A setting that this version lacks is left out: old commits can be measured with the same program.
"""

import importlib
import inspect
from functools import cached_property
from pathlib import Path
from types import ModuleType

import pandas as pd
import pyarrow as pa
from questions import APPEND, SHARES, WRITE, Question, expression
from systems.system import Append, Ask, System

from support.options import arguments


class Blztable(System):
    """Parquet, Feather and others never flush, so neither does this, unless it is `durable`."""

    suffix = ".blz"
    package = "blztable"
    # `import blztable` leaves nearly all to the first call; this is what that call imports.
    module = "blztable.api"

    def __init__(self, durability: str = "process", **settings: str) -> None:
        self.durability = durability
        self.settings = settings

    @cached_property
    def blz(self) -> ModuleType:
        """The package, imported only where it is measured: importing costs time."""
        return importlib.import_module("blztable")

    def write(self, table: pa.Table, path: Path, row_group_rows: int | None = None) -> None:
        settings: dict[str, object] = dict(self.settings)
        if row_group_rows is not None:
            settings["row_group_rows"] = row_group_rows
        # Before there was `Storage`, each setting was an argument.
        if settings and hasattr(self.blz, "Storage"):
            settings = {"storage": self.blz.Storage(**settings)}
        self.blz.to_blz(table, path, **arguments(durability=self.durability, **settings))

    def read(self, path: Path, columns: list[str] | None) -> pa.Table:
        return self.blz.read_table(path, columns=columns)

    def read_pandas(self, path: Path) -> pd.DataFrame:
        return self.blz.read_blz(path)

    def filtering(self, path: Path, asked: Question) -> Ask:
        with self.blz.open(path) as table:
            where = expression(asked.conditions, table.schema)
        return lambda: self.blz.read_table(path, columns=asked.columns, filters=where)

    def taking(self, path: Path, asked: Question) -> Ask:
        def take() -> pa.Table:
            with self.blz.open(path) as table:
                return table.take(asked.rows, columns=asked.columns)

        return take

    def keeping(self, path: Path, asked: Question) -> Ask:
        table = self.blz.open(path)
        if asked.rows is not None:
            return lambda: table.take(asked.rows, columns=asked.columns)
        where = expression(asked.conditions, table.schema)
        return lambda: table.to_arrow(columns=asked.columns, filters=where)

    def appending(self, path: Path) -> Append:
        return self.blz.open(path, "a", durability=self.durability).append


class WholePages(Blztable):
    """The same table, read whole and filtered by Arrow: what a filter must not take longer than."""

    tasks = frozenset(SHARES)

    def filtering(self, path: Path, asked: Question) -> Ask:
        columns = list(dict.fromkeys([*asked.columns, *(one.column for one in asked.conditions)]))
        with self.blz.open(path) as table:
            where = expression(asked.conditions, table.schema)
        return lambda: (
            self.blz.read_table(path, columns=columns).filter(where).select(asked.columns)
        )


def settings() -> dict[str, System]:
    """Return our systems; the first is the default, the others differ from it."""
    found: dict[str, System] = {"blztable": Blztable()}
    durable = Blztable(durability="full")
    durable.tasks = frozenset({WRITE, APPEND})
    found["blztable, durable"] = durable
    found["blztable, whole pages"] = WholePages()
    blz = importlib.import_module("blztable")
    parameters = inspect.signature(getattr(blz, "Storage", blz.to_blz)).parameters
    if "optimize" in parameters:
        found["blztable, size"] = Blztable(optimize="size")
    if "encoding" in parameters:
        found["blztable, plain"] = Blztable(encoding="plain")
    return found
