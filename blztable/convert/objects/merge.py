"""Merge: one kind for the objects of a column and for those of data that widen it.

Knows kinds, not values. The objects of the column stay what they are; a dict may lack a key that
others have, whose field is null.
"""

from dataclasses import replace

from blztable.convert.objects.containers import (
    Items,
    Maps,
    Nulls,
    ObjectArrays,
    RecordArrays,
    Structs,
)
from blztable.convert.objects.find import Anything
from blztable.convert.objects.kinds import SIMPLE, Kind


def merged(one: Kind, other: Kind) -> Kind | None:
    """Return the kind of a column of one kind that gets objects of another; None if none has both.

    New keys come last, as new fields of a struct do.
    """
    if one.as_json == other.as_json or isinstance(one, Anything) or isinstance(other, Nulls):
        return one
    match one, other:
        case Nulls(), _:
            return other
        case Structs(), Structs():
            return _structs(one, other)
        case Items(), Items() if one.word == other.word:
            of = merged(one.of, other.of)
            return of and replace(one, of=of)
        case ObjectArrays(), ObjectArrays():
            of = merged(one.of, other.of)
            return of and replace(one, of=of)
        case Maps(), Maps() if one.of_keys.as_json == other.of_keys.as_json:
            of = merged(one.of_values, other.of_values)
            return of and replace(one, of_values=of)
        case RecordArrays(), RecordArrays() if len(one.kinds) == len(other.kinds):
            pairs = zip(one.kinds, other.kinds, strict=True)
            kinds = [kind for pair in pairs if (kind := merged(*pair))]
            return RecordArrays(tuple(kinds)) if len(kinds) == len(one.kinds) else None
    # Integers of the column become floats; those of the data stay what they are.
    return other if (one, other) == (SIMPLE["int"], SIMPLE["float"]) else None


def _structs(one: Structs, other: Structs) -> Structs | None:
    theirs = {key: kind for key, kind, _ in other.fields}
    fields = []
    for key, kind, is_absent in one.fields:
        both = merged(kind, theirs.get(key, kind))
        if both is None:
            return None
        fields.append((key, both, is_absent))
    known = {key for key, _, _ in fields}
    return Structs((*fields, *(field for field in other.fields if field[0] not in known)))


def lenient(kind: Kind) -> Kind:
    """Return the kind, whose dicts may lack keys that would come back as None."""
    match kind:
        case Structs():
            fields = ((key, lenient(of), is_absent) for key, of, is_absent in kind.fields)
            return Structs(tuple(fields), may_lack=True)
        case Items() | ObjectArrays():
            return replace(kind, of=lenient(kind.of))
        case Maps():
            return replace(kind, of_values=lenient(kind.of_values))
        case RecordArrays():
            return RecordArrays(tuple(map(lenient, kind.kinds)))
    return kind
