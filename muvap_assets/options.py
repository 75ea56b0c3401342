"""Options of corpora and datasets: each is declared once, in the annotation of a field of the record that carries it.

    max_silent_share: Annotated[float, Option(least=0, most=1, help="More silent recordings than this fail.")] = 0.1

From it derive the record's own check (:func:`check_options`), the keys of ``datasets.yaml`` (:func:`keys_of`) and the
command line (:mod:`muvap_assets.cli.options`), so that all three have one default and say the same of a wrong value.
Imports nothing but the standard library until keys are made, so that the command starts quickly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from muvap_assets.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What an option is for and what it may be; a float has to be finite, whatever its range.

    Attributes:
        help: a sentence or two, as the command line shows them.
        least: the smallest value.
        most: the largest value.
        why: where the range comes from, for messages.
        rule: says what is required of a value that is wrong, ``None`` of one that is right.
        flag: the value of an enumeration that the command line chooses by a flag of its name.
    """

    help: str
    least: float | None = None
    most: float | None = None
    why: str = ""
    rule: Callable[[Any], str | None] | None = None
    flag: str | None = None

    @property
    def range(self) -> str:
        """The range in words, empty where there is none."""
        ends = (("at least", self.least), ("at most", self.most))
        return " and ".join(f"{side} {end}" for side, end in ends if end is not None)

    def wrong(self, value: Any, kind: Any) -> str | None:
        """What is wrong with a value of type ``kind``, as a message; ``None`` where nothing is, or it is not given."""
        if value is None:
            return None
        required = self.rule(value) if self.rule is not None else None
        if is_choice(kind):
            required = None if value in tuple(kind) else f"one of {', '.join(kind)}"
        elif isinstance(value, float) and not math.isfinite(value):
            required = "a finite number"
        elif (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            required = f"{self.range}{self.why and f', {self.why}'}"
        return None if required is None else f"found {value!r}, required is {required}. Change it."

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the type, with the same check and message."""
        from pydantic_core import PydanticCustomError, core_schema

        def check(value: Any) -> Any:
            if wrong := self.wrong(value, source):
                raise PydanticCustomError("option", "{wrong}", {"wrong": wrong})
            return value

        if is_choice(source):
            return core_schema.no_info_before_validator_function(check, handler(source))
        return core_schema.no_info_after_validator_function(check, handler(source))


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An option of a record: its name, its type, its default, and the rest of its declaration."""

    name: str
    kind: Any
    default: Any
    option: Option

    @classmethod
    def of(cls, name: str, annotation: Any, default: Any) -> Declared | None:
        """The option that an annotation of a field declares, or ``None`` where it declares none."""
        options = [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Option)]
        if not options:
            return None
        kind = get_args(annotation)[0]
        if get_origin(kind) is UnionType:  # ``int | None``
            kind = get_args(kind)[0]
        return cls(name=name, kind=kind, default=default, option=options[0])


ItemTimeout = Annotated[
    float, Option(least=0.1, help="Seconds without a frame or sample after which a decoder is given up, a finding.")
]

NOT_CONTENT = frozenset({"item_timeout_sec"})
"""Options that nothing published depends on, nor says."""


def options_of(record: type) -> tuple[Declared, ...]:
    """The options among the fields of a dataclass, in order."""
    hints = get_type_hints(record, include_extras=True)
    found = (Declared.of(each.name, hints[each.name], each.default) for each in fields(record))
    return tuple(each for each in found if each is not None)


def check_options(record: Any) -> None:
    """Check every option of a record.

    Raises:
        ConfigError: some are outside what they may be; each is named.
    """
    found = ((each.name, each.option.wrong(getattr(record, each.name), each.kind)) for each in options_of(type(record)))
    if wrong := [f"{name}: {message}" for name, message in found if message]:
        raise ConfigError(" ".join(wrong))


def made_of(record: type[T], values: Mapping[str, Any]) -> T:
    """A record of the options among ``values``; what is none of its options is passed over.

    Raises:
        ConfigError: see the record.
    """
    return record(**{each.name: values[each.name] for each in options_of(record) if each.name in values})


def keys_of(record: type) -> type[BaseModel]:
    """A pydantic model with one optional field an option of the record: a base of what ``datasets.yaml`` may hold."""
    from pydantic import create_model

    hints = get_type_hints(record, include_extras=True)
    named: dict[str, Any] = {each.name: (hints[each.name], each.default) for each in options_of(record)}
    return create_model(f"{record.__name__}Keys", **named)


def is_choice(kind: Any) -> bool:
    """Whether an option of this type takes one of some names."""
    return isinstance(kind, type) and issubclass(kind, StrEnum)
