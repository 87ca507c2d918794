"""The proposals' three JSON documents: what people and other tools may read about a table.

They mirror the newest version and are never read by the engine. Refreshed under the writers' lock,
so that an older version never replaces a newer one.
"""

from blztable.engine.versions import Version
from blztable.format import jsontext, layout


def refresh(version: Version) -> None:
    """Write sizes, storage and attributes of this version.

    Not flushed: the next commit makes them again, and nothing depends on them.
    """
    head = version.head
    sizes = {
        "shape": [head.rows],
        "nbytes": sum(head.columns.nbytes),
        "cbytes": sum(head.columns.cbytes),
    }
    properties = head.properties
    storage = {
        "dtype": list(zip(head.fields["name"], head.fields["type"], strict=True)),
        "cparams": {
            "cname": properties.get("compression"),
            "clevel": properties.get("clevel"),
            "shuffle": properties.get("shuffle"),
        },
        "expectedlen": head.rows,
        "dflt": None,
    }
    for key, document in (
        (layout.SIZES, sizes),
        (layout.STORAGE, storage),
        (layout.ATTRIBUTES, dict(head.attributes)),
    ):
        version.store.put(key, jsontext.dumps(document) + b"\n")
