"""Keys of the head of a version, each a subject of its own."""
