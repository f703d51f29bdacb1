"""The header of a safetensors file, and small JSON files, read with a bound. The weights are never read.

A safetensors file begins with eight bytes, the header's length, then JSON that gives every tensor's type, shape and place. So
the ``safetensors`` package is not needed (and is not among audition's locked packages): opening a file with it maps the whole
file, it accepts any length up to its own bound, and its errors do not say what is wrong with which tensor. This reader takes
two reads and one ``fstat`` per file, whatever the file's size; it refuses pipes and devices instead of hanging on them.

What must not live here: meaning of names, sizes of engines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from audition.checkpoint.problem import CheckpointError
from audition.checkpoint.tensors import DTYPE_BITS, Tensor
from audition.plain_file import NotPlain, opened

# Bytes. The format's own bound is 100 MB (safetensors/src/tensor.rs, MAX_HEADER_SIZE), which as Python objects takes gigabytes;
# 32 MB hold some 250,000 tensors, several times what a published file has.
HEADER_LIMIT = 32_000_000
HEADERS_LIMIT = 128_000_000  # bytes of all headers of a checkpoint; a million tensors. Own choice
TENSORS_LIMIT = 500_000  # of one checkpoint; the largest published ones have some 200,000
DIMENSIONS_LIMIT = 16  # of a tensor; published ones have up to 5
JSON_LIMIT = 64_000_000  # bytes; the largest published index files have some 40 MB
# How often a sign may stand in a header or an index: a tensor needs one object, two lists and ten quotes. A small file of nothing
# but empty objects takes a hundred times its size as Python objects.
_SIGNS = {b"{": TENSORS_LIMIT, b"[": 2 * TENSORS_LIMIT, b'"': 12 * TENSORS_LIMIT}
_PREFIX = 8
_COUNT_LIMIT = 2**63
_DOWNLOAD_AGAIN = "Download the file again, or point to a complete copy."


class Budget:
    """What may be read of one checkpoint: bytes of all headers, their tensors, and each file once, whatever its names."""

    def __init__(self) -> None:
        self._bytes = 0
        self._tensors = 0
        self._seen: set[tuple[int, int]] = set()

    def take(self, path: Path, status: os.stat_result, length: int) -> bool:
        """Count a header of ``length`` bytes; False: it was read under another name. Raises CheckpointError beyond the bound."""
        inode = (status.st_dev, status.st_ino)
        if inode in self._seen:
            return False
        self._seen.add(inode)
        self._bytes += length
        if self._bytes > HEADERS_LIMIT:
            raise CheckpointError(f"the headers have more than {HEADERS_LIMIT:,} bytes in all", tried=f"reading {path}")
        return True

    def count(self, path: Path, tensors: int) -> None:
        """Count tensors. Raises CheckpointError when there are too many."""
        self._tensors += tensors
        if self._tensors > TENSORS_LIMIT:
            raise CheckpointError(f"the checkpoint has more than {TENSORS_LIMIT:,} tensors", tried=f"reading {path}")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError when it cannot be read, is too large, or holds no object."""
    with _opened(path) as (handle, status):
        size = status.st_size
        if size > JSON_LIMIT:
            raise CheckpointError(f"{path.name} has {size:,} bytes; no {path.name} is that large", tried=f"reading {path}")
        raw = _read(handle, size, path)
    return _object(raw, path, path.name)


def read_header(path: Path, budget: Budget | None = None) -> tuple[Tensor, ...]:
    """All tensors of a safetensors file, in the order of the file. ``budget``: what all headers of a
    checkpoint share; a file that it has seen under another name gives no tensors.

    Raises CheckpointError, one sentence, when the file cannot be opened, is cut, states a header longer than itself or than the
    format allows, or when its header is no JSON or contradicts itself.
    """
    with _opened(path) as (handle, status):
        size = status.st_size
        if size < _PREFIX:
            raise _broken(path, f"the file has {size} bytes, too few for a safetensors header")
        length = int.from_bytes(_read(handle, _PREFIX, path), "little")
        if length > HEADER_LIMIT:
            raise _broken(path, f"its first bytes state a header of {length:,} bytes, which no safetensors file has")
        if budget is not None and not budget.take(path, status, length):
            return ()
        if _PREFIX + length > size:
            raise _broken(path, f"its header is cut: {length:,} bytes stated, {size - _PREFIX:,} there")
        header = _object(_read(handle, length, path), path, "the header")
    header.pop("__metadata__", None)
    if budget is not None:
        budget.count(path, len(header))
    file = path.name
    tensors = tuple(_tensor(name, entry, path, file) for name, entry in header.items())
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if _PREFIX + length + end > size:
        raise _broken(path, f"its weights are cut: {_PREFIX + length + end:,} bytes by its header, {size:,} there")
    return tensors


def _tensor(name: str, entry: Any, path: Path, file: str) -> Tensor:
    """One entry of a header, checked: known type, sane shape, and as many bytes as type and shape need."""
    if not isinstance(entry, dict):
        raise _broken(path, f"its header describes {name!r} by {type(entry).__name__}")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _broken(path, f"its header gives {name!r} the unknown type {dtype!r}")
    if not isinstance(shape, list) or len(shape) > DIMENSIONS_LIMIT or not all(map(_is_count, shape)):
        raise _broken(path, f"its header gives {name!r} the shape {str(shape)[:80]}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not _is_count(offsets[0]) or not _is_count(offsets[1]):
        raise _broken(path, f"its header gives {name!r} the place {str(offsets)[:80]}")
    size = offsets[1] - offsets[0]
    if size != (_elements(shape) * DTYPE_BITS[dtype] + 7) // 8:
        raise _broken(path, f"its header gives {name!r} {size:,} bytes, but {dtype} {str(shape)[:80]} needs another number")
    return Tensor(name, dtype, tuple(shape), size, file)


def _elements(shape: list[int]) -> int:
    """The product of a shape; once it is beyond 2^63 it is not followed further, since no file has that many."""
    product = 1
    for side in shape:
        product *= side
        if product >= _COUNT_LIMIT:
            return 0 if 0 in shape else _COUNT_LIMIT
    return product


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _COUNT_LIMIT  # a truth value is no count


def _object(raw: bytes, path: Path, what: str) -> dict[str, Any]:
    for sign, limit in _SIGNS.items():
        if raw.count(sign) > limit:
            raise _broken(path, f"{what} has more than {limit:,} {sign.decode()!r}, far more than one can need")
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _broken(path, f"{what} is not text in UTF-8 (byte {error.start:,})") from error
    except RecursionError as error:
        raise _broken(path, f"{what} is nested too deeply to be what it should be") from error
    except ValueError as error:  # JSONDecodeError is one; the other is a number of thousands of digits
        raise _broken(path, f"{what} is not JSON: {str(error)[:120]}") from error
    if not isinstance(value, dict):
        raise _broken(path, f"{what} holds {type(value).__name__}, not an object")
    return value


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """A descriptor and the status of a plain file. Without blocking, so that a pipe under this name cannot hang the check."""
    try:
        with opened(path) as (handle, status):
            yield handle, status
    except FileNotFoundError as error:
        raise _absent(path) from error
    except NotPlain as error:
        raise CheckpointError(f"{path.name} is not a plain file", tried=f"opening {path}") from error
    except OSError as error:
        raise CheckpointError(
            f"{path.name} cannot be read: {error.strerror}", tried=f"opening {path}", next_step="Check the file's owner and mode."
        ) from error


def _absent(path: Path) -> CheckpointError:
    """The error for a file that is not there; a link to nowhere is a blob that a cache lacks."""
    if path.is_symlink():
        target = path.parent / os.readlink(path)
        return CheckpointError(
            f"{path.name} is a link to {Path(os.path.normpath(target))}, which is not there",
            tried=f"opening {path}",
            seen="The download was not finished, or the blob was deleted, or only part of the cache is mounted here.",
            next_step=_DOWNLOAD_AGAIN,
        )
    return CheckpointError(f"{path.name} is not there", tried=f"opening {path}", next_step=_DOWNLOAD_AGAIN)


def _read(handle: int, count: int, path: Path) -> bytes:
    parts: list[bytes] = []
    wanted = count
    while wanted > 0:
        try:
            part = os.read(handle, wanted)
        except OSError as error:
            raise CheckpointError(f"{path.name} cannot be read: {error.strerror}", tried=f"reading {path}") from error
        if not part:
            raise _broken(path, f"it ended after {count - wanted:,} of {count:,} bytes while it was read")
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _broken(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path.name} is broken: {why}", tried=f"reading {path}", next_step=_DOWNLOAD_AGAIN)
