"""The names of the systems, ours first."""

from systems import arrays, arrow, engines, ours
from systems.system import System


def systems() -> dict[str, System]:
    """Return all systems by name; whether their packages are installed is not known yet."""
    return ours.settings() | PEERS


def system(name: str) -> System:
    """Return one system; our package is imported for our own only."""
    return PEERS[name] if name in PEERS else ours.settings()[name]


PEERS: dict[str, System] = {
    "parquet lz4": arrow.Parquet("lz4"),
    "parquet snappy": arrow.Parquet("snappy"),
    "parquet zstd": arrow.Parquet("zstd"),
    "feather lz4": arrow.Feather("lz4"),
    "feather, uncompressed": arrow.Feather("uncompressed"),
    "polars": engines.Polars(),
    "duckdb": engines.DuckDB(),
    "vortex": engines.Vortex(),
    "lance": engines.Lance(),
    "blosc2": arrays.Blosc2(),
    "pytables": arrays.PyTables(),
    "fastparquet": arrow.FastParquet(),
}
