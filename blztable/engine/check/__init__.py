"""Check: find and report the damage of a version."""
