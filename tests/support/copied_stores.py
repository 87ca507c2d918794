"""A copy of a table in memory, which can be edited while the first one stays."""

from blztable.storage.memory import RamStore


def copied(store: RamStore) -> RamStore:
    """Return a store with the same values."""
    copy = RamStore(store.name)
    for key, entry in store._entries.items():
        if entry.data is not None:
            copy.put(key, entry.data)
    return copy


def values(store: RamStore, prefix: str = "") -> dict[str, bytes]:
    """Return the values whose keys begin so."""
    entries = store._entries.items()
    return {
        key: one.data for key, one in entries if one.data is not None and key.startswith(prefix)
    }
