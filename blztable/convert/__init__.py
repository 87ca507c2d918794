"""Convert: pandas and Arrow, both ways, and a door for anything that speaks Arrow.

Knows no disk: it takes tables and frames and gives back frames and tables.
"""
