"""Progress: the `progress` option of reads and writes, a callback or True for a bar of tqdm.

Knows nothing of what is read or written.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from blztable.engine.run.pool import Callback

ProgressOption = bool | Callable[[int, int | None], Any] | None


@contextmanager
def reporting(progress: ProgressOption, doing: str) -> Iterator[Callback | None]:
    """Yield the callback for a `progress` option; the end of the `with` closes the bar."""
    if progress is None or progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif progress is True:
        with _bar(doing) as bar:

            def show(done: int, total: int | None) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield show
            bar.refresh()
    else:
        raise TypeError(f"progress must be a bool or a callable, not {type(progress).__name__}")


def _bar(doing: str) -> Any:
    try:
        # Late: an extra that may not be installed.
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "progress=True needs tqdm: pip install 'blztable[progress]', or pass a callable"
        ) from None
    return tqdm(desc=doing, unit=" rows", unit_scale=True)
