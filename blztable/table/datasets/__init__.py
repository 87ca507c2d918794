"""Datasets: tables as query engines scan them."""
