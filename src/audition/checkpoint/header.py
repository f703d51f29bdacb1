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
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from audition.checkpoint.problem import CheckpointError
from audition.checkpoint.tensors import DTYPE_BITS, Tensor

HEADER_LIMIT = 100_000_000  # bytes; the format's own bound (safetensors/src/tensor.rs, MAX_HEADER_SIZE)
JSON_LIMIT = 100_000_000  # bytes; the largest published index files have some 40 MB
_PREFIX = 8
_COUNT_LIMIT = 2**63
_DOWNLOAD_AGAIN = "Download the file again, or point to a complete copy."


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError when it cannot be read, is too large, or holds no object."""
    with _opened(path) as (handle, size):
        if size > JSON_LIMIT:
            raise CheckpointError(f"{path.name} has {size:,} bytes; no {path.name} is that large", tried=f"reading {path}")
        raw = _read(handle, size, path)
    return _object(raw, path, path.name)


def read_header(path: Path) -> tuple[Tensor, ...]:
    """All tensors of a safetensors file, in the order of the file.

    Raises CheckpointError, one sentence, when the file cannot be opened, is cut, states a header longer than itself or than the
    format allows, or when its header is no JSON or contradicts itself.
    """
    with _opened(path) as (handle, size):
        if size < _PREFIX:
            raise _broken(path, f"the file has {size} bytes, too few for a safetensors header")
        length = int.from_bytes(_read(handle, _PREFIX, path), "little")
        if length > HEADER_LIMIT:
            raise _broken(path, f"its first bytes state a header of {length:,} bytes, which no safetensors file has")
        if _PREFIX + length > size:
            raise _broken(path, f"its header is cut: {length:,} bytes stated, {size - _PREFIX:,} there")
        header = _object(_read(handle, length, path), path, "the header")
    header.pop("__metadata__", None)
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
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        raise _broken(path, f"its header gives {name!r} the shape {str(shape)[:80]}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not _is_count(offsets[0]) or not _is_count(offsets[1]):
        raise _broken(path, f"its header gives {name!r} the place {str(offsets)[:80]}")
    size = offsets[1] - offsets[0]
    if size != (prod(shape) * DTYPE_BITS[dtype] + 7) // 8:
        raise _broken(path, f"its header gives {name!r} {size:,} bytes, but {dtype} {str(shape)[:80]} needs another number")
    return Tensor(name, dtype, tuple(shape), size, file)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _COUNT_LIMIT  # a truth value is no count


def _object(raw: bytes, path: Path, what: str) -> dict[str, Any]:
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
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """A descriptor and the size of a plain file. Without blocking, so that a pipe under this name cannot hang the check."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _absent(path) from error
    except OSError as error:
        raise CheckpointError(
            f"{path.name} cannot be read: {error.strerror}", tried=f"opening {path}", next_step="Check the file's owner and mode."
        ) from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path.name} is not a plain file", tried=f"opening {path}")
        yield handle, status.st_size
    finally:
        os.close(handle)


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
