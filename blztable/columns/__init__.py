"""Arrow arrays to named streams with statistics, and streams back to Arrow buffers.

Knows nothing of files, compressed chunks or pandas. A new type takes one file, and one line in
`types`.
"""
