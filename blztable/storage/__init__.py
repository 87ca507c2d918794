"""Keeps bytes under keys, on a local disk or in memory; it knows nothing of their meaning."""
