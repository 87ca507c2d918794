"""Convert: pandas and Arrow, both ways, and a door for anything that speaks Arrow.

Knows no disk: it takes and returns DataFrames and Arrow tables.
"""
