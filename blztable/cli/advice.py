"""Advice: what a message of the package tells to call, in the words of the command line.

Knows texts alone. A message has what was found first, and behind semicolons what mends it. Calls
that a command does become that command. Advice that only Python can follow is left out.
"""

import re

_VERBS = "compact|diff|erase|recover|repair|restore|unpack|vacuum|verify|versions|pack"
_COMMANDS = (
    (r"\bevolve=True", "--evolve"),
    (r"(?:write one with )?to_blz\(\) or create\(\)", "make one with `blz import`"),
    (r"\bmake a table of it with blztable\.copy\(.*", "make a table of it: `blz import`"),
    (r"\bchange the column with alter_column\(.*", "convert the data"),
    (rf"\b(?:\w+\.)*({_VERBS})\([^()]*\)", r"`blz \1`"),
)
# A call, a name of a library of Python, or a parameter with a value.
_PYTHON = re.compile(
    r"\b[a-zA-Z_.]+\((?!s\))|\b(?:pa|pc|pd|np|pandas|blztable)\.\w+"
    r"|\b[a-z_]+=(?:True|False|None|\"|'|\[|\{|\d|\.\.\.)"
)
_OTHERS = re.compile(r", (?=(?:or|and|with) )")


def of_command_line(message: str) -> str:
    """Return a message whose advice can be followed without Python."""
    fault, *advice = message.split("; ")
    return "; ".join([fault, *filter(None, map(_followed, advice))])


def _followed(advice: str) -> str:
    if advice.startswith("read it with "):
        # What another library stored is read by that library.
        return advice
    for call, command in _COMMANDS:
        advice = re.sub(call, command, advice)
    parts = [part for part in _OTHERS.split(advice) if not _PYTHON.search(part)]
    return re.sub("^(?:or|and|with) ", "", ", ".join(parts))
