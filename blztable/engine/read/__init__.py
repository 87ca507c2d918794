"""Parts to arrays."""
