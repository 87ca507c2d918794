"""Loss of power, replayed: every state of a disk if the machine stops between two operations.

`RecordingDisk(parent)` carries out its calls in the real directory `parent` (the one *above* the
table) and logs every change and flush. `crash_states(log, stop)` then yields the possible content
of `parent` when power is lost right after the first `stop` operations. `write_state` builds such a
state in another directory, where the test opens the table.

The model is the minimum that POSIX promises, not one file system:

- The content of a file is safe after `sync_file` (or `sync_all`). Unflushed content may be *lost*
  (as at the last flush, so empty for a new file), *torn* (a prefix), *zeroed* (the right length,
  all zeros: ext4 and xfs leave this when only the length reached the disk), *late* (a file that was
  cut and grew again has its old bytes and the new ones behind them) or *kept*.
- A change of names (mkdir, create, link, rename, unlink, rmdir) is safe after a flush of the
  directory it happened in. That flush does not make the directory's own name safe. Each unflushed
  change is lost or kept by itself, in any order; a rename is one change, so it is never half done.
  Content and names do not depend on each other.
- The content of `parent` at the begin of the recording is safe.

There are too many combinations of unflushed items to try all. The corners are tried: everything
kept (the same state as after the process alone was killed), everything lost, content lost, torn or
zeroed under kept names, names lost over kept content. Then each single item differs from everything
kept and from everything lost. Then come some random mixtures with a fixed seed.

`drop` leaves chosen flushes out, in the model and in the real directory, so that a test can show
that the promise needs them. `disk.mark("returned")` records when a call was acknowledged.
"""

import fcntl
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from blztable.storage.disk import Disk
from blztable.storage.opening import Descriptor
from blztable.storage.store import Buffer

FLUSHES = {"sync_file", "sync_directory", "sync_all"}
MIXTURES = 12


@dataclass(frozen=True, slots=True)
class Operation:
    """One call; paths are relative to the directory above the table, which is ""."""

    kind: str
    path: str
    new_path: str = ""
    data: bytes = field(default=b"", repr=False)


@dataclass(slots=True)
class Log:
    """The initial state, the operations since then, and the labels set between them."""

    initial: dict[str, bytes | None]
    operations: list[Operation] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.operations)

    def marked(self, stop: int) -> list[str]:
        """Return the labels set after at most `stop` operations."""
        return [label for position, label in self.marks if position <= stop]


@dataclass(frozen=True, slots=True)
class State:
    """Everything under `parent`: path to content, None for a directory."""

    entries: dict[str, bytes | None]
    # How the state came about, for the message of a failing test.
    story: str = field(compare=False)


class RecordingDisk(Disk):
    """A `Disk` in `parent` that logs each call that succeeded."""

    def __init__(
        self, parent: str | os.PathLike[str], *, drop: Callable[[Operation], bool] | None = None
    ) -> None:
        self.parent = os.path.realpath(parent)
        self.log = Log(read_state(self.parent))
        self._drop = drop
        # Held during a call and its log entry, so that both happen in one order.
        self._recording = threading.RLock()

    def mark(self, label: str) -> None:
        """Record that `label` was true after all operations until now."""
        with self._recording:
            self.log.marks.append((len(self.log), label))

    def mkdir(self, name: str, dir_fd: int) -> None:
        with self._recording:
            super().mkdir(name, dir_fd)
            self._record("mkdir", self._path(dir_fd, name))

    def create(self, name: str, dir_fd: int) -> Descriptor:
        with self._recording:
            file = super().create(name, dir_fd)
            self._record("create", self._path(dir_fd, name))
            return file

    def write(self, fd: int, buffers: Sequence[Buffer]) -> None:
        with self._recording:
            super().write(fd, buffers)
            self._record("write", self._path(fd), data=b"".join(buffers))

    def truncate(self, fd: int, size: int) -> None:
        with self._recording:
            super().truncate(fd, size)
            self._record("truncate", self._path(fd), str(size))

    def sync_file(self, fd: int) -> None:
        self._flush("sync_file", fd, super().sync_file)

    def sync_directory(self, fd: int) -> None:
        self._flush("sync_directory", fd, super().sync_directory)

    def sync_all(self, fd: int) -> bool:
        # The real call would wait for the data of all other processes on this machine.
        self._flush("sync_all", fd, lambda _: None)
        return True

    def link(self, old: str, new: str, dir_fd: int) -> None:
        with self._recording:
            super().link(old, new, dir_fd)
            self._record("link", self._path(dir_fd, old), self._path(dir_fd, new))

    def rename(self, old: str, new: str, dir_fd: int) -> None:
        with self._recording:
            super().rename(old, new, dir_fd)
            self._record("rename", self._path(dir_fd, old), self._path(dir_fd, new))

    def rename_new(self, old: str, new: str, dir_fd: int) -> None:
        with self._recording:
            super().rename_new(old, new, dir_fd)
            self._record("rename", self._path(dir_fd, old), self._path(dir_fd, new))

    def unlink(self, name: str, dir_fd: int) -> None:
        with self._recording:
            super().unlink(name, dir_fd)
            self._record("unlink", self._path(dir_fd, name))

    def rmdir(self, name: str, dir_fd: int) -> None:
        with self._recording:
            super().rmdir(name, dir_fd)
            self._record("rmdir", self._path(dir_fd, name))

    def _flush(self, kind: str, fd: int, call: Callable[[int], None]) -> None:
        operation = Operation(kind, self._path(fd))
        if self._drop is not None and self._drop(operation):
            return
        with self._recording:
            call(fd)
            self.log.operations.append(operation)

    def _record(self, kind: str, path: str, new_path: str = "", data: bytes = b"") -> None:
        self.log.operations.append(Operation(kind, path, new_path, data))

    def _path(self, fd: int, name: str = "") -> str:
        path = os.path.relpath(os.path.join(_path_of(fd), name), self.parent)
        assert path.split("/")[0] != "..", f"{path} is not under {self.parent}"
        return "" if path == "." else path


def crash_states(log: Log, stop: int) -> Iterator[State]:
    """Yield the possible states after power was lost right after the first `stop` operations."""
    model = _replay(log, stop)
    seen: set[frozenset[tuple[str, bytes | None]]] = set()
    for story, choice in _choices(model, seed=stop):
        entries = model.entries(choice)
        key = frozenset(entries.items())
        if key not in seen:
            seen.add(key)
            yield State(entries, f"after {stop} of {len(log)} operations: {story}")


def killed_state(log: Log, stop: int) -> State:
    """Return the state after the process alone was killed: all its operations."""
    model = _replay(log, stop)
    kept = dict.fromkeys(range(len(model.pending())), "kept")
    return State(model.entries(kept), f"killed after {stop} of {len(log)} operations")


def write_state(state: State, directory: str | os.PathLike[str]) -> Path:
    """Build the state in `directory`, which must be empty or missing; return its path."""
    top = Path(directory)
    top.mkdir(exist_ok=True)
    assert not any(top.iterdir()), f"{top} is not empty"
    # Sorted: a directory comes before its content.
    for path, data in sorted(state.entries.items()):
        if data is None:
            (top / path).mkdir()
        else:
            (top / path).write_bytes(data)
    return top


def read_state(directory: str | os.PathLike[str]) -> dict[str, bytes | None]:
    """Return the entries of a real directory."""
    top = Path(directory)
    return {
        path.relative_to(top).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(top.rglob("*"))
    }


# --- the model


@dataclass(eq=False, slots=True)
class _File:
    content: bytes = b""
    flushed: bytes = b""


@dataclass(eq=False, slots=True)
class _Change:
    """One change of names in one directory: names removed, and at most one added."""

    story: str
    removed: tuple[str, ...] = ()
    added: "tuple[str, _File | _Directory] | None" = None

    def apply(self, names: "dict[str, _File | _Directory]") -> None:
        for name in self.removed:
            names.pop(name, None)
        if self.added is not None:
            names[self.added[0]] = self.added[1]


@dataclass(eq=False, slots=True)
class _Directory:
    names: "dict[str, _File | _Directory]" = field(default_factory=dict)
    flushed: "dict[str, _File | _Directory]" = field(default_factory=dict)
    changes: list[_Change] = field(default_factory=list)

    def change(self, change: _Change) -> None:
        change.apply(self.names)
        self.changes.append(change)

    def flush(self) -> None:
        self.flushed = dict(self.names)
        self.changes.clear()


# The outcome of each pending item, by its index: "lost" or "kept"; content also "torn", "zeroed".
_Choice = dict[int, str]


class _Model:
    """Files and directories as seen and as flushed, and the changes between the two."""

    def __init__(self, initial: dict[str, bytes | None]) -> None:
        self.top = _Directory()
        self.directories = [self.top]
        self.files: list[tuple[str, _File]] = []
        for path, data in sorted(initial.items()):
            self.apply(Operation("mkdir" if data is None else "create", path))
            if data is not None:
                self.apply(Operation("write", path, data=data))
        self.flush_all()

    def apply(self, operation: Operation) -> None:
        story = f"{operation.kind} {operation.path} {operation.new_path}".rstrip()
        parent, name = self._find(os.path.dirname(operation.path)), operation.path.split("/")[-1]
        match operation.kind:
            case "write":
                self._file(operation.path).content += operation.data
            case "truncate":
                file = self._file(operation.path)
                file.content = file.content[: int(operation.new_path)]
            case "sync_file":
                file = self._file(operation.path)
                file.flushed = file.content
            case "sync_directory":
                self._find(operation.path).flush()
            case "sync_all":
                self.flush_all()
            case "mkdir":
                directory = _Directory()
                self.directories.append(directory)
                parent.change(_Change(story, added=(name, directory)))
            case "create":
                file = _File()
                self.files.append((operation.path, file))
                parent.change(_Change(story, added=(name, file)))
            case "link" | "rename":
                assert os.path.dirname(operation.new_path) == os.path.dirname(operation.path)
                removed = (name,) if operation.kind == "rename" else ()
                new = (operation.new_path.split("/")[-1], parent.names[name])
                parent.change(_Change(story, removed, new))
            case "unlink" | "rmdir":
                parent.change(_Change(story, (name,)))
            case unknown:
                raise AssertionError(unknown)

    def flush_all(self) -> None:
        for directory in self.directories:
            directory.flush()
        for _, file in self.files:
            file.flushed = file.content

    def pending(self) -> list[_Change | tuple[str, _File]]:
        """Return every unflushed item: changes of names first, then content."""
        changes = [change for directory in self.directories for change in directory.changes]
        content = [(path, file) for path, file in self.files if file.content != file.flushed]
        return [*changes, *content]

    def entries(self, choice: _Choice) -> dict[str, bytes | None]:
        """Return the entries if each pending item had this outcome."""
        fate: dict[int, str] = {}
        for number, item in enumerate(self.pending()):
            fate[id(item[1] if isinstance(item, tuple) else item)] = choice[number]
        entries: dict[str, bytes | None] = {}
        self._walk(self.top, "", fate, entries)
        return entries

    def _walk(
        self,
        directory: _Directory,
        above: str,
        fate: dict[int, str],
        entries: dict[str, bytes | None],
    ) -> None:
        names = dict(directory.flushed)
        for change in directory.changes:
            if fate[id(change)] == "kept":
                change.apply(names)
        for name, what in names.items():
            if isinstance(what, _File):
                entries[above + name] = _content(what, fate.get(id(what), "kept"))
            else:
                entries[above + name] = None
                self._walk(what, above + name + "/", fate, entries)

    def _find(self, path: str) -> _Directory:
        directory = self.top
        for name in path.split("/") if path else ():
            below = directory.names[name]
            assert isinstance(below, _Directory), path
            directory = below
        return directory

    def _file(self, path: str) -> _File:
        file = self._find(os.path.dirname(path)).names[path.split("/")[-1]]
        assert isinstance(file, _File), path
        return file


def _replay(log: Log, stop: int) -> _Model:
    assert 0 <= stop <= len(log)
    model = _Model(log.initial)
    for operation in log.operations[:stop]:
        model.apply(operation)
    return model


def _choices(model: _Model, *, seed: int) -> Iterator[tuple[str, _Choice]]:
    pending = model.pending()
    names = [n for n, item in enumerate(pending) if isinstance(item, _Change)]
    content = [n for n, item in enumerate(pending) if not isinstance(item, _Change)]
    stories = [item.story if isinstance(item, _Change) else item[0] for item in pending]
    kept = dict.fromkeys(range(len(pending)), "kept")
    lost = dict.fromkeys(range(len(pending)), "lost")

    yield "all kept", kept
    yield "all lost", lost
    for what in ("lost", "torn", "zeroed"):
        yield f"names kept, content {what}", kept | dict.fromkeys(content, what)
    yield "names lost, content kept", kept | dict.fromkeys(names, "lost")

    for number, story in enumerate(stories):
        for what in ("lost",) if number in names else ("lost", "torn", "zeroed", "late"):
            yield f"all kept but {what}: {story}", kept | {number: what}
        for what in ("kept",) if number in names else ("kept", "torn", "zeroed"):
            yield f"all lost but {what}: {story}", lost | {number: what}

    draw = random.Random(seed)
    for mixture in range(MIXTURES if pending else 0):
        choice = {n: draw.choice(("lost", "kept")) for n in names}
        choice |= {n: draw.choice(("lost", "torn", "zeroed", "kept")) for n in content}
        yield f"mixture {mixture}", choice


def _content(file: _File, fate: str) -> bytes:
    match fate:
        case "lost":
            return file.flushed
        case "torn":
            new = len(file.content) - len(file.flushed)
            return file.content[: len(file.flushed) + new // 2]
        case "late":
            # Of a file that was cut and grew again: what grew, behind the old bytes.
            return file.flushed + file.content[len(file.flushed) :]
        case "zeroed":
            return file.flushed.ljust(len(file.content), b"\0")
        case _:
            return file.content


def _path_of(fd: int) -> str:
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{fd}")
