"""Changing: what the verbs of a transaction do with the data of users."""
