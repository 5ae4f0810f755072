"""Pickles of arrays, numbers, texts, dicts and lists, and of nothing else: a hostile file runs no code."""

from __future__ import annotations

import io
import pickle
from typing import Any, Callable

import numpy as np

from fedmatch_tf.base.errors import MOST_SHOWN, DataError, shortened

# Kinds of NumPy types that hold plain values: bool, int, unsigned, float, bytes, text.
_PLAIN_KINDS = "biufSU"


def loads(payload: bytes, encoding: str = "ASCII") -> Any:
    """The object that a pickle describes.

    NumPy's own constructors are never called: stand-ins collect what the file says about an array, and the array is
    made from that after its type, shape and number of bytes have been checked.

    Args:
        encoding: how texts of Python 2 pickles are read; `bytes` keeps them as they are.
    """
    if not payload.endswith(b"."):
        raise DataError("the file is truncated: its pickle has no end")
    try:
        return _finished(_Unpickler(_Counted(payload), encoding=encoding).load(), {})
    except DataError:
        raise
    except Exception as error:  # a hostile pickle can raise anything
        raise DataError(f"not a readable pickle ({type(error).__name__}: {error})") from error


class _Counted(io.BytesIO):
    """A pickle that has no more to say than a hundred thousand images need: a byte can stand for an object."""

    _left = 2**22  # pieces

    def read(self, size: int | None = -1) -> bytes:
        self._count()
        return super().read(size)

    def readline(self, size: int | None = -1) -> bytes:
        self._count()
        return super().readline(size)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise DataError("refused: the file has millions of values beside its arrays")


# Ways to make objects or reserve memory that no array, number, text, dict or list needs.
_REFUSED = (
    *(pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4),
    *(pickle.PERSID, pickle.BINPERSID, pickle.BYTEARRAY8, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET),
)


# The interpreter's Python version, not the C one: it reserves memory only for bytes that the file really has.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        allowed = _ALLOWED.get((module, name))
        if allowed is None:
            raise DataError(
                f"refused: the file asks for {shortened(f'{module}.{name}', MOST_SHOWN)}; only arrays and plain values "
                f"are read"
            )
        return allowed


def _refuse(unpickler: Any) -> None:
    raise DataError("refused: the file makes objects in a way that arrays and plain values don't need")


def _load_build(unpickler: Any) -> None:
    state = unpickler.stack.pop()
    if not isinstance(unpickler.stack[-1], (_Type, _Array)):
        raise DataError("refused: the file changes something other than an array, such as a function")
    unpickler.stack[-1].set_state(state)


def _load_setitem(unpickler: Any) -> None:
    value, key = unpickler.stack.pop(), unpickler.stack.pop()
    _set_items(unpickler, [key, value])


def _load_setitems(unpickler: Any) -> None:
    _set_items(unpickler, unpickler.pop_mark())


def _load_dict(unpickler: Any) -> None:
    items = unpickler.pop_mark()
    unpickler.append({})
    _set_items(unpickler, items)


def _set_items(unpickler: Any, items: list[Any]) -> None:
    """Keys are plain, so that hashing them is quick: a tuple of tuples of tuples could take for ever."""
    target = unpickler.stack[-1]
    for key, value in zip(items[::2], items[1::2]):
        if type(target) is not dict or not isinstance(key, (str, bytes, int)):
            raise DataError("refused: the file fills something other than a dict with plain keys")
        target[key] = value


_Unpickler.dispatch = {
    **pickle._Unpickler.dispatch,
    **{code[0]: _refuse for code in _REFUSED},
    pickle.BUILD[0]: _load_build,
    pickle.SETITEM[0]: _load_setitem,
    pickle.SETITEMS[0]: _load_setitems,
    pickle.DICT[0]: _load_dict,
}


class _Type:
    """Stands for a NumPy dtype."""

    def __init__(self, text: Any) -> None:
        self.dtype = np.dtype(_text(text))

    def set_state(self, state: Any) -> None:
        order = _text(state[1])
        if order not in ("<", ">", "|", "="):
            raise DataError("refused: a type of unknown byte order")
        self.dtype = self.dtype.newbyteorder(order)  # type: ignore[arg-type]


def _text(value: Any) -> str:
    """A short text, which a pickle of Python 2 has as bytes."""
    if not isinstance(value, (str, bytes)) or len(value) > 100:
        raise DataError("refused: expected a short text in the description of an array")
    return value.decode("ascii") if isinstance(value, bytes) else value


class _Array:
    """Stands for a NumPy array."""

    shape: tuple[int, ...]

    def set_state(self, state: Any) -> None:
        _, shape, kind, self.fortran, self.raw = state
        if not isinstance(shape, tuple) or len(shape) > 32 or not all(type(n) is int and 0 <= n < 2**40 for n in shape):
            raise DataError("refused: an array without a shape of whole numbers")
        if not isinstance(kind, _Type):
            raise DataError("refused: an array without a type")
        self.shape, self.type = shape, kind

    def finished(self, seen: dict[int, Any]) -> np.ndarray:
        dtype = self.type.dtype
        if dtype.kind == "O":
            if not isinstance(self.raw, list):
                raise DataError("an array of objects has no list of them")
            result = np.empty(len(self.raw), object)
            result[:] = [_finished(item, seen) for item in self.raw]
            return result.reshape(self.shape)
        _check_plain(dtype)
        raw = _raw(self.raw)
        expected = int(np.prod(self.shape, dtype=object)) * dtype.itemsize
        if len(raw) != expected:
            raise DataError(
                f"an array of shape {list(self.shape)} and type {dtype} needs {expected} bytes, has {len(raw)}"
            )
        return np.frombuffer(raw, dtype).reshape(self.shape, order="F" if self.fortran else "C")


def _make_scalar(kind: Any, raw: Any = None) -> Any:
    if not isinstance(kind, _Type):
        raise DataError("refused: a number without a type")
    _check_plain(kind.dtype)
    return np.frombuffer(_raw(raw), kind.dtype, count=1)[0]


def _raw(value: Any) -> bytes:
    """The bytes of an array, which some pickles have as text."""
    if isinstance(value, str):
        return value.encode("latin1")
    if not isinstance(value, bytes):
        raise DataError("refused: an array without bytes")
    return value


def _encode(text: str, encoding: str) -> bytes:
    if not isinstance(text, str) or not isinstance(encoding, str) or encoding != "latin1":
        raise DataError("refused: an unknown encoding in a pickle")
    return text.encode("latin1")


def _array_class(*_: Any) -> None:
    raise DataError("refused: the file builds an array in an unknown way")


def _check_plain(dtype: np.dtype) -> None:
    if dtype.kind not in _PLAIN_KINDS or dtype.itemsize == 0:
        raise DataError(f"expected arrays of numbers or texts, received type {dtype}")


def _finished(value: Any, seen: dict[int, Any]) -> Any:
    """The value with stand-ins replaced by what they stand for; each object once, however often it is referred to."""
    if id(value) not in seen:
        seen[id(value)] = _replaced(value, seen)
    return seen[id(value)]


def _replaced(value: Any, seen: dict[int, Any]) -> Any:
    if isinstance(value, _Array):
        return value.finished(seen)
    if isinstance(value, _Type):
        return value.dtype
    if isinstance(value, dict):
        return {key: _finished(item, seen) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_finished(item, seen) for item in value)
    return value


# What stands for NumPy's constructors, by their names in NumPy 1 and 2.
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _array_class,
    ("numpy", "dtype"): lambda text, *_: _Type(text),
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): lambda *_: _Array() for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _make_scalar for core in ("core", "_core")},
}
