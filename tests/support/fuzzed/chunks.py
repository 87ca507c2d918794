"""Damaged chunks, decoded in buffers that end right before forbidden memory."""

import ctypes
import functools
import mmap
import random
from pathlib import Path

import blosc
import numpy as np

import blztable as blz
from blztable.format.chunk import decompress_into
from support.fuzzed.changes import bytes_in

Random = random.Random


def seeds(only: str = "") -> dict[str, None]:
    """Return nothing: a case makes its own chunks."""
    return {"": None}


def mutated(random: Random, seeds: dict[str, None]) -> tuple[None, list[str]]:
    """Return nothing: reading makes the chunks."""
    return None, ["chunks"]


def save(subject: None, path: Path) -> None:
    """Save nothing."""


def read_all(random: Random, subject: None) -> str:
    """Decode damaged chunks in buffers that end right before forbidden memory."""
    size = random.choice([1, 15, 16, 17, 100, 1000, 4096, 70_000])
    pattern = bytes(random.randrange(256) for _ in range(random.choice([1, 3, 16, size])))
    raw = bytearray((pattern * (size // len(pattern) + 1))[:size])
    for _ in range(random.choice([0, 1, 20])):
        bytes_in(random, raw)
    typesize = random.choice([1, 2, 4, 8, 16, 3, 255])
    codec = random.choice(["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
    shuffle, clevel = random.choice([0, 1, 2]), random.choice([1, 5, 9])
    chunk = blosc.compress(bytes(raw), typesize, clevel, shuffle, codec)
    source, target = fenced(2 * size + (1 << 12)), fenced(size)
    before = target[: len(target) - size]
    before[:] = 0xA5
    outcomes = set()
    for _ in range(50):
        damaged = bytearray(chunk)
        for _ in range(random.choice([1, 1, 2, 5])):
            bytes_in(random, damaged, may_resize=True)
        if random.random() < 0.9:
            # Past the checks of the header, to the codecs; sometimes with other block sizes.
            damaged = damaged.ljust(17, b"\0")
            block = chunk[8:12]
            if random.random() < 0.2:
                block = random.randrange(1, size + 1).to_bytes(4, "little")
            flags = chunk[2] if random.random() < 0.7 else damaged[2] & ~8
            sizes = chunk[3:8] + block + len(damaged).to_bytes(4, "little")
            damaged[:16] = chunk[:2] + bytes([flags]) + sizes
        chunk_there = source[len(source) - len(damaged) :]
        chunk_there[:] = np.frombuffer(damaged, np.uint8)
        try:
            ranges = None
            if random.random() < 0.5:
                places = np.array([sorted(random.randrange(size + 1) for _ in range(2))])
                ranges = (*places.T, 0)
            address = target.ctypes.data + len(before)
            decompress_into(chunk_there.data, typesize, address, size, ranges=ranges)
        except blz.BlzError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
        assert (before == 0xA5).all(), "written before the buffer"
    return outcomes.pop() if len(outcomes) == 1 else "both"


@functools.cache
def fenced(nbytes: int) -> np.ndarray:
    """Return whole pages of memory; an access behind them ends the process."""
    page = mmap.PAGESIZE
    size = -(-nbytes // page) * page
    memory = np.frombuffer(mmap.mmap(-1, size + page), np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(memory.ctypes.data + size, page, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory[:size]
