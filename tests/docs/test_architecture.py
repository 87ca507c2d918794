"""The architecture: which room may import which, no import circles, a nameplate in every file.

Reads the sources only. A new room needs a line in MAY_IMPORT.
"""

import ast
import graphlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "blztable").rglob("*.py"))
}
TREES = {name: ast.parse(path.read_bytes(), str(path)) for name, path in FILES.items()}

# The rooms that each room may use, beside itself and the rooms in its folder. A room is a folder of
# FOLDERS, or else the first folder or file below the package; "face" is blztable/__init__.py.
GROUND = {
    "arrow",
    "cached",
    "caller",
    "closing",
    "errors",
    "interrupts",
    "late",
    "strict_json",
    "tuning",
    "version",
}
ENGINE = {*GROUND, "format", "storage", "columns", "report"}
MAY_IMPORT = {
    "arrow": {"errors"},
    "cached": {"tuning"},
    "caller": set(),
    "closing": set(),
    "errors": set(),
    "interrupts": set(),
    "late": set(),
    "ownership": set(),
    "strict_json": set(),
    "tuning": set(),
    "metalayers": {"errors", "format"},
    "version": set(),
    "report": set(),
    "format": {"cached", "errors", "strict_json"},
    "storage": {"closing", "errors", "interrupts", "late", "ownership", "strict_json", "tuning"},
    "arrays": {*ENGINE, "metalayers", "engine/run", "engine/read"},
    "columns": {"arrow", "errors"},
    "columns/parts": {"arrow", "cached", "errors", "tuning", "columns", "format"},
    "columns/statistics": {"arrow", "errors", "columns", "format"},
    "convert": {"arrow", "errors", "late", "strict_json"},
    # The law between the rooms of the engine.
    "engine": set(),
    "engine/run": ENGINE,
    "engine/version": {*ENGINE, "engine/run"},
    "engine/read": {*ENGINE, "engine/run", "engine/version"},
    "engine/write": {*ENGINE, "metalayers", "engine/run", "engine/version", "engine/read"},
    "engine/check": {*ENGINE, "engine/run", "engine/version", "engine/read"},
    "engine/query": {*ENGINE, "engine/run", "engine/version", "engine/read"},
    "engine/change": {
        *ENGINE,
        "engine/run",
        "engine/version",
        "engine/read",
        "engine/write",
        "engine/check",
        "engine/query",
    },
    "table": {*ENGINE, "convert", "engine", "metalayers"},
    # Nothing below the face imports it.
    "compat": {
        "arrays",
        "arrow",
        "errors",
        "tuning",
        "report",
        "format",
        "storage",
        "convert",
        "engine",
        "closing",
        "columns",
        "late",
        "table",
    },
    "api": {
        "arrow",
        "errors",
        "compat",
        "engine",
        "convert",
        "metalayers",
        "report",
        "storage",
        "table",
    },
    "writing": {"errors", "compat", "engine", "convert", "metalayers", "storage", "table"},
    "workers": {"errors", "engine", "convert", "storage", "table"},
    "copying": {
        "api",
        "compat",
        "errors",
        "engine",
        "report",
        "storage",
        "table",
        "tuning",
        "writing",
    },
    "accessor": {"writing", "storage"},
    "face": {
        "accessor",
        "api",
        "arrays",
        "cached",
        "copying",
        "engine",
        "errors",
        "report",
        "storage",
        "table",
        "version",
        "workers",
        "writing",
    },
    "cli": {"arrow", "errors", "face", "api", "ownership", "tuning", "version"},
    "__main__": {"cli"},
    "integrations": {"errors", "face", "api"},
}
FOLDERS = {room for room in MAY_IMPORT if "/" in room}

DISK = {"fcntl", "glob", "mmap", "os", "pathlib", "shutil", "socket", "tempfile"}
THREADS = {"concurrent", "multiprocessing", "threading"}
MUST_NOT_IMPORT = {
    "format": {"pandas", "pyarrow"} | DISK | THREADS,
    "storage": {"numpy", "pandas", "pyarrow", "blosc"},
    "arrow": {"pandas", "blosc"} | DISK | THREADS,
    "arrays": {"pandas"} | THREADS,
    "columns": {"pandas"} | DISK | THREADS,
    "convert": {"blosc"} | DISK | THREADS,
    "engine": {"pandas"},
    "compat": {"pandas", "pickle"} | DISK | THREADS,
}


def test_imports_run_downward():
    wrong = []
    for name in FILES:
        room = room_of(name)
        assert room in MAY_IMPORT, f"{name}: the room {room!r} has no line in MAY_IMPORT"
        for target, line in imports_of(name):
            if target.split(".")[0] != "blztable":
                forbidden = target.split(".")[0] in MUST_NOT_IMPORT.get(room.split("/")[0], ())
            else:
                allowed = MAY_IMPORT[room] | {room}
                forbidden = allowed.isdisjoint({room_of(target), room_of(target).split("/")[0]})
            if forbidden:
                wrong.append(f"{name}:{line}: {room} must not import {target}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_no_two_files_need_each_other():
    graph = {name: {target for target, _ in imports_of(name)} & FILES.keys() for name in FILES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("a circle of imports: " + " <- ".join(error.args[1]))


def test_only_the_door_of_the_stores_knows_which_stores_there_are():
    """`resolve` makes a store of a path; the face names the one in memory."""
    kinds = ("blztable.storage.local", "blztable.storage.memory", "blztable.storage.one_file")
    wrong = [
        f"{name}:{line}: {target}"
        for name in FILES
        if room_of(name) != "storage" and name != "blztable"
        for target, line in imports_of(name)
        if target.startswith(kinds)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_imports_stand_at_the_top():
    wrong = [
        f"{name}:{node.lineno}: an import inside {function.name}()"
        for name, tree in TREES.items()
        # An optional dependency may be missing.
        if room_of(name) != "integrations" and name != "blztable.table.progress"
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_door_imports_its_files_at_their_first_use():
    """A door is a package with `__getattr__`; it names its files below TYPE_CHECKING."""
    doors = {
        name: [target for target, _ in imports_of(name) if target.startswith(f"{name}.")]
        for name in FILES
        if "blztable.late" in dict(imports_of(name))
    }
    assert "blztable.engine.change" in doors
    assert all(FILES[name].name == "__init__.py" and named for name, named in doors.items())
    code = f"""
import importlib, sys
doors = {doors!r}
rooms = {{name: importlib.import_module(name) for name in doors}}
print(*sorted(set(sum(doors.values(), [])) & sys.modules.keys() - doors.keys()))
for name, named in doors.items():
    for target in named:
        assert getattr(rooms[name], target.rpartition(".")[2]) is sys.modules[target]
    assert not hasattr(rooms[name], "another")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("\n", "")


def test_no_call_stars_a_literal():
    """`f(*(a, b), c)` is `f(a, b, c)`; so are the lists, tuples and sets."""
    wrong = [
        f"{name}:{starred.lineno}"
        for name, tree in TREES.items()
        for starred in ast.walk(tree)
        if isinstance(starred, ast.Starred)
        and isinstance(starred.value, ast.Tuple | ast.List | ast.Set)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_search_for_a_class_name_finds_one_class():
    """Without its underscore too; no alias of a type has the name of a class."""
    homes: dict[str, list[str]] = {}
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.strip("_"), []).append(f"class in {name}")
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Name) and re.search("[a-z]", target.id):
                homes.setdefault(target.id.strip("_"), []).append(f"alias in {name}")
    wrong = {
        name: found
        for name, found in homes.items()
        if len(found) > 1 and any(home.startswith("class") for home in found)
    }
    assert not wrong


@pytest.mark.parametrize("room", ["format", "columns", "convert"])
def test_pure_rooms_open_nothing(room):
    wrong = [
        f"{name}:{node.lineno}: open()"
        for name, tree in TREES.items()
        if room_of(name).split("/")[0] == room
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_no_file_takes_an_exception_of_any_kind_for_a_refusal():
    """MemoryError is an ArrowException too; a signal handler may raise any Exception."""
    broad = ("Exception", "ArrowException")
    wrong = [
        f"{name}:{caught.lineno}: {broad_name(caught)}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        for caught in caught_by(node)
        if broad_name(caught) in broad
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def caught_by(node: ast.AST) -> list[ast.expr]:
    """Return the names in an `except` or `suppress`, and the members of tuples."""
    match node:
        case ast.ExceptHandler(type=ast.expr() as caught):
            return [caught]
        case ast.Call(func=ast.Name("suppress") | ast.Attribute(attr="suppress"), args=args):
            return args
        case ast.Tuple(elts=elements):
            return elements
    return []


def broad_name(node: ast.expr) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_page_names_only_files_and_rooms_that_exist():
    paths = {path.relative_to(ROOT / "blztable").as_posix() for path in FILES.values()}
    paths |= {f"{Path(path).parent.as_posix()}/" for path in paths}
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE))
    wrong = {
        name
        for name in named
        if not (ROOT / name).exists() and not any(f"/{path}".endswith(f"/{name}") for path in paths)
    }
    assert not wrong


def test_every_room_is_drawn_on_the_page():
    rooms = {
        room_of(name).split("/")[0] for name, path in FILES.items() if path.name == "__init__.py"
    }
    assert {room for room in rooms - {"face", "integrations"} if f"{room}/" not in PAGE} == set()


def test_the_register_has_each_file_with_its_nameplate():
    printed = runpy.run_path(str(ROOT / "docs" / "make_map.py"))["register"]()
    for path in FILES.values():
        if path.name != "__init__.py":
            assert any(
                line.split()[:1] == [path.name] and len(line.split()) > 2 for line in printed
            )


@pytest.mark.parametrize("room", ["engine", "storage"])
def test_a_room_makes_its_threads_in_one_file(room):
    threaded = [
        name
        for name in FILES
        if room_of(name).split("/")[0] == room
        and any(target.split(".")[0] == "concurrent" for target, _ in imports_of(name))
    ]
    assert len(threaded) <= 1, f"threads are made in {threaded}"


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_a_nameplate(name):
    docstring = ast.get_docstring(TREES[name])
    assert docstring, f"{name}: no docstring"
    assert docstring.splitlines()[0].strip(), f"{name}: no first line"


def room_of(module: str) -> str:
    """Return the room of a module."""
    _, *below = module.split(".")
    return "/".join(below[:2]) if "/".join(below[:2]) in FOLDERS else [*below, "face"][0]


def imports_of(name: str) -> list[tuple[str, int]]:
    """Return every module that a file imports, and the line; a submodule if the name is one."""
    found = []
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(name, node)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.append((full if full in FILES else base, node.lineno))
    return found


def absolute(name: str, node: ast.ImportFrom) -> str:
    """Return the full name of a relative import."""
    if not node.level:
        return node.module or ""
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    parts = package.split(".")[: len(package.split(".")) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])
