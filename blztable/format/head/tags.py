"""Tags: names of versions that are kept.

Knows nothing of other versions than the one whose head has the tags.
"""

from collections.abc import Mapping

from blztable.errors import CorruptError
from blztable.format import jsontext
from blztable.format.jsontext import Json

# Characters of a name.
LENGTH_MAX = 255


def is_tag(name: object) -> bool:
    """True if a tag may have this name: 1 to 255 printable characters, not all of them digits."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= LENGTH_MAX
        and name.isprintable()
        and not name.isdecimal()
    )


def check(tags: Mapping[str, Json], version: int) -> None:
    """CorruptError unless each tag in the head of a version names one before it."""
    for name, number in tags.items():
        if not is_tag(name) or not 0 < jsontext.number(number, "the version of a tag") < version:
            raise CorruptError("the head of a manifest: a tag does not name an older version")
