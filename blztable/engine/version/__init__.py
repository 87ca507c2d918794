"""Versions of a table: read, pinned, committed, kept and removed."""
