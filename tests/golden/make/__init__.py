"""Scripts that wrote the golden tables."""
