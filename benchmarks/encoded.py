"""The asv suites of encodings and of the trial of codecs: a class for each.

    asv run --python=same --bench encoded

Each class makes a column that has its encoding, and measures how long the choice and the codes
take, how long a read and 1,000 single rows take, and how many bytes are stored. Tables lie in
memory, so a disk plays no part. A column that is stored in another way than the class says is an
error, so no class measures another encoding.
"""

import uuid
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from blztable.columns.parts.encode import EncodingOptions, encode
from blztable.columns.parts.stream import Stream
from blztable.engine.write.options import CompressionOptions
from blztable.engine.write.trial import compression_of, dictionary_worth
from blztable.storage.memory import MemoryStore

ROWS = 1_000_000
TAKEN = 1000
PARAMS, PARAM_NAMES = ["sentences", "uuids", "doubles", "codes"], ["stream"]


def items(count: int, rng: np.random.Generator) -> pa.Array:
    """Return different texts of 4 to 20 letters."""
    return pa.array([rng.bytes(10).hex()[: rng.integers(4, 21)] + f"{n:x}" for n in range(count)])


class _Suite:
    """What all classes measure; each has the kind of its encoding, and a column that gets it."""

    kind = ""
    stream = "values"
    options: ClassVar[dict[str, str]] = {"encoding": "auto"}
    timeout = 600

    def array(self, rng: np.random.Generator) -> pa.Array:
        raise NotImplementedError

    def setup(self):
        rng = np.random.default_rng(0)
        self.column = self.array(rng)
        self.store = MemoryStore("encoded")
        table = pa.table({"a": self.column})
        blz.to_blz(table, self.store, storage=blz.Storage(**self.options), durability="process")
        self.table = blz.open(self.store)
        self.rows = np.sort(rng.choice(len(self.column), TAKEN, replace=False))
        self.streams = self.table["a"].streams()
        kinds = {one.name: one.encodings for one in self.streams}
        if kinds.get(self.stream) != (self.kind,):
            raise ValueError(f"{type(self).__name__} has streams with encodings {kinds}")

    def teardown(self):
        self.table.close()

    def time_encode(self):
        encode(self.column, options=EncodingOptions(worth=worth))

    def time_read(self):
        self.table.to_arrow()

    def time_take(self):
        self.table.take(self.rows)

    def track_bytes(self):
        return sum(one.cbytes for one in self.streams)

    track_bytes.unit = "bytes"


def worth(data: np.ndarray) -> float:
    return dictionary_worth(data, CompressionOptions())


class PerItem(_Suite):
    """Documents, each a chunk."""

    kind = "per_item"
    options: ClassVar[dict[str, str]] = {"packing": "per_item"}

    def array(self, rng):
        return pa.array([rng.bytes(500).hex() for _ in range(ROWS // 20)])


class Plain(_Suite):
    """Doubles that have no encoding: the time that it takes to find none."""

    kind = "plain"

    def array(self, rng):
        return pa.array(rng.normal(size=ROWS))


class Numbers(_Suite):
    kind = "numbers"

    def array(self, rng):
        return pa.array(10**12 + rng.integers(0, 50_000, ROWS))


class NumbersOfDecimals(_Suite):
    kind = "numbers"

    def array(self, rng):
        return pa.array(rng.integers(0, 10**6, ROWS)).cast(pa.decimal128(21, 0))


class Powers(_Suite):
    kind = "numbers, power"

    def array(self, rng):
        return pa.array(rng.integers(0, 10**6, ROWS) / 100)


class PowersWithOddValues(_Suite):
    kind = "numbers, power"

    def array(self, rng):
        values = rng.integers(0, 10**6, ROWS) / 100
        values[:: max(ROWS // 1000, 100)] = np.nan
        return pa.array(values)


class Sums(_Suite):
    kind = "numbers, sum"

    def array(self, rng):
        return pa.array(np.cumsum(rng.integers(0, 200, ROWS)) + 10**15, pa.timestamp("ns"))


class Constant(_Suite):
    kind = "constant"

    def array(self, rng):
        return pa.array(np.full(ROWS, 7.5))


class Lengths(_Suite):
    kind, stream = "numbers, sum", "lengths"

    def array(self, rng):
        words = items(5000, rng)
        some, more = (words.take(pa.array(rng.integers(0, 5000, ROWS))) for _ in range(2))
        return pc.binary_join_element_wise(some, more, " ")


class LengthsOfOneSize(_Suite):
    kind, stream = "numbers, sum", "lengths"

    def array(self, rng):
        return pa.array([f"{n:016x}" for n in rng.integers(0, 2**63, ROWS).tolist()])


class Dictionary(_Suite):
    """Text of few items: two codes are looked up at once."""

    kind, stream, count = "dictionary", "lengths", 50

    def array(self, rng):
        return items(self.count, rng).take(pa.array(rng.integers(0, self.count, ROWS)))


class DictionaryOfFlags(Dictionary):
    """Text of one letter: four codes are looked up at once."""

    def array(self, rng):
        return pa.array(["N", "R", "A"]).take(pa.array(rng.integers(0, 3, ROWS)))


class DictionaryOfManyItems(Dictionary):
    count = 1000


class DictionaryOfValues(_Suite):
    kind = "dictionary"

    def array(self, rng):
        return pa.array(rng.choice(rng.normal(size=1000), ROWS))


class RunsOfNulls(_Suite):
    """Numbers of which some long runs are null."""

    kind, stream = "plain", "valid"

    def array(self, rng):
        numbers = rng.integers(-(2**63), 2**63 - 1, ROWS)
        return pa.array(numbers, mask=np.arange(ROWS) % (ROWS // 5) < ROWS // 50)


class NullsOfFloats(_Suite):
    """Doubles whose nulls are stored as NaN, without a bitmap."""

    kind = "plain"

    def array(self, rng):
        return pa.array(rng.normal(size=ROWS), mask=rng.random(ROWS) < 0.1)


class Nulls(_Suite):
    """Numbers with a bitmap of nulls beside the codes."""

    kind = "numbers"

    def array(self, rng):
        return pa.array(rng.integers(0, 200, ROWS), mask=rng.random(ROWS) < 0.1)


def _streams() -> dict[str, Stream]:
    rng = np.random.default_rng(0)
    words = items(200, rng)
    sentences = pc.binary_join_element_wise(
        *(words.take(pa.array(rng.integers(0, 200, ROWS // 10))) for _ in range(5)), " "
    )
    uuids = pa.array([str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(ROWS // 10)])
    plain = EncodingOptions(plain=True)
    arrays = {
        "sentences": encode(sentences, options=plain),
        "uuids": encode(uuids, options=plain),
        "doubles": encode(pa.array(rng.normal(size=ROWS)), options=plain),
        "codes": encode(pa.array(rng.integers(0, 200, ROWS))),
    }
    # Values come before the lengths of text.
    return {name: part.streams[0] for name, part in arrays.items()}


class CodecTrial:
    """The choice of codec and shuffle, and what it makes of a stream."""

    params = PARAMS
    param_names = PARAM_NAMES

    def setup(self, name):
        self.stream = _streams()[name]

    def time_trial(self, name):
        self.chosen()

    def track_share_left(self, name):
        data = self.stream.data[: 1 << 20]
        return len(self.chosen().compress(data, self.stream.typesize)) / len(data)

    track_share_left.unit = "of the bytes"

    def chosen(self):
        return compression_of(self.stream, [self.stream.data], CompressionOptions())


class DictionaryTrial:
    """The choice between text and a dictionary of many items, where text is kept."""

    def setup(self):
        rng = np.random.default_rng(0)
        self.column = items(10_000, rng).take(pa.array(rng.integers(0, 10_000, ROWS)))

    def time_trial(self):
        encode(self.column, options=EncodingOptions(worth=lambda data: 0))
