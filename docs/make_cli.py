"""Print the commands of cli.md: usage, arguments and options of each, from the parser itself.

If a command changes, run this program and put what it prints between the markers; a test compares
them. The layout is ours, because that of argparse differs between versions of Python.
"""

import argparse
from collections.abc import Iterator

from blztable.cli.arguments import parser


def main() -> None:
    """Print the commands."""
    print(commands())


def commands() -> str:
    """Return a section for each command."""
    made = parser()
    (below,) = (one for one in made._actions if isinstance(one, argparse._SubParsersAction))
    return "\n\n".join("\n".join(_section(name, one)) for name, one in below.choices.items())


def _section(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    shown = [action for action in command._actions if action.dest != "help"]
    yield f"### blz {name}"
    yield ""
    yield command.description or ""
    yield ""
    yield "```text"
    yield f"blz {name} {' '.join(map(_usage, shown))}"
    yield "```"
    if shown:
        yield ""
        yield "| | |"
        yield "| --- | --- |"
        yield from (f"| `{_title(action)}` | {action.help} |" for action in shown)


def _usage(action: argparse.Action) -> str:
    title = _title(action, shortest=True)
    if action.nargs == "+":
        title = f"{title}..."
    is_optional = not action.required if action.option_strings else action.nargs == "?"
    if isinstance(action, argparse._AppendAction):
        title = f"{title} ..."
    return f"[{title}]" if is_optional else title


def _title(action: argparse.Action, shortest: bool = False) -> str:
    value = "" if action.nargs == 0 else str(action.metavar)
    # `--version-number` is an older name of `--at`.
    names = [name for name in action.option_strings if name != "--version-number"]
    if shortest:
        names = names[-1:]
    return " ".join(filter(None, (", ".join(names), value)))


if __name__ == "__main__":
    main()
