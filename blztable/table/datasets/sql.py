"""SQL: a query of DuckDB over datasets. DuckDB is optional, and imported at the first query.

It joins from the smaller side if it knows how many rows a table has. Its public functions do not
ask a dataset for that; a class of its own does, and is used where it is there.
"""

import importlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from blztable.errors import SchemaError
from blztable.table.datasets.dataset import BlzDataset


def query(text: str, tables: Mapping[str, tuple[str, BlzDataset]]) -> Any:
    """Return the relation of a query over tables with these names, each with its path.

    Raises
    ------
    ImportError
        DuckDB is not installed.
    SchemaError
        DuckDB lacks a type of a table.
    """
    try:
        duckdb = importlib.import_module("duckdb")
    except ImportError:
        raise ImportError("sql needs DuckDB: pip install 'blztable[sql]'") from None
    connection = duckdb.connect()
    for name, (path, dataset) in tables.items():
        try:
            _register(connection, name, dataset)
        except duckdb.Error as error:
            raise SchemaError(
                f"{path}: DuckDB lacks a type of this table ({error}); query a table of the other "
                "columns, t[[name, ...]]"
            ) from None
    return connection.sql(text)


def _register(connection: Any, name: str, dataset: BlzDataset) -> None:
    """Give a dataset a name in a connection, with its number of rows where DuckDB asks for it."""
    with suppress(ImportError, AttributeError):
        source = importlib.import_module("duckdb._sources.pyarrow").PyArrowDatasetSource
        counted = type("CountedSource", (source,), {"rows": lambda self: self.obj.count_rows()})
        connection._register_arrow_source(name, counted(dataset))
        return
    connection.register(name, dataset)
