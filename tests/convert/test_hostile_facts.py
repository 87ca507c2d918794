"""The goal: facts from a stranger's file end in a frame or in a FormatError, in nothing else."""

import contextlib
import copy
import json

import pyarrow as pa
from convert.strategies import frames, rebuilt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blztable.convert.descriptor import FIELD_KEY
from blztable.convert.frame import to_frame
from blztable.convert.gateway import ingest
from blztable.convert.interop import arrow_metadata
from blztable.errors import FormatError

WORDS = "range field kind numpy M8[us] period M tuple float nan masked category object string zoned"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(WORDS.split()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


DESCRIPTOR = st.dictionaries(st.sampled_from(["dtype", "freq"]), JSON)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames(rows_max=4), st.integers(0, 1000), st.none() | JSON, DESCRIPTOR)
def test_changed_facts_are_read_or_refused(frame, spot, value, descriptor):
    stored = ingest(frame)
    facts = {"frame": copy.deepcopy(stored.frame), "fields": {}}
    for place, field in enumerate(stored.table.schema):
        if field.metadata:
            facts["fields"][str(place)] = json.loads(field.metadata[FIELD_KEY])
    change(facts, spot, value, descriptor)
    fields = []
    for place, field in enumerate(stored.table.schema):
        found = facts["fields"].get(str(place))
        fields.append(field.with_metadata({FIELD_KEY: json.dumps(found)} if found else None))
    table = rebuilt(pa.Table.from_arrays(stored.table.columns, schema=pa.schema(fields)))
    with contextlib.suppress(FormatError):
        assert len(to_frame(table, stored.rows, facts["frame"], {})) == len(frame)
    with contextlib.suppress(FormatError):
        arrow_metadata(facts["frame"], table.schema, stored.rows, {})


def change(facts, spot, value, descriptor):
    """Replace one value anywhere below, or take it away where the new one is None."""
    spots = [(facts[part], key) for part in facts for key in facts[part]]
    for parent, key in spots:
        below = parent[key]
        if isinstance(below, dict | list):
            spots += [(below, k) for k in (below if isinstance(below, dict) else range(len(below)))]
    parent, key = spots[spot % len(spots)]
    if parent is facts["fields"]:
        parent[key] = descriptor
    elif value is not None:
        parent[key] = value
    else:
        del parent[key]
