"""Reshape: the kind of the objects of a column whose structs get other fields.

Knows kinds and types, not values. What the change does not touch comes back as before. A new field
holds what Arrow makes of it, and a dict lacks it where it is null. A tuple of other fields is a
dict.
"""

from dataclasses import replace

import pyarrow as pa

from blztable.arrow.types import nulls
from blztable.convert.objects.containers import (
    Items,
    Maps,
    ObjectArrays,
    RecordArrays,
    Structs,
    is_list,
)
from blztable.convert.objects.find import Anything
from blztable.convert.objects.kinds import Kind
from blztable.errors import FormatError


def reshaped(kind: Kind, old: pa.DataType, new: pa.DataType, by_place: bool) -> Kind:
    """Return the kind of objects of a type that had another type before.

    `by_place` says that the fields of structs keep their places, not their names.
    """
    match kind:
        case Structs() if pa.types.is_struct(new):
            return _fields(kind, old, new, by_place)
        case RecordArrays() if pa.types.is_struct(new):
            names = list(map(str, range(len(kind.kinds))))
            pairs = zip(names, kind.kinds, strict=True)
            structs = Structs(tuple((name, of, False) for name, of in pairs))
            structs = _fields(structs, old, new, by_place)
            is_same = [name for name, _, _ in structs.fields] == names
            return RecordArrays(tuple(of for _, of, _ in structs.fields)) if is_same else structs
        case Items() if is_list(old) and is_list(new):
            of = reshaped(kind.of, old.value_type, new.value_type, by_place)
            # A set cannot hold a dict that was a tuple.
            is_set = kind.word in ("set", "frozenset")
            return Items("list" if is_set and not of.is_hashable else kind.word, of)
        case ObjectArrays() if is_list(old) and is_list(new):
            return replace(kind, of=reshaped(kind.of, old.value_type, new.value_type, by_place))
        case Maps() if pa.types.is_map(new):
            keys = reshaped(kind.of_keys, old.key_type, new.key_type, by_place)
            values = reshaped(kind.of_values, old.item_type, new.item_type, by_place)
            return Maps(keys, values) if keys.is_hashable else Anything()
    try:
        kind.decode(nulls(0, new))
    except FormatError:
        return Anything()
    return kind


def _fields(kind: Structs, old: pa.StructType, new: pa.StructType, by_place: bool) -> Structs:
    known = {key: (of, is_absent) for key, of, is_absent in kind.fields}
    fields = []
    for number, field in enumerate(new):
        name = old.field(number).name if by_place else field.name
        if name in known:
            of, is_absent = known[name]
            of = reshaped(of, old.field(name).type, field.type, by_place)
        else:
            of, is_absent = Anything(), True
        fields.append((field.name, of, is_absent))
    return Structs(tuple(fields))
