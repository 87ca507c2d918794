"""The schema of a manifest: what this version cannot store is refused when a table is opened."""

import pyarrow as pa
import pytest

from blztable.engine import schema
from blztable.errors import CorruptError, FormatError


class Celsius(pa.ExtensionType):
    """Registered for a test: like all made in Python, it has no hash."""

    def __init__(self):
        super().__init__(pa.float64(), "test.celsius")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


@pytest.fixture(params=["known", "unknown"])
def celsius(request):
    """Of a class that Arrow knows here; else it reads as its storage."""
    type_ = Celsius()
    with pytest.raises(TypeError):
        hash(type_)
    if request.param == "known":
        pa.register_extension_type(type_)
    yield type_, request.param == "known"
    if request.param == "known":
        pa.unregister_extension_type("test.celsius")


def test_an_extension_type_is_refused_by_its_column_whether_arrow_knows_it_or_not(celsius):
    type_, is_known = celsius
    fields = pa.schema([("a", pa.int8()), ("b", type_), ("c", pa.int8())])
    words = r"has type .*Celsius" if is_known else "has the extension type b'test.celsius'"
    with pytest.raises(FormatError, match=f"column 'b' {words}"):
        schema.decode(fields.serialize().to_pybytes())


def test_metadata_that_only_mention_an_extension_type_are_read():
    key = schema.EXTENSION_KEY
    fields = pa.schema(
        [pa.field("a", pa.int8(), metadata={"note": key}), pa.field(key.decode(), pa.int8())],
        {key: "of the whole schema"},
    )
    assert schema.decode(fields.serialize().to_pybytes()).equals(fields, check_metadata=True)


@pytest.mark.parametrize("type_", [pa.list_(pa.int8()), pa.struct([]), pa.uuid()], ids=str)
@pytest.mark.parametrize("place", [0, 700, 999])
def test_a_type_that_is_not_known_is_refused_wherever_it_stands(type_, place):
    fields = [(f"c{index}", pa.timestamp("ns", "UTC")) for index in range(1000)]
    fields[place] = ("x", type_)
    with pytest.raises(FormatError, match="column 'x' has type"):
        schema.decode(pa.schema(fields).serialize().to_pybytes())


def test_text_that_is_not_utf_8_is_refused():
    fields = pa.schema([("name", pa.int8()), ("b", pa.timestamp("ns", "Zone"))])
    data = fields.serialize().to_pybytes()
    assert schema.decode(data) == fields
    for found in (b"name", b"Zone"):
        with pytest.raises(CorruptError):
            schema.decode(data.replace(found, b"\xff" * 4))
