"""Metalayers: the comparison of the two kinds in proposal 003, row by row, and every misuse."""

import io

import pytest

import blztable as blz

GIRAFFE = b"giraffe"


@pytest.fixture
def file():
    file = io.BytesIO()
    with blz.SuperChunk.create(file, "i4", chunk_shape=(10,), meta={"pet": b"cat"}) as array:
        array.append(range(25))
        array.vlmeta.add("pet", b"cat")
    return file


def changed(file, change):
    """Return the bytes before and after a change."""
    before = file.getvalue()
    with blz.SuperChunk.open(file, "a") as array:
        change(array)
    return before, file.getvalue()


def front_of(data):
    """Return how many bytes come before the first chunk."""
    with blz.SuperChunk.open(data) as array:
        return array._opened.array.offsets[0]


def chunks_of(data):
    return data[front_of(data) : trailer_of(data)]


def trailer_of(data):
    """Return where the trailer begins."""
    return data.index(b"blztrail")


def test_where_are_they_stored_header_or_trailer(file):
    data = file.getvalue()
    assert b'"pet":"Y2F0"' in data[: front_of(data)]
    assert b"petcat" in data[trailer_of(data) :]
    assert data.count(b"Y2F0") == data.count(b"petcat") == 1


def test_can_they_be_resized_no_or_yes(file):
    def resize(array):
        with pytest.raises(ValueError, match="'pet' has 3 bytes and keeps them, not 7"):
            array.meta.update("pet", GIRAFFE)
        array.meta.update("pet", b"dog")
        array.vlmeta.update("pet", GIRAFFE)

    before, after = changed(file, resize)
    with blz.SuperChunk.open(after) as array:
        assert dict(array.meta) == {"pet": b"dog"}
        assert dict(array.vlmeta) == {"pet": GIRAFFE}
    # 10 GB of data would not have been written again.
    assert (
        before[front_of(before) : trailer_of(before)] == after[front_of(after) : trailer_of(after)]
    )


def test_can_they_be_added_after_adding_chunks_no_or_yes(file):
    def add(array):
        with pytest.raises(ValueError, match="before the first chunk"):
            array.meta.add("other", b"x")
        array.vlmeta.add("other", b"x")

    _, after = changed(file, add)
    with blz.SuperChunk.open(after) as array:
        assert list(array.meta) == ["pet"]
        assert dict(array.vlmeta) == {"pet": b"cat", "other": b"x"}


def test_are_they_rewritten_when_adding_chunks_no_or_yes(file):
    before, after = changed(file, lambda array: array.append(range(100)))
    place = before.index(b'"pet":"Y2F0"')
    assert after.index(b'"pet":"Y2F0"') == place
    assert trailer_of(after) > trailer_of(before)
    assert b"petcat" in after[trailer_of(after) :]


def test_the_four_verbs_and_deletion():
    with blz.SuperChunk.create(None, "i4") as array:
        for layers in (array.meta, array.vlmeta):
            assert not layers.exists("a")
            layers.add("a", b"xyz")
            assert layers.exists("a")
            assert layers.get("a") == layers["a"] == b"xyz"
            assert layers.get("b") is None
            assert layers.get("b", b"none") == b"none"
            layers.update("a", b"abc")
            layers["a"] = bytearray(b"uvw")
            layers["b"] = memoryview(b"123")
            assert dict(layers) == {"a": b"uvw", "b": b"123"}
            assert len(layers) == 2
            assert "a" in layers
            assert "uvw" in repr(layers)
        array.vlmeta.delete("a")
        del array.vlmeta["b"]
        assert not array.vlmeta
        array.vlmeta["a"], array.vlmeta["b"], array.vlmeta["c"] = b"1", b"2", b"3"
        assert array.vlmeta.pop("b") == b"2"
        assert dict(array.vlmeta) == {"a": b"1", "c": b"3"}
        array.vlmeta.clear()
        assert not array.vlmeta
        assert not hasattr(array.meta, "delete")


def test_fixed_ones_are_added_until_the_first_chunk():
    file = io.BytesIO()
    with blz.SuperChunk.create(file, "i4") as array:
        array.meta.add("a", b"x" * 1000)
    with blz.SuperChunk.open(file, "a") as array:
        array.meta.add("b", b"y" * 1000)
        array.append([1, 2, 3])
        with pytest.raises(ValueError, match="before the first chunk"):
            array.meta["c"] = b""
    with blz.SuperChunk.open(file.getvalue()) as array:
        assert {name: len(content) for name, content in array.meta.items()} == {
            "a": 1000,
            "b": 1000,
        }
        assert array[:].tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ["meta", "vlmeta"])
def test_misuse_is_a_plain_error(kind):
    with blz.SuperChunk.create(None, "i4") as array:
        layers = getattr(array, kind)
        for verb in (layers.__getitem__, lambda name: layers.update(name, b"")):
            with pytest.raises(KeyError, match="no metalayer 'a'"):
                verb("a")
        layers.add("a", b"")
        with pytest.raises(KeyError, match="has a metalayer 'a'"):
            layers.add("a", b"")
        for content in ("text", 7, None, [1]):
            with pytest.raises(TypeError, match="expected bytes"):
                layers["b"] = content
        for name in (7, None, b"b"):
            with pytest.raises(TypeError, match="expected str"):
                layers.add(name, b"")
        for name in ("", "x" * 32, "é" * 16):
            with pytest.raises(blz.LimitError, match="1 to 31 bytes"):
                layers.add(name, b"")
        with pytest.raises(ValueError, match="those of the format"):
            layers.add("blz.attrs", b"")
        for number in range(15):
            layers.add(f"{number}", b"")
        with pytest.raises(blz.LimitError, match="16 metalayers"):
            layers.add("more", b"")
        assert len(layers) == 16


def test_sixteen_variable_ones_have_room_beside_ours():
    file = io.BytesIO()
    with blz.SuperChunk.create(
        file, "i4", chunk_shape=(1,), expectedlen=1, attrs={"a": 1}
    ) as array:
        array.append([1, 2])
        for number in range(16):
            array.vlmeta[f"{number}"] = b"x" * number
    with blz.SuperChunk.open(file.getvalue()) as array:
        assert [len(content) for content in array.vlmeta.values()] == list(range(16))
        assert dict(array.attrs) == {"a": 1}


def test_the_bytes_of_metalayers_are_limited():
    with blz.SuperChunk.create(None, "i4") as array:
        array.meta.add("a", bytes(60_000))
        with pytest.raises(blz.LimitError, match="65535"):
            array.meta.add("b", bytes(6_000))
        with pytest.raises(blz.LimitError, match="16777216"):
            array.vlmeta.add("a", bytes((16 << 20) + 1))
        array.vlmeta.add("a", bytes(16 << 20))
    with pytest.raises(blz.LimitError, match="65535"):
        blz.SuperChunk.create(None, "i4", meta={"a": bytes(70_000)})


def test_variable_ones_are_compressed(file):
    _, after = changed(file, lambda array: array.vlmeta.add("zeros", bytes(100_000)))
    assert len(after) < 20_000


def test_a_reader_refuses_changes_and_a_foreign_file_has_none(file):
    with blz.SuperChunk.open(file.getvalue()) as array:
        with pytest.raises(blz.ReadOnlyError):
            array.meta["pet"] = b"dog"
        with pytest.raises(ValueError, match="before the first chunk"):
            array.meta["cow"] = b""
        with pytest.raises(blz.ReadOnlyError):
            del array.vlmeta["pet"]
