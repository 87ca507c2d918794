"""Python objects as Arrow arrays, and back."""
