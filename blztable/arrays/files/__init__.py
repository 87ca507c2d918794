"""Files of arrays: their bytes, read and made, without a change of any file."""
