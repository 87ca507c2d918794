"""Arrow arrays to encoded parts, and parts back to arrays.

A part is one flat column of a row group: streams of codes or values, words, and a page record for
each 2^p rows. Knows nothing of files and chunks.
"""
