"""Arrow: what the package needs to know of Arrow beyond its own functions."""
