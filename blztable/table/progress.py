"""Progress: the `progress` option of reads and writes, a callback or True for a bar of tqdm.

Knows nothing of what is read or written.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from blztable.engine.run.pool import Callback

ProgressOption = bool | Callable[[int, int | None], Any] | None


def reporting(progress: ProgressOption, doing: str) -> AbstractContextManager[Callback | None]:
    """Return a context of the callback for a `progress` option; its end closes the bar."""
    if progress is None or progress is False:
        return nullcontext()
    if progress is True:
        return _with_bar(doing)
    if callable(progress):
        return nullcontext(progress)
    raise TypeError(f"progress must be a bool or a callable, not {type(progress).__name__}")


@contextmanager
def _with_bar(doing: str) -> Iterator[Callback]:
    with _bar(doing) as bar:

        def show(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
        bar.refresh()


def _bar(doing: str) -> Any:
    try:
        # Late: an extra that may not be installed.
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "progress=True needs tqdm: pip install 'blztable[progress]', or pass a callable"
        ) from None
    return tqdm(desc=doing, unit=" rows", unit_scale=True)
