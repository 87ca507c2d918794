"""Arrow errors: the exceptions by which Arrow refuses data, types and values.

Knows nothing of tables. Arrow exceptions for lack of memory and for a cancelled call say nothing
about the data. They are not listed here, so no code of the package takes them for a refusal.
"""

import struct

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
# What Arrow raises for an invalid schema, and the class of an extension type for parameters that it
# refuses. Others, such as MemoryError, say nothing about the data.
UNREADABLE = (
    *REFUSALS,
    OSError,
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
    struct.error,
)


def is_foreign(error: BaseException) -> bool:
    """True for an OSError that does not come from an Arrow reader of bytes in memory.

    These readers raise OSError itself. A subclass, such as TimeoutError, comes from a signal
    handler.
    """
    return isinstance(error, OSError) and type(error) is not OSError
