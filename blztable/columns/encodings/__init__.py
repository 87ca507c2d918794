"""Encodings: how the values of a stream come from smaller codes in the file.

Theory of operation. An encoding stands between a stream of a type (the values, as Arrow has them)
and the stream of a file (the codes). It is chosen when a part is written (`choose.py`), and stands
with its parameters in the metadata of the stream. A reader makes the encoding from the metadata
(`parse.py`). Each chunk of codes is decompressed into the memory of a thread, and `decode` makes
the values of its rows straight in the memory of the result (`sinks.Decoding`). A chunk has whole
rows; if `needs_pages`, whole pages. Any codes make some values: no code leads out of the memory
that `decode` is given.
"""
