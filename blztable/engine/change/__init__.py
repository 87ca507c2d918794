"""What makes one version out of another."""
