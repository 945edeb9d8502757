"""The machine that a pickle is a program for, cut down to what containers, numbers, text and tensors need.

Each instruction is an entry in a table, and a name in a pickle stands for nothing but what it is given here.
Python's own unpickler is not used, because it sets attributes, even of classes, and calls what it finds.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class BrokenPickleError(Exception):
    """The pickle is not one that torch.save writes."""


class RefusedNameError(Exception):
    """The pickle asks for a name that stands for nothing; the argument is the name."""


@dataclass(frozen=True)
class Maker:
    """What a pickle may call."""

    make: Callable[..., Any]


class Stateful:
    """Made by a pickle, and then given its state."""

    def set_state(self, state: object) -> None:
        """Take the state; `BrokenPickleError` when it is none."""
        raise NotImplementedError


class PickleMachine:
    """Stack, memo and instructions for one pickle.

    `names` is what names stand for: constants, and `Maker`s that may be called; `persistent` makes objects
    out of what the pickle says of them.
    """

    def __init__(self, names: Mapping[str, Any], persistent: Callable[[Any], Any]) -> None:
        self._names = names
        self._persistent = persistent
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """What the pickle makes; `RefusedNameError` or `BrokenPickleError` otherwise."""
        try:
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name not in INSTRUCTIONS:
                    raise BrokenPickleError(f"instruction {opcode.name}")
                INSTRUCTIONS[opcode.name](self, argument)
            (result,) = self._stack
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise BrokenPickleError(str(error)[:200]) from error
        return result

    def skip(self, _: object) -> None:
        """Do nothing: the version, the frames, the end."""

    def push(self, value: object) -> None:
        """Put a number, text or bytes on the stack."""
        self._stack.append(value)

    def mark(self, _: object) -> None:
        """Begin a run of items."""
        self._marks.append(len(self._stack))

    def put(self, index: int | None) -> None:
        """Remember the last item, as the next one where no number is given."""
        self._memo[len(self._memo) if index is None else index] = self._stack[-1]

    def get(self, index: int) -> None:
        """Put a remembered item on the stack."""
        self._stack.append(self._memo[index])

    def join(self, size: int | None) -> None:
        """Make a tuple of the last `size` items, or of those since the mark."""
        self._stack.append(tuple(self._since_mark() if size is None else self._last(size)))

    def extend(self, size: int | None) -> None:
        """Add to a list the last item, or those since the mark."""
        items = self._since_mark() if size is None else self._last(size)
        self._top(list).extend(items)

    def update(self, size: int | None) -> None:
        """Add to a dict a key and a value, or those since the mark."""
        items = self._since_mark() if size is None else self._last(size)
        keys = items[::2]
        # Hashing a tuple of tuples can take for ever.
        if not all(key is None or isinstance(key, (str, int, float)) for key in keys):
            raise BrokenPickleError("a key that is neither text nor a number")
        self._top(dict).update(zip(keys, items[1::2], strict=True))

    def look_up(self, name: str | None) -> None:
        """Put on the stack what a name stands for."""
        name = ".".join(self._last(2)) if name is None else name.replace(" ", ".", 1)
        if name not in self._names:
            raise RefusedNameError(name)
        self._stack.append(self._names[name])

    def call(self, _: object) -> None:
        """Put on the stack what a name makes of its arguments."""
        function, arguments = self._last(2)
        if not isinstance(function, Maker) or not isinstance(arguments, tuple):
            raise BrokenPickleError(f"a call of {type(function).__name__}")
        self._stack.append(function.make(*arguments))

    def build(self, _: object) -> None:
        """Give the last item its state; what hangs on a dict is left out."""
        (state,) = self._last(1)
        item = self._stack[-1]
        if isinstance(item, Stateful):
            item.set_state(state)
        elif type(item) is not dict:
            raise BrokenPickleError(f"a state for {type(item).__name__}")

    def persist(self, _: object) -> None:
        """Put on the stack what stands outside of the pickle."""
        (given,) = self._last(1)
        self._stack.append(self._persistent(given))

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) - (self._marks[-1] if self._marks else 0) < count:
            raise BrokenPickleError("too few items")
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _top(self, kind: type[Any]) -> Any:
        if type(self._stack[-1]) is not kind:
            raise BrokenPickleError(f"items for something that is no {kind.__name__}")
        return self._stack[-1]


_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES")

INSTRUCTIONS: dict[str, Callable[[PickleMachine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), PickleMachine.skip),
    **dict.fromkeys((*_NUMBERS, *_TEXTS), PickleMachine.push),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": PickleMachine.mark,
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), PickleMachine.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), PickleMachine.get),
    "TUPLE": lambda machine, _: machine.join(None),
    "TUPLE1": lambda machine, _: machine.join(1),
    "TUPLE2": lambda machine, _: machine.join(2),
    "TUPLE3": lambda machine, _: machine.join(3),
    "APPEND": lambda machine, _: machine.extend(1),
    "APPENDS": lambda machine, _: machine.extend(None),
    "SETITEM": lambda machine, _: machine.update(2),
    "SETITEMS": lambda machine, _: machine.update(None),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), PickleMachine.look_up),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), PickleMachine.call),
    "BUILD": PickleMachine.build,
    "BINPERSID": PickleMachine.persist,
}
"""What each instruction does; all others stop."""
