"""The tables that a seed makes: wide, text, nulls, sensor, row_groups, small.

Knows nothing of files. Each function takes a scale, 1 for the full size, and returns the same table
on every machine. No double is NaN, and none of the text is random noise except the UUIDs.
"""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WIDE_COLUMNS, WIDE_ROWS = 5_000, 2_000
TEXT_ROWS, NULL_ROWS, SENSOR_ROWS = 1_000_000, 2_000_000, 4_000_000
GROUPS_ROWS, SMALL_ROWS = 1_000_000, 1_000
LEAST_COLUMNS, LEAST_ROWS = 8, 2_000
START = int(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp())


def wide(scale: float) -> pa.Table:
    """Measurements of three decimals in 5,000 columns, and a key; fewer columns if scaled down."""
    draw = np.random.default_rng(1)
    columns = max(LEAST_COLUMNS, int(WIDE_COLUMNS * min(scale, 1)))
    table = {"key": np.arange(WIDE_ROWS)}
    for number in range(1, columns):
        table[f"column_{number}"] = draw.normal(size=WIDE_ROWS).round(3)
    return pa.table(table)


def text(scale: float) -> pa.Table:
    """Log lines of a web server, with URLs and UUIDs; keys ascend."""
    rows, draw = rows_of(TEXT_ROWS, scale), np.random.default_rng(2)
    words = "account basket cart detail export feed group help index item list login mail map news"
    parts = [*words.split(), *(f"{word}s" for word in words.split())]
    hosts = [f"https://www.{part}-{number}.example.com" for part in parts[:10] for number in (1, 2)]
    paths = joined(picked(draw, parts, rows), picked(draw, parts, rows), by="/")
    numbers = pc.cast(pa.array(draw.integers(0, 10**6, rows)), pa.large_string())
    url = joined(picked(draw, hosts, rows), joined(paths, numbers, by="?id="), by="/")
    status = pa.array(draw.choice([200, 200, 200, 304, 404, 500], rows).astype("i2"))
    agents = [f"Mozilla/5.0 (X11; rv:{n}.0) Gecko/20100101 Firefox/{n}.0" for n in range(90, 140)]
    addresses = [f"10.{n % 7}.{n % 31}.{n % 251}" for n in range(3_000)]
    line = joined(
        picked(draw, addresses, rows),
        joined(
            pc.cast(status, pa.large_string()),
            joined(paths, picked(draw, agents, rows), by=' HTTP/1.1" "'),
            by=' "GET /',
        ),
        by=" - - ",
    )
    size = pa.array(np.floor(draw.lognormal(8, 1.5, rows)).astype("i8"))
    return pa.table(
        {
            "line_number": np.arange(rows),
            "status": status,
            "size": size,
            "uuid": uuids(draw, rows),
            "url": url,
            "line": line,
        }
    )


def nulls(scale: float) -> pa.Table:
    """Numbers, text, booleans and times, most of them null: at random, in runs, everywhere."""
    rows, draw = rows_of(NULL_ROWS, scale), np.random.default_rng(3)
    words = [f"reason {number}: not measured" for number in range(500)]
    in_runs = np.repeat(draw.random(rows // 500 + 1) < 0.7, 500)[:rows]
    seconds = START + draw.integers(0, 10**7, rows)

    def sparse(values: object, missing: np.ndarray, type_: pa.DataType | None = None) -> pa.Array:
        array = values if isinstance(values, pa.Array) else pa.array(values)
        known = pc.if_else(pa.array(missing), None, array)
        return known.cast(type_) if type_ else known

    def at_random(share: float) -> np.ndarray:
        return draw.random(rows) < share

    return pa.table(
        {
            "key": np.arange(rows) * 3,
            "half": sparse(draw.integers(0, 1000, rows), at_random(0.5)),
            "rare": sparse(draw.integers(0, 10**9, rows), at_random(0.95)),
            "price": sparse(draw.gamma(2, 20, rows).round(2), at_random(0.3)),
            "in_runs": sparse(draw.normal(size=rows), in_runs),
            "reason": sparse(picked(draw, words, rows), at_random(0.8)),
            "flag": sparse(draw.random(rows) < 0.1, at_random(0.6)),
            "seen": sparse(seconds, in_runs, pa.timestamp("s")).cast(pa.timestamp("us")),
            "nothing": pa.nulls(rows, pa.float64()),
        }
    )


def sensor(scale: float) -> pa.Table:
    """A time series: ns timestamps with jitter, a sensor, floats that are no decimals."""
    rows, draw = rows_of(SENSOR_ROWS, scale), np.random.default_rng(4)
    time = START * 10**9 + np.cumsum(10**6 + draw.integers(-(10**4), 10**4, rows))
    table: dict[str, object] = {
        "time": pa.array(time, pa.timestamp("ns")),
        "sensor": draw.integers(0, 200, rows).astype("i4"),
    }
    for name in ("x", "y", "z"):
        table[name] = np.cumsum(draw.normal(size=rows))
    table["temperature"] = 20 + 5 * np.sin(np.arange(rows) / 10**5) + draw.normal(size=rows) / 9
    table["noise"] = draw.random(rows)
    table["voltage"] = draw.normal(3.3, 0.01, rows).astype("f4")
    table["state"] = picked(draw, ["ok", "warm", "hot", "off"], rows)
    return pa.table(table)


def row_groups(scale: float) -> pa.Table:
    """Sales whose keys ascend; the data set stores them in row groups of 100 rows."""
    return sales(rows_of(GROUPS_ROWS, scale), np.random.default_rng(5))


def small(scale: float) -> pa.Table:
    """A frame of 1,000 rows and three columns; the scale changes nothing."""
    return sales(SMALL_ROWS, np.random.default_rng(6)).select(["key", "price", "item"])


def sales(rows: int, draw: np.random.Generator) -> pa.Table:
    """Keys that ascend, counts, prices of two decimals, and one of a thousand items."""
    items = [f"item {number}" for number in range(min(1_000, rows // 10))]
    return pa.table(
        {
            "key": np.arange(rows),
            "count": draw.integers(0, 100, rows),
            "price": draw.gamma(2, 20, rows).round(2),
            "item": picked(draw, items, rows),
        }
    )


def rows_of(full: int, scale: float) -> int:
    return max(LEAST_ROWS, int(full * scale))


def picked(draw: np.random.Generator, words: list[str], rows: int) -> pa.Array:
    """Pick a word for each row."""
    return pa.array(words, pa.large_string()).take(pa.array(draw.integers(0, len(words), rows)))


def joined(first: pa.Array, second: pa.Array, *, by: str) -> pa.Array:
    return pc.binary_join_element_wise(first, second, pa.scalar(by, pa.large_string()))


def uuids(draw: np.random.Generator, rows: int) -> pa.Array:
    """Random UUIDs as text of 36 characters."""
    digits = np.frombuffer(b"0123456789abcdef", "u1")[draw.integers(0, 16, (rows, 36), "u1")]
    digits[:, [8, 13, 18, 23]] = ord("-")
    ends = pa.py_buffer(np.arange(0, 36 * (rows + 1), 36))
    return pa.Array.from_buffers(pa.large_string(), rows, [None, ends, pa.py_buffer(digits)])
