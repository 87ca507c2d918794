"""Encodings: how a stream of values comes from a smaller stream in the file."""
