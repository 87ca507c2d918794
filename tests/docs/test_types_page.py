"""docs/types.md has what its program prints."""

import importlib.util
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "types.md").read_text(encoding="utf-8")
SPEC = importlib.util.spec_from_file_location("make_types", DOCS / "make_types.py")
make_types = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_types)
# What Parquet and Feather do depends on the versions that the page names.
SAME_VERSIONS = f"pyarrow {pa.__version__} with pandas {pd.__version__}." in PAGE


@pytest.mark.parametrize(
    ("name", "table", "ours"),
    [("arrow", make_types.arrow_table, 2), ("pandas", make_types.pandas_table, 2)],
)
def test_the_page_has_the_table_that_the_program_prints(name, table, ours):
    (found,) = re.findall(f"<!-- {name} -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    wanted = table()
    if not SAME_VERSIONS:
        found, wanted = (
            ["|".join(line.split("|")[: ours + 1]) for line in one.splitlines()]
            for one in (found, wanted)
        )
    assert found == wanted


def test_each_type_of_arrow_that_pyarrow_names_is_on_the_page():
    """Every type id of pyarrow is that of an array of the program, or is known to have none."""
    made = {array.type.id for _, array in make_types.arrow_arrays()}
    names = {name: id_ for name, id_ in vars(pa.lib).items() if name.startswith("Type_")}
    # No array in pyarrow has these.
    without = {"Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}
    missing = {name for name, id_ in names.items() if id_ not in made} - without
    assert not missing
