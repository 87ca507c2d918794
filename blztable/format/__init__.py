"""Bytes to frozen structs and back, as `docs/format.md` writes them down.

Nothing here opens, locks, allocates by a number from a file before it was checked, or knows what a
column means.
"""
