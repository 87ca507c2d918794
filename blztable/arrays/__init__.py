"""Arrays: one numpy array in one file.

Knows nothing of tables or pandas.
"""
