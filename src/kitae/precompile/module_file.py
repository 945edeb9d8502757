"""What a compiled graph computes, read from its HloModuleProto without the libraries that wrote it.

Only the wire format of protocol buffers is needed, and the few fields of xla/service/hlo.proto and
xla/xla_data.proto that tell two graphs apart: inputs, results, and each instruction with its shape and
constant.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kitae.errors import PrecompileError

_TYPES = (
    *("invalid", "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64"),
    *("tuple", "opaque", "c64", "bf16", "token", "c128", "f8e5m2", "f8e4m3fn", "s4", "u4"),
)
"""By their numbers in xla.PrimitiveType."""
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
_CONSTANTS = {4: "varints", 5: "varints", 6: "varints", 7: "varints", 2: "varints", 8: "<f", 9: "<d"}
"""Of a LiteralProto: field numbers of values that are told as numbers, and their form."""

Wire = dict[int, list["int | bytes"]]


@dataclass(frozen=True)
class Shape:
    """Type and sizes of a value; of a tuple, of its parts."""

    dtype: str
    sizes: tuple[int, ...] = ()
    parts: tuple[Shape, ...] = ()

    def __str__(self) -> str:
        if self.dtype == "tuple":
            return f"({', '.join(map(str, self.parts))})"
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


@dataclass(frozen=True)
class Instruction:
    """One operation."""

    opcode: str
    shape: Shape
    constant: bytes = b""
    """A constant's LiteralProto."""


@dataclass(frozen=True)
class Module:
    """A graph."""

    parameters: tuple[Shape, ...]
    results: Shape
    instructions: tuple[Instruction, ...]
    """Of all its computations, in the file's order."""


def read_module(path: Path) -> Module:
    """The graph in a file. Raises `PrecompileError` for one that is no HloModuleProto."""
    try:
        return parse_module(path.read_bytes())
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise PrecompileError(f"{path}: cannot be read as a graph of XLA ({error})") from error


def parse_module(content: bytes) -> Module:
    """The graph in a file's content: an HloModuleProto, or an HloProto around one."""
    wire = _wire(content)
    if 4 not in wire and 1 in wire and isinstance(wire[1][0], bytes):
        wire = _wire(wire[1][0])  # HloProto.hlo_module
    program = _wire(_only(wire, 4))  # HloModuleProto.host_program_shape
    computations = (_wire(one) for one in _messages(wire, 3))
    instructions = (_instruction(one) for part in computations for one in _messages(part, 2))
    parameters = tuple(_shape(one) for one in _messages(program, 1))
    return Module(parameters, _shape(_only(program, 2)), tuple(instructions))


def numbers(constant: bytes) -> tuple[float, ...]:
    """The first values of a constant, as far as its type is told as numbers."""
    for field, values in _wire(constant).items():
        form = _CONSTANTS.get(field)
        if form is not None:
            return tuple(_values(values, form))[:4]
    return ()


def _values(values: list[int | bytes], form: str) -> Iterator[float]:
    for value in values:
        if isinstance(value, int):
            yield value
        elif form == "varints":
            yield from _varints(value)
        else:
            yield from (one for (one,) in struct.iter_unpack(form, value))


def _instruction(content: bytes) -> Instruction:
    wire = _wire(content)
    constant = wire.get(8, [b""])[0]
    shape = _messages(wire, 3)
    return Instruction(
        opcode=_only(wire, 2).decode("utf-8", errors="replace"),
        shape=_shape(shape[0]) if shape else Shape("?"),
        constant=constant if isinstance(constant, bytes) else b"",
    )


def _shape(content: bytes) -> Shape:
    wire = _wire(content)
    kind = wire.get(2, [0])[0]
    sizes: list[int] = []
    for value in wire.get(3, ()):
        sizes += [value] if isinstance(value, int) else list(_varints(value))
    parts = tuple(_shape(one) for one in _messages(wire, 4))
    number = kind if isinstance(kind, int) else 0
    name = _TYPES[number] if number < len(_TYPES) else f"type{number}"
    return Shape(name, tuple(sizes), parts)


def _messages(wire: Wire, field: int) -> list[bytes]:
    return [one for one in wire.get(field, ()) if isinstance(one, bytes)]


def _only(wire: Wire, field: int) -> bytes:
    found = _messages(wire, field)
    if not found:
        raise ValueError(f"field {field} is missing")
    return found[0]


def _wire(content: bytes) -> Wire:
    """Fields of a message by number, in order."""
    fields: Wire = {}
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        value, place = _field(content, place, tag & 7)
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _field(content: bytes, place: int, kind: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return _varint(content, place)
    if kind == _BYTES:
        length, place = _varint(content, place)
    elif kind in (_DOUBLE, _FLOAT):
        length = 8 if kind == _DOUBLE else 4
    else:
        raise ValueError(f"wire type {kind} is none of a message")
    if place + length > len(content):
        raise ValueError("it ends too early")
    return content[place : place + length], place + length


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            # Negative numbers are written as if they had 64 bits.
            return (value - (1 << 64) if value >> 63 else value), place
        if shift > 63:
            raise ValueError("a number is too long")


def _varints(content: bytes) -> Iterator[int]:
    place = 0
    while place < len(content):
        value, place = _varint(content, place)
        yield value
