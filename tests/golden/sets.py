"""The golden sets: one archive each, unpacked where a test reads it.

    cd tests && python -m golden.sets DIRECTORY

writes DIRECTORY.zip: the files that a script of `make/` has written to DIRECTORY.
"""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def unpacked(name: str) -> Path:
    """Return a folder with the files of a set; it is gone when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"golden-{name}-"))
    atexit.register(_remove, folder, os.getpid())
    with zipfile.ZipFile(HERE / f"{name}.zip") as archive:
        archive.extractall(folder)
    return folder


def _remove(folder: Path, owner: int) -> None:
    # A child made by fork has the folder of its parent.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def pack(folder: Path) -> Path:
    """Write all files of a folder to an archive beside it; the same files make the same bytes."""
    path = folder.with_name(f"{folder.name}.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(folder).as_posix() + "/" * file.is_dir()
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, b"" if file.is_dir() else file.read_bytes())
    return path


if __name__ == "__main__":
    print(pack(Path(sys.argv[1])))
