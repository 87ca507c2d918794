"""Bytes to frozen structs and back, as `docs/format.md` describes them.

Nothing here opens or locks a file, knows the meaning of a column, or allocates memory by a number
from a file before that number was checked.
"""
