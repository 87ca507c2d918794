"""Terminal: print results as lines or as JSON, safe for any terminal, and show a bar.

Knows nothing of tables.
"""

import importlib
import importlib.util
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Json = Any


def print_result(options: Namespace, result: Json, lines: Iterable[str]) -> None:
    """Print a result as one JSON document if the option says so, else as lines."""
    check_stdout()
    for line in [json_text(result)] if options.json else lines:
        print(encodable(line if options.json else printable(line), sys.stdout.encoding))


def check_stdout() -> None:
    """Raise OSError if standard output is closed."""
    if sys.stdout is None:
        raise OSError("standard output is closed")


def json_text(value: Json) -> str:
    """Return one line of JSON, in ASCII without control characters, safe for any terminal."""
    return json.dumps(value, allow_nan=False)


def printable(text: str) -> str:
    """Return the text in one line, with escapes for control characters."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def encodable(text: str, encoding: str | None) -> str:
    """Return the text with an escape for each character that the encoding lacks."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


@contextmanager
def bar(doing: str, total: int | None = None) -> Iterator[Callable[[int], object]]:
    """Yield a function that adds to a bar of rows, if people look at it and tqdm is installed."""
    if not sys.stderr.isatty() or importlib.util.find_spec("tqdm") is None:
        yield lambda rows: None
        return
    tqdm = importlib.import_module("tqdm.auto").tqdm
    with tqdm(desc=doing, total=total, unit=" rows", unit_scale=True) as progress_bar:
        yield progress_bar.update
