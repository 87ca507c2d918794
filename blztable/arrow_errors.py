"""Arrow errors: what Arrow raises about the data, types and values that it was given.

Running out of memory and a cancelled call are Arrow exceptions too. They say nothing about the
data, so they are not here, and no code of the package takes them for a refusal.
"""

import pyarrow as pa

REFUSALS = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowTypeError,
    pa.ArrowKeyError,
    pa.ArrowIndexError,
    pa.lib.ArrowCapacityError,
    pa.lib.ArrowSerializationError,
)


def is_foreign(error: BaseException) -> bool:
    """True for an OSError that Arrow's readers of bytes in memory do not raise.

    They raise OSError itself. A subclass, such as TimeoutError, comes from a signal handler.
    """
    return isinstance(error, OSError) and type(error) is not OSError
