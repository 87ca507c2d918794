"""Arrays: one numpy array in one file.

Knows nothing of tables, Arrow or pandas.
"""
