"""Which rows a filter leaves, and reading them."""
