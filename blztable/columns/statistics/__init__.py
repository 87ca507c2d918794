"""Statistics of zones: counts and bounds, computed, decoded and checked."""
