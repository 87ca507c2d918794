"""A table in one file: a store whose values lie one after another."""
