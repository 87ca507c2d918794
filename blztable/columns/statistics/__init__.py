"""Counts and bounds of rows."""
