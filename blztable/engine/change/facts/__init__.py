"""Facts: what a change relies on, and whether another version still has it."""
