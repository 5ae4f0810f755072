"""Names of files that are made from labels."""

from __future__ import annotations

import zlib


def file_name(label: str) -> str:
    """The label with nothing but letters, digits and dashes."""
    plain = "-".join("".join(letter if letter.isalnum() else " " for letter in label).split())
    return plain if len(plain) <= 80 else f"{plain[:70]}-{zlib.crc32(plain.encode()):08x}"
