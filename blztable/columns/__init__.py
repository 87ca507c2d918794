"""Arrow arrays to named streams with statistics, and streams back into buffers of ours.

Pure: nothing here knows a file, a chunk's bytes or pandas. A new type is one file and one line in
`types`.
"""
