"""Tables and arrays of other programs, to be read: BLZ, bcolz, Bloscpack. Never changes a file."""
