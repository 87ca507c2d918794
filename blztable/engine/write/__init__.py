"""Arrays to parts."""
