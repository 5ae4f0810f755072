"""JSON as typed records: a type says all that a value may be, and an error what it was instead."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from fedmatch_tf.base.errors import DataError, short


class Within(NamedTuple):
    """A number's bounds, both included."""

    low: float
    high: float
    what: str  # how messages call such a number


LARGEST = 1e40  # beyond every float32; its square is still a number
Number = Annotated[float, Within(-LARGEST, LARGEST, "a finite number")]
Positive = Annotated[float, Within(0, LARGEST, "a number of 0 or greater")]
Share = Annotated[float, Within(0, 1, "a share from 0 to 1")]
Whole = Annotated[int, Within(0, 2**53, "a whole number of 0 or greater")]

_PLAIN = {bool: "true or false", str: "a text", int: "a whole number", float: "a finite number"}


class Field(NamedTuple):
    """A field of a record."""

    name: str
    kind: Any
    base: Any  # the kind without notes, and without None
    notes: tuple[Any, ...]
    optional: bool


@functools.cache
def fields(record: type) -> tuple[Field, ...]:
    """The fields of a NamedTuple or dataclass."""
    return tuple(_field(name, kind) for name, kind in get_type_hints(record, include_extras=True).items())


def _field(name: str, kind: Any) -> Field:
    base, notes, optional = kind, [], False
    while get_origin(base) in (Annotated, Union):
        if get_origin(base) is Union:
            base, optional = get_args(base)[0], True
        else:
            base, *more = get_args(base)
            notes += more
    return Field(name, kind, base, tuple(notes), optional)


def read(kind: Any, name: str, value: Any) -> Any:
    """The value as this type has it: a table as a record, a list as a tuple. Raises DataError if it is none.

    Args:
        kind: a NamedTuple or dataclass, a plain type, Any, a tuple, a dict, or one of them Optional, or Annotated with
            Within.
        name: how messages call the value.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        found = read(inner[0], name, value)
        for bounds in inner[1:]:
            if isinstance(bounds, Within) and not bounds.low <= found <= bounds.high:
                raise _wrong(name, bounds.what, value)
        return found
    if origin is Union:
        return None if value is None else read(inner[0], name, value)
    if kind in _PLAIN:
        if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool) != (kind is bool):
            raise _wrong(name, _PLAIN[kind], value)
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise _wrong(name, "a list", value)
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) != len(value):
            raise _wrong(name, f"a list of {len(kinds)}", value)
        return tuple(read(each, f"{name}[{place}]", item) for place, (each, item) in enumerate(zip(kinds, value)))
    if kind is Any:
        return value
    if not isinstance(value, Mapping):
        raise _wrong(name, "a table", value)
    if origin is not None:
        return {_key(inner[0], name, key): read(inner[1], f"{name}.{key}", item) for key, item in value.items()}
    known = fields(kind)
    missing = [field.name for field in known if field.name not in value and not field.optional]
    if missing:
        raise DataError(f"{name}: expected {missing[0]}, found no such field")
    unknown = value.keys() - {field.name for field in known}
    if unknown:
        raise DataError(f"{name}: found a field {short(min(unknown))} that there is not")
    return kind(**{field.name: read(field.kind, f"{name}.{field.name}", value.get(field.name)) for field in known})


def _key(kind: Any, name: str, key: Any) -> Any:
    """A name in a table, which JSON has as a text."""
    if kind is int and isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20:
        return int(key)
    return read(kind, f"a name in {name}", key)


def _wrong(name: str, expected: str, value: Any) -> DataError:
    return DataError(f"{name}: expected {expected}, received {short(value)}")


def is_record(kind: Any) -> bool:
    """Whether it is a NamedTuple, or a value of one."""
    return hasattr(kind, "_fields")


def plain(value: Any) -> Any:
    """The value as JSON has it: a NamedTuple as a table, a tuple as a list."""
    if is_record(value):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
