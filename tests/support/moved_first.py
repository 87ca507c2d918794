"""Put some columns first, in one commit: a change of columns that concerns no rows."""

from collections.abc import Iterable

import blztable as blz


def moved_first(table: blz.CTable | blz.Transaction, columns: Iterable[str]) -> blz.Changed:
    """Give these columns the first positions, in this order."""
    names = list(columns)
    if len(names) == 1 or isinstance(table, blz.Transaction):
        return [table.alter_column(name, position=at) for at, name in enumerate(names)][-1]
    with table.transaction() as tx:
        for at, name in enumerate(names):
            tx.alter_column(name, position=at)
    return tx.changed
