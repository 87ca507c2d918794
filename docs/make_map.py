"""Print the register of the code: each room and file of the package with its first line.

    python docs/make_map.py             all rooms
    python docs/make_map.py engine/read one room

The lines are the nameplates in the files, so the register is never out of date.
"""

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "blztable"


def nameplate(path: Path) -> str:
    """Return the first paragraph of the docstring of a file as one line."""
    docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def register(wanted: str = "") -> list[str]:
    """Return the lines of the register: of all rooms, or of those whose names begin with a text."""
    lines: list[str] = []
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")}):
        room = folder.relative_to(PACKAGE).as_posix()
        if not room.startswith(wanted):
            continue
        files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
        width = max((len(path.name) for path in files), default=0)
        lines += ["", f"{room}/  {nameplate(folder / '__init__.py')}"]
        lines += [f"    {path.name:{width}}  {nameplate(path)}" for path in files]
    return lines[1:]


if __name__ == "__main__":
    print("\n".join(register(*sys.argv[1:2])))
