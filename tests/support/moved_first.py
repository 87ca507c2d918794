"""Several changes in one commit, of a table or within a transaction of it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import blztable as blz


def in_one_commit(table: blz.CTable | blz.Transaction) -> AbstractContextManager[blz.Transaction]:
    """Return the transaction itself, or a new one of a table."""
    return nullcontext(table) if isinstance(table, blz.Transaction) else table.transaction()


def moved_first(table: blz.CTable | blz.Transaction, columns: Iterable[str]) -> blz.Changed:
    """Give these columns the first positions, in this order."""
    names = list(columns)
    if len(names) == 1 or isinstance(table, blz.Transaction):
        return [table.alter_column(name, position=at) for at, name in enumerate(names)][-1]
    with table.transaction() as tx:
        for at, name in enumerate(names):
            tx.alter_column(name, position=at)
    return tx.changed
