"""Projection: the columns of a version that a user sees, and how: as stored, or as dictionaries.

Behind the columns of the version follow fields of its nested columns, which are columns of their
own: each consists of some nodes of its column. Knows nothing of names and rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from blztable.arrow.types import is_binary, is_text, without_view
from blztable.engine.version.node_parts import NodeParts
from blztable.engine.version.versions import Version
from blztable.errors import SchemaError

# A field of a nested column, and the lines of its nodes.
NestedField = tuple[pa.Field, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Projection:
    """Columns of a version.

    Attributes
    ----------
    version
        The version.
    schema
        The columns of the version, and then the fields of nested ones, in the types that are read.
    fields
        The lines of the nodes of each of these fields.
    dictionaries
        The columns that are stored as text or bytes, and read as dictionaries.
    """

    version: Version
    schema: pa.Schema
    fields: tuple[Sequence[int], ...] = ()
    dictionaries: frozenset[int] = frozenset()
    # Plans of filters, by the bytes of the filter.
    plans: dict[bytes, object] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, version: Version) -> "Projection":
        """Return all columns of a version, as stored."""
        return cls(version, version.schema)

    @property
    def whole_columns(self) -> pa.Schema:
        """The schema without the fields of nested columns."""
        if not self.fields:
            return self.schema
        return pa.schema(list(self.schema)[: -len(self.fields)], self.schema.metadata)

    def with_fields(self, fields: Iterable[NestedField]) -> "Projection":
        """Return a projection with fields of nested columns as further columns.

        The columns before keep their indices.
        """
        fields = list(fields)
        schema = pa.schema([*self.schema, *(field for field, _ in fields)], self.schema.metadata)
        return replace(self, schema=schema, fields=(*self.fields, *(nodes for _, nodes in fields)))

    def with_dictionaries(self, indices: Iterable[int]) -> "Projection":
        """Return a projection with columns of text or binary as dictionaries.

        SchemaError if a column is neither that nor a dictionary.
        """
        fields, changed = list(self.schema), set[int]()
        for index in indices:
            name, type_ = fields[index].name, fields[index].type
            if is_text(type_) or is_binary(type_):
                # The metadata of the field are about its values, not about categories.
                type_ = pa.dictionary(pa.int32(), without_view(type_))
                fields[index] = pa.field(name, type_, fields[index].nullable)
                changed.add(index)
            elif not pa.types.is_dictionary(type_):
                raise SchemaError(
                    f"{self.version.store.name}: column {name!r} has the type {type_}; "
                    "dictionaries= takes columns of text or binary"
                )
        if not changed:
            return self
        schema = pa.schema(fields, self.schema.metadata)
        return replace(self, schema=schema, dictionaries=self.dictionaries | changed)

    def is_field(self, index: int) -> bool:
        """True if a column is a field of a nested one."""
        return index >= len(self.version.schema)

    def nodes(self, index: int) -> Sequence[int]:
        """Return the lines of a column's nodes, in pre-order; the first is the root."""
        roots, columns = self.version.roots, len(self.version.schema)
        if index < columns:
            return range(roots[index], roots[index + 1])
        return self.fields[index - columns]

    def column_of(self, index: int) -> int:
        """Return the index of a column, or of the nested column that has this field."""
        return self.version.field_of(self.nodes(index)[0]) if self.is_field(index) else index

    def root(self, index: int) -> NodeParts:
        """Return the parts of the root of a column."""
        return self.version.parts(self.nodes(index)[0])

    def parts(self, index: int) -> list[NodeParts]:
        """Return the parts of each node of a column."""
        return [self.version.parts(line) for line in self.nodes(index)]

    def nbytes(self, index: int) -> int:
        """Return the uncompressed bytes of all nodes of a column."""
        nbytes = 0
        for line in self.nodes(index):
            nbytes += self.version.facts.total(line)[0]
        return nbytes

    def cbytes(self, index: int) -> int:
        """Return the bytes on disk of all nodes of a column."""
        return sum(self.version.cbytes(line) for line in self.nodes(index))
