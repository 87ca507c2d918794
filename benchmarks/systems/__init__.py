"""The systems that are compared, each used as its users would: one class a system.

`registry.py` names them. Knows nothing of tasks and clocks. A method that a system lacks raises
NotImplementedError with the reason, which the report repeats.
"""
