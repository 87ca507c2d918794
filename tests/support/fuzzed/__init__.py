"""What the fuzzer changes and reads: one file for each kind of cases.

A kind has `seeds`, which returns files by name; `mutated`, which returns one of them with random
changes and their descriptions; `read_all`, which reads it in every way and returns the outcome; and
`save`. Random choices come from the `Random` that is passed.
"""
