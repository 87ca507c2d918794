"""Tables in one file: damaged, or with lies in tables, index, records, feet and seals.

The checksums of what lies are right.
"""

import io
import json
import random
import struct
import tempfile
import warnings
from pathlib import Path
from typing import Any

import blztable as blz
from blztable.storage.memory import RamStore
from blztable.storage.one_file import records
from blztable.storage.one_file.records import Foot, crc32
from support import tamper
from support.bit_equality import same_table
from support.fuzzed import tables
from support.fuzzed.changes import WORDS, bytes_in, json_text, json_value, number, pieces_of

Random = random.Random

NAMES = ("nested struct", "nested list", "type", "encoded", "bundled", "items", "deletions")
NAMES += tuple(tables.FRAMES)

FRONT = records.new_front("0" * records.ID_DIGITS)


def seeds(only: str = "") -> dict[str, RamStore]:
    """Return tables, which become files when a case takes them."""
    return {name: store for name, store in tables.seeds(only).items() if name.startswith(NAMES)}


class Commit:
    """A commit: records, an index, a foot and a seal; each field may lie."""

    def __init__(self, entries: dict[str, bytes]) -> None:
        self.entries = [[key.encode(), value] for key, value in entries.items()]
        # By number of the record: fields of its head.
        self.heads: dict[int, dict[str, int]] = {}
        self.index: list[Any] | None = None
        self.foot: dict[str, int] = {}
        self.seal: dict[str, int] = {}
        self.is_sealed = True

    def encode(self, front: bytes, before: bytes, names: dict[bytes, tuple[int, int]]) -> bytes:
        """Return the bytes behind those before; add the places of the records to the names."""
        data = bytearray()
        block = previous = len(before)
        for count, (key, value) in enumerate(self.entries):
            block = len(before) + len(data)
            data += self._head(count, block, key, value)
            names[key] = (len(before) + len(data), len(value))
            data += value
        index = index_of(names) if self.index is None else self.index
        lines = [tamper.as_text(line) for line in index[1:]]
        first = index[0]
        if isinstance(first, dict) and first.get("line") == "true":
            first = {**first, "line": list(map(len, lines))}
        text = b"\n".join([tamper.as_text(first), *lines])
        data += b"".join(records.record(len(before) + len(data), "", [text], records.INDEX))
        begin = len(before) + len(data) - len(text)
        fields = {"block": block, "index": begin, "previous": 0, "front_crc": crc32(front)}
        fields |= {"previous": previous} if len(before) > len(front) else {}
        fields |= self.foot
        start = min(max(fields["block"] - len(before), 0), len(data))
        data += records.encode_foot(Foot(**fields), [bytes(data[start:])])
        if self.is_sealed:
            end = self.seal.get("end", len(before) + len(data))
            start = records.SEAL.pack(records.SEAL_MAGIC, end, self.seal.get("reserved", 0), 0)[:-4]
            data += start + struct.pack("<I", crc32(start))
        return bytes(data)

    def _head(self, count: int, at: int, key: bytes, value: bytes) -> bytes:
        fields = {"kind": 1, "reserved": 0, "key_length": len(key), "position": at}
        fields |= {"length": len(value), "crc": crc32(value)}
        fields |= self.heads.get(count, {})
        head = records.HEAD.pack(b"blzr", *fields.values())
        return head + struct.pack("<I", crc32(key, crc32(head))) + key


def index_of(names: dict[bytes, tuple[int, int]]) -> list[Any]:
    """Return the lines of a true index; the lengths of the lines are filled in later."""
    below: dict[str, dict[str, tuple[int, int]]] = {"": {}}
    for key, place in names.items():
        prefix, _, name = key.decode("utf-8", "replace").rpartition("/")
        below.setdefault(prefix, {})[name] = place
    lines = [
        {
            "name": list(found),
            "position": [at for at, _ in found.values()],
            "length": [length for _, length in found.values()],
        }
        for found in below.values()
    ]
    sizes = [sum(line["length"]) for line in lines]
    return [{"prefix": list(below), "line": "true", "bytes": sizes}, *lines]


def commits_of(store: RamStore) -> list[Commit]:
    """Return a commit for each version; the first has all parts."""
    values = {key: one.data for key, one in store._entries.items() if one.data is not None}
    parts = {key: value for key, value in values.items() if key.startswith("data/")}
    commits = []
    for key in sorted(values):
        if key.startswith("meta/manifest/"):
            commits.append(Commit({**parts, key: values[key]}))
            parts = {}
    return commits


def file_of(commits: list[Commit], front: bytes = FRONT) -> bytes:
    """Return the file of these commits."""
    data, names = front, {}
    for commit in commits:
        data += commit.encode(front, data, names)
    return data


def mutated(random: Random, seeds: dict[str, RamStore]) -> tuple[bytes, list[str]]:
    """Return a file with lies behind right checksums, or with damage."""
    if random.random() < 0.3:
        store, done = tables.mutated(random, seeds)
        return file_of(commits_of(store)), done
    name = random.choice(sorted(seeds))
    commits, front, done = commits_of(seeds[name]), FRONT, [name]
    if random.random() < 0.4:
        return pieces_of(random, file_of(commits)), [name, "damaged"]
    for _ in range(random.choice([1, 1, 2])):
        commit = random.choice(commits)
        match random.randrange(8):
            case 0 | 1 | 2:
                said = _lie_in_index(random, commits, commit)
            case 3 | 4:
                count = random.randrange(len(commit.entries))
                field = random.choice(["kind", "key_length", "position", "length", "crc"])
                key, value = commit.entries[count]
                near = {"key_length": len(key), "length": len(value)}.get(field, 1)
                bits = {"kind": 8, "key_length": 16, "crc": 32}.get(field, 64)
                commit.heads.setdefault(count, {})[field] = number(random, near) % (1 << bits)
                said = f"record {count}: {field} {commit.heads[count][field]}"
            case 5:
                count = random.randrange(len(commit.entries))
                key = bytearray(commit.entries[count][0])
                said = f"key {count}: {bytes_in(random, key, may_resize=True)}"
                commit.entries[count][0] = bytes(key) or b"x"
            case 6:
                field = random.choice(["block", "index", "previous", "front_crc"])
                near = random.choice([len(FRONT), sum(map(len, commit.entries[0]))])
                value = number(random, near) % (1 << (32 if field == "front_crc" else 64))
                commit.foot[field] = value
                said = f"foot: {field} {value}"
            case _:
                commit.is_sealed = random.random() < 0.5
                commit.seal[random.choice(["end", "reserved"])] = number(random, 500) % (1 << 32)
                said = "seal"
        done.append(said)
    if random.random() < 0.1:
        changed = bytearray(front)
        done.append(f"front: {bytes_in(random, changed, may_resize=True)}")
        front = bytes(changed)
    return file_of(commits, front), done


def _lie_in_index(random: Random, commits: list[Commit], commit: Commit) -> str:
    if commit.index is None:
        # Places as they are in the true file.
        names: dict[bytes, tuple[int, int]] = {}
        data = FRONT
        for one in commits[: commits.index(commit) + 1]:
            data += one.encode(FRONT, data, names)
        commit.index = index_of(names)
    at = random.randrange(len(commit.index))
    line = commit.index[at]
    if isinstance(line, bytes):
        return "no JSON any more"
    lists = (
        [value for value in line.values() if isinstance(value, list) and value]
        if (isinstance(line, dict))
        else []
    )
    if lists and random.random() < 0.5:
        values = random.choice(lists)
        place = random.randrange(len(values))
        other = random.choice([*values, *WORDS[:3]])
        values[place] = other if random.random() < 0.5 else number(random, values[place])
        return f"line {at} of the index: {values[place]!s:.80}"
    commit.index[at], said = json_value(random, line)
    if random.random() < 0.1:
        commit.index[at], said = json_text(random, json.loads(tamper.as_text(line)))
    return f"line {at} of the index: {said}"


def save(data: bytes, path: Path) -> None:
    """Save the file."""
    (path / "t.blz").write_bytes(data)


def read_all(random: Random, data: bytes) -> str:
    """Read in every way; return the outcome, or an unexpected exception."""
    # Whoever opens a file that ends with no commit is warned.
    warnings.filterwarnings("ignore", ".*never finished, or damaged", UserWarning)
    outcomes = {tables.outcome(lambda: tables.whole(data))}
    ways = [tables.rows_of, tables.streamed, tables.looked_at, tables.columns_of, tables.filtered]
    ways += [tables.picked, tables.pandas, recovered, skipped, verified, unpacked, written, written]
    for way in random.sample(ways, 3):
        outcomes.add(tables.outcome(lambda way=way: way(random, data)))
    return "read" if outcomes == {"read"} else "refused" if "read" not in outcomes else "both"


def recovered(random: Random, data: bytes) -> None:
    target = io.BytesIO()
    blz.copy(io.BytesIO(data), target, on_corrupt="skip")
    tables.whole(target.getvalue())


def skipped(random: Random, data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tables.sound(blz.read_table(io.BytesIO(data), on_corrupt="skip"))


def verified(random: Random, data: bytes) -> None:
    with blz.open(data) as table:
        str(table.verify())


def unpacked(random: Random, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "t.blz"
        blz.copy(data, target, durability="process")
        # The same parts, so they are refused or have the same rows.
        found = blz.read_table(target)
        assert same_table(found, blz.read_table(data)), "unpacked, it differs"


def written(random: Random, data: bytes) -> None:
    """Write to a file from an attacker."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Steps after the commit may fail.
        warnings.simplefilter("ignore", UserWarning)
        path = Path(folder) / "t.blz"
        path.write_bytes(data)
        with blz.open(path, "a", durability="process") as table:
            table.attrs["written"] = True
            if random.random() < 0.5:
                table.vacuum(keep=1)
        tables.committed(lambda: blz.open(path).attrs["written"])
        if random.random() < 0.3:
            blz.to_blz({"a": [1]}, path, durability="process")
            tables.committed(lambda: blz.read_table(path).num_rows == 1)
