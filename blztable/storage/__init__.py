"""Keeps bytes under keys, and knows no meaning: on a local disk, or in memory."""
