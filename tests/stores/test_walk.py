"""The walk over the calls of real code finds planted bugs, and nothing where there are none."""

from dataclasses import replace

import pytest

from support.interleaved.walk import Medium, Touched, drawn, walk


class Taken(Exception):
    """The key exists."""


class Bucket:
    """Values under keys."""

    def __init__(self, values):
        self.values = dict(values)

    def get(self, key):
        return self.values.get(key)

    def put(self, key, value):
        self.values[key] = value

    def create(self, key, value):
        if key in self.values:
            raise Taken(key)
        self.values[key] = value

    def names(self, prefix):
        return sorted(key[len(prefix) :] for key in self.values if key.startswith(prefix))

    def delete(self, key):
        self.values.pop(key, None)


def reading(key):
    return Touched((key,), is_changed=False)


def changing(key, value=None):
    return Touched((key,), is_changed=True)


MEDIUM = Medium(
    touches={
        "get": reading,
        "names": reading,
        "put": changing,
        "create": changing,
        "delete": changing,
    },
    content=lambda bucket: frozenset(bucket.values.items()),
)
# All orders, also of calls that have nothing to do with each other.
UNRELATED = replace(
    MEDIUM, touches={name: lambda *_: Touched(("/",), is_changed=True) for name in MEDIUM.touches}
)


def begun():
    return Bucket({"versions/1": "a", "files/a": "", "files/old": ""})


def appending(row, *, creates=True):
    """Append a row: a file of its own, then a version that names all files."""

    def prepared(bucket):
        def work():
            bucket.put(f"files/{row}", "")
            while True:
                newest = bucket.names("versions/")[-1]
                rows = bucket.get(f"versions/{newest}")
                publish = bucket.create if creates else bucket.put
                try:
                    publish(f"versions/{int(newest) + 1}", rows + row)
                except Taken:
                    continue
                return row

        return work

    return prepared


def cleaning(*, only_old=True):
    """Remove the files that no version names, but those that are not old."""

    def prepared(bucket):
        def work():
            files = bucket.names("files/")
            named = "".join(bucket.get(f"versions/{name}") for name in bucket.names("versions/"))
            for name in files:
                if name not in named and (name == "old" or not only_old):
                    bucket.delete(f"files/{name}")

        return work

    return prepared


def judged(bucket, ends):
    rows = bucket.get(f"versions/{bucket.names('versions/')[-1]}")
    assert not any(end is not None and end.raised for end in ends)
    if not set(rows) <= set(bucket.names("files/")):
        return "gone"
    told = {end.returned for end in ends if end is not None and end.returned}
    return None if told <= set(rows) else "lost"


def walked(*works, judge=judged, medium=MEDIUM, **options):
    return walk(medium, begun, works, judge, **options)


def test_two_appends_lose_nothing():
    found = walked(appending("b"), appending("c"))
    assert not found.problems
    assert found.states > 10


def test_an_append_that_overwrites_is_found():
    found = walked(appending("b", creates=False), appending("c", creates=False))
    assert found.problems.keys() == {"lost"}
    puts = {"0: put versions/2 ab", "1: put versions/2 ac"}
    assert puts <= set(found.problems["lost"])


def test_a_file_that_is_removed_before_it_is_named_is_found():
    assert not walked(appending("b"), appending("c"), cleaning()).problems
    assert walked(appending("b"), cleaning(only_old=False)).problems.keys() == {"gone"}


def test_all_states_of_the_store_are_met_by_fewer_runs():
    def met(medium):
        contents = set()

        def judge(bucket, ends):
            contents.add((medium.content(bucket), str(ends)))

        works = appending("b"), appending("c"), cleaning()
        return walked(*works, judge=judge, medium=medium), contents

    fewer, contents = met(MEDIUM)
    all_orders, all_contents = met(UNRELATED)
    assert contents == all_contents
    assert fewer.states == all_orders.states
    assert fewer.runs < all_orders.runs / 2


def test_an_error_of_an_actor_is_told_to_the_judge():
    def prepared(bucket):
        def work():
            bucket.get("files/a")
            raise Taken("a")

        return work

    def judge(bucket, ends):
        return str(ends[0].raised) if ends[0] is not None else None

    assert walked(prepared, judge=judge).problems == {"a": ["0: get files/a"]}


def test_code_that_does_not_do_the_same_again_is_told():
    flips = iter(range(10))

    def prepared(bucket):
        return lambda: bucket.put(str(next(flips)), "")

    with pytest.raises(AssertionError, match="expected put 1"):
        walked(prepared, prepared, medium=UNRELATED)


def test_numbers_that_are_drawn_are_the_same_in_each_run_and_different_for_each_actor():
    met = set()

    def prepared(bucket):
        def work():
            bucket.put("a", "")
            met.add(drawn())
            bucket.put("b", "")
            met.add(drawn())

        return work

    walked(prepared, prepared, judge=lambda *_: None)
    assert met == {1, 2, 1_000_001, 1_000_002}
    assert drawn() is None


def test_what_an_actor_prepares_is_not_in_turns():
    def prepared(bucket):
        bucket.put("prepared", "")
        bucket.get("prepared")
        return lambda: bucket.delete("prepared")

    def judge(bucket, ends):
        return "gone" if bucket.get("prepared") is None else None

    found = walked(prepared, judge=judge)
    assert found.problems == {"gone": ["0: delete prepared"]}


def test_a_walk_that_never_ends_is_told():
    def prepared(bucket):
        return lambda: [bucket.put("a", str(number)) for number in range(30)]

    with pytest.raises(AssertionError, match="more than 20 runs"):
        walked(prepared, prepared, judge=lambda *_: None, most=20)
