"""Conditions as text."""
