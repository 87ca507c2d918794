"""Tools shared by the tests: stores, strategies, samples, worker processes, models of failure.

Holds no test.
"""
