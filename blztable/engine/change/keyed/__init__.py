"""Keyed: changes of rows that are found by the values of some columns, their key."""
