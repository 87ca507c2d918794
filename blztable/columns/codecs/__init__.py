"""How arrays of each type are stored, and read back."""
