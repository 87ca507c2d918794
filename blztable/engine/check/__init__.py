"""What is wrong with a version."""
