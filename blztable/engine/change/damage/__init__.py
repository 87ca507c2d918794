"""Damage: what a kill or a failing disk leaves, and what of it is whole."""
