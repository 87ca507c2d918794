"""What users give as `progress`: a callback of their own, or True for a bar of tqdm."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from blztable.engine.run.progress import Callback

ProgressOption = bool | Callable[[int, int | None], Any] | None


@contextmanager
def reporting(progress: ProgressOption, doing: str) -> Iterator[Callback | None]:
    """The callback for a `progress` option; a bar is closed when the work is over."""
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
        raise TypeError(f"progress is True or a callable, not {type(progress).__name__}")


def _bar(doing: str) -> Any:
    try:
        # Late: an extra that may not be there.
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "progress=True needs tqdm: pip install 'blztable[progress]'; or give a callable"
        ) from None
    return tqdm(desc=doing, unit=" rows", unit_scale=True)
