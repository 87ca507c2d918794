"""Writing: Arrow columns to the parts of row groups. Knows nothing of versions and commits."""
