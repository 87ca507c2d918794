"""Tools of the crash tests: a model of the disk, the changes that are interrupted, and checks."""
