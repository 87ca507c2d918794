"""Keys of the files of a table. No other file spells a path.

Paths are made of numbers alone: a column's name never reaches the file system.
"""

import re

DATA = "data"
BUNDLES = "data/group"
META = "meta"
MANIFESTS = "meta/manifest"
LOCK = "meta/lock"
FLIGHT = "meta/flight"
DRAFTS = "meta/draft"
LEAVES = "meta/leaf"
LATEST = "meta/latest"
LEASES = "meta/lease"
MARKS = "meta/going"
SIZES = "meta/sizes"
STORAGE = "meta/storage"
ATTRIBUTES = "meta/attributes"
MIRRORS = (SIZES, STORAGE, ATTRIBUTES)

# A table needs these before its first write: the prefixes, and the empty files that are locked.
PREPARED = ((DATA, MANIFESTS), (LOCK, FLIGHT))
# A first commit that failed removes them in this order. `data` goes first: another creation relies
# on it as soon as it holds a lock below `MANIFESTS`.
WITHDRAWN = (DATA, LOCK, FLIGHT, LEAVES, MANIFESTS, META)

MAX_VERSION = 1 << 62
# The largest column id and the largest part number: 18 digits.
MAX_ID = 10**18 - 1
_VERSION = re.compile(r"[0-9]{20}")
_COLUMN = re.compile(r"col(0|[1-9][0-9]{0,17})")
_PART = re.compile(r"__([1-9][0-9]{0,17})__\.bin")

# The path of a node of a column: the column's id, then the number of a child at each level below.
Path = tuple[int, ...]
# The path of no column: its files are the bundles, which parts of all columns share.
SHARED: Path = ()


def manifest(version: int) -> str:
    """Return the key of the manifest of one version."""
    assert 0 < version <= MAX_VERSION, version
    return f"{MANIFESTS}/{version:020d}"


def draft(number: int) -> str:
    """Return the key of the draft of one row group of a table in one file, from 1."""
    return f"{DRAFTS}/{number:020d}"


def leaf(number: int) -> str:
    """Return the key of a leaf."""
    assert 0 < number <= MAX_ID, number
    return f"{LEAVES}/{number:020d}"


def leaf_number(name: str) -> int | None:
    """Return the number of a name under `LEAVES`; None for another file."""
    number = int(name) if _VERSION.fullmatch(name) else 0
    return number if 0 < number <= MAX_ID else None


def lease(version: int, name: str) -> str:
    """Return the key of a lease on a version; each has a name of its own."""
    return f"{LEASES}/{version:020d}-{name}"


def leased_version(key: str) -> int | None:
    """Return the version of a key under `LEASES`; None for another file."""
    return manifest_version(key.removeprefix(f"{LEASES}/").partition("-")[0])


def mark(name: str) -> str:
    """Return the key of the mark of a vacuum."""
    return f"{MARKS}/{name}"


def manifest_version(name: str) -> int | None:
    """Return the version of a name under `MANIFESTS`; None for another file."""
    number = int(name) if _VERSION.fullmatch(name) else 0
    return number if 0 < number <= MAX_VERSION else None


def column(path: Path) -> str:
    """Return the prefix of the keys of a column's data files, or of the bundles."""
    return "/".join([DATA, *(f"col{number}" for number in path)]) if path else BUNDLES


def column_id(name: str) -> int | None:
    """Return the column id of a name under `DATA`; None for another file."""
    match = _COLUMN.fullmatch(name)
    return int(match[1]) if match else None


def part(path: Path, k: int) -> str:
    """Return the key of data file `k` of a column, or of bundle `k`."""
    assert k > 0, k
    return f"{column(path)}/__{k}__.bin"


def is_file(key: str) -> bool:
    """Return True for the key of a data file or of a leaf."""
    prefix, _, name = key.rpartition("/")
    if prefix == LEAVES:
        return leaf_number(name) is not None
    root, *columns = prefix.split("/")
    is_column = prefix == BUNDLES or all(column_id(one) is not None for one in columns)
    return root == DATA and bool(columns) and is_column and part_number(name) is not None


def number_of(key: str) -> int:
    """Return the number of a data file; 0 for another file."""
    return part_number(key.rpartition("/")[2]) or 0


def part_number(name: str) -> int | None:
    """Return the k of a name in the directory of a column or of the bundles; None for another."""
    match = _PART.fullmatch(name)
    return int(match[1]) if match else None
