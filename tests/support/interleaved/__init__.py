"""Agents on a store that nobody locks, in every order of their calls.

Contains no tests.
"""
