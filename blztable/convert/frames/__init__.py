"""DataFrames as Arrow tables with a descriptor, and back."""
