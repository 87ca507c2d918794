"""Statistics of runs of rows: counts and bounds, computed, decoded and checked."""
