"""docs/cli.md has what its program prints."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from blztable.cli import main
from blztable.cli.arguments import UsageError, parser
from blztable.storage import resolve

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")
SPEC = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
make_cli = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_cli)


def test_the_page_has_the_commands_that_the_program_prints():
    (found,) = re.findall("<!-- commands -->\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    assert found == make_cli.commands()


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{path.relative_to(DOCS)}" for path in DOCS.rglob("*.md"))]
)
def test_each_command_of_a_page_can_be_parsed(page):
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    blocks = "".join(re.findall("```sh\n(.*?)```", text, re.DOTALL))
    for line in blocks.splitlines():
        for command in re.split(r" \| |; ", line):
            if command.startswith("blz ") and not command.endswith(" --help"):
                try:
                    parser().parse_args(shell_words(command)[1:])
                except UsageError as error:
                    pytest.fail(f"{page}: {command}: {error}")


@pytest.mark.parametrize("layout", resolve.LAYOUTS)
@pytest.mark.parametrize("page", ["csv.md", "parquet-and-sql.md"])
def test_the_commands_of_a_how_to_run_between_its_blocks_of_python(
    page, layout, tmp_path, tuned, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    tuned(layout=layout)
    namespace = {"__name__": page}
    text = (DOCS / "how-to" / page).read_text(encoding="utf-8")
    for language, block in re.findall("```(sh|python)\n(.*?)```", text, re.DOTALL):
        if language == "python":
            exec(compile(block, page, "exec"), namespace)
            continue
        for command in block.splitlines():
            if " | " not in command:
                code = main(shell_words(command)[1:])
                assert code == ("# fails" in command), (command, capsys.readouterr().err)


def shell_words(command: str) -> list[str]:
    """Return the words of a command as the shell would pass them on, without what follows `>`."""
    words = shlex.split(command, comments=True)
    return words[: words.index(">")] if ">" in words else words


def test_the_version_is_said_without_the_rooms_of_the_commands():
    code = (
        "import sys, contextlib\n"
        "from blztable.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['--version'])\n"
        "print(sorted(name for name in sys.modules if name.startswith(('blztable.engine', 'blztable"
        ".table', 'blztable.cli.s', 'duckdb', 'tqdm', 'shtab'))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.splitlines()[1] == "[]"
