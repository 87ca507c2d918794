"""Nested types as trees of flat nodes: which nodes a type has, and arrays to nodes and back."""
