"""Settings: frozen dataclasses whose fields are set by name, `--set lr=0.01`.

A field made by `departure` has two values: ours, and that of the paper's released code. A field
made by `improvement` has the paper's value, and one of ours that works better. Both carry the
number of the entry in docs/reproduction.md that explains the difference. A fidelity is a choice
among these values, so the fidelity of a record follows from its settings.

Records store settings by name, and their keys depend on them. So that old records stay valid,
- a field with the metadata "added_later" is stored only if it differs from its default, or from
  the metadata "absent", the value of records without it, where that is not the default;
- a field with the metadata "stored_as" is stored under that name, its old one;
- a class lists the fields it no longer has, with the value they had, as `RETIRED`.
"""

from __future__ import annotations

import itertools
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")
MAX_RANGE = 10_000  # numbers that a range such as 0-9 may stand for


@dataclass(frozen=True)
class Departure:
    """A field whose value is not the same in all fidelities."""

    path: str
    number: str
    corrected: Any
    published: Any
    improved: Any


def departure(
    corrected: Any,
    *,
    published: Any,
    number: str,
    stored_as: str | None = None,
    absent: Any = None,
) -> Any:
    """A dataclass field with the corrected value as its default.

    Args:
        corrected: its value in the corrected fidelity.
        published: its value in the released code.
        number: of the entry in docs/reproduction.md.
        stored_as: its name in records, if that is an old one.
        absent: its value in records without it, for a field that was added later.
    """
    metadata = {"published": published, "number": number}
    metadata |= {"stored_as": stored_as} if stored_as else {}
    metadata |= {} if absent is None else {"added_later": True, "absent": absent}
    return field(default=corrected, metadata=metadata)


def improvement(corrected: Any, *, improved: Any, number: str) -> Any:
    """A dataclass field with the paper's value as its default, and a better one of ours."""
    return field(default=corrected, metadata={"improved": improved, "number": number})


def departures(value: Any, prefix: str = "") -> Iterator[Departure]:
    """All departures of a dataclass and of those inside it."""
    for each in fields(value):
        path = f"{prefix}{each.name}"
        if is_dataclass(getattr(value, each.name)):
            yield from departures(getattr(value, each.name), f"{path}.")
        elif "number" in each.metadata:
            mark, own = each.metadata, each.default
            others = mark.get("published", own), mark.get("improved", own)
            yield Departure(path, mark["number"], own, *others)


def as_published(value: T) -> T:
    """A copy in which every departure has the value of the released code."""
    return with_values(value, {mark.path: mark.published for mark in departures(value)})


def improved(value: T) -> T:
    """A copy in which every improvement has our value."""
    marks = [mark for mark in departures(value) if mark.improved != mark.corrected]
    return with_values(value, {mark.path: mark.improved for mark in marks})


FIDELITIES: dict[str, Callable[[Any], Any]] = {
    "corrected": lambda value: value,
    "improved": improved,
    "as-published": as_published,
}


def as_dict(value: Any) -> Any:
    """Nested plain dicts and lists, which JSON can hold."""
    if is_dataclass(value):
        return {each.name: as_dict(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, (tuple, list)):
        return [as_dict(each) for each in value]
    return value


def as_stored(value: Any, *, whole: bool = False) -> Any:
    """Like `as_dict`, but as records store it; `whole` includes what they leave out."""
    if not is_dataclass(value):
        return as_dict(value)
    named = [(each, getattr(value, each.name)) for each in fields(value)]
    stored = {
        _stored_name(each): as_stored(inner, whole=whole)
        for each, inner in named
        if whole or "added_later" not in each.metadata or inner != _absent(each)
    }
    return stored | dict(getattr(value, "RETIRED", {}))


def restored(value: T, stored: Mapping[str, Any]) -> T:
    """The settings that `as_stored` wrote, given settings of the same classes."""
    every: tuple[Field[Any], ...] = fields(value)  # pyright: ignore[reportArgumentType]
    known = {name: each for each in every for name in (each.name, _stored_name(each))}
    news = {each.name: _absent(each) for each in every if "added_later" in each.metadata}
    retired = getattr(value, "RETIRED", {})
    for name, new in stored.items():
        if name in retired and new == retired[name]:
            continue
        if name not in known:
            kind, text = type(value).__name__, f"{name}={as_text(new)}"
            if name in retired:
                raise ValueError(
                    f"{kind} no longer has the setting {name}; {text} can't be restored"
                )
            raise ValueError(f"{kind} has no setting {name!r}; a different version stored {text}")
        own = known[name].name
        inner = getattr(value, own)
        if is_dataclass(inner) and isinstance(new, Mapping):
            news[own] = restored(inner, new)
        else:
            news[own] = tuple(new) if isinstance(new, list) else new
    return replace(value, **news)  # pyright: ignore[reportArgumentType]


def _absent(each: Field[Any]) -> Any:
    """The value of a field that was added later, in records without it."""
    return each.metadata.get("absent", each.default)


def _stored_name(each: Field[Any]) -> str:
    return each.metadata.get("stored_as", each.name)


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"data": {"k": 4}} -> {"data.k": 4}"""
    values = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            values |= {f"{name}.{inner}": each for inner, each in flat(value).items()}
        else:
            values[name] = value
    return values


def values_of(value: Any) -> dict[str, Any]:
    """Plain values by dotted name: {"data.k": 4}"""
    return flat(as_dict(value))


def paths(value: Any) -> list[str]:
    """The dotted names of all fields."""
    return list(values_of(value))


def resolve(value: Any, name: str) -> str:
    """The dotted name that `name` abbreviates: the only one that ends in it."""
    known = paths(value)
    if name in known:
        return name
    matches = [path for path in known if path.split(".")[-1] == name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ValueError(f"{name!r} is ambiguous: {', '.join(matches)}")
    raise ValueError(f"there is no setting {name!r}; there are {', '.join(known)}")


def with_values(value: T, news: Mapping[str, Any]) -> T:
    """A copy with the fields at dotted paths replaced, all at once: some depend on others."""
    inner: dict[str, dict[str, Any]] = {}
    for path, new in news.items():
        name, _, rest = path.partition(".")
        inner.setdefault(name, {})[rest] = new
    fresh = {
        name: some[""] if "" in some else with_values(getattr(value, name), some)
        for name, some in inner.items()
    }
    return replace(value, **fresh)  # pyright: ignore[reportArgumentType]


def grid(value: T, assignments: list[str]) -> list[T]:
    """All settings that texts "name=value" stand for; "k=4-6" and "lr=0.1,0.01" are several."""
    choices = dict(parse_settings(value, assignments))
    return [
        with_values(value, dict(zip(choices, news, strict=True)))
        for news in itertools.product(*choices.values())
    ]


def parse_settings(value: Any, assignments: list[str]) -> list[tuple[str, list[Any]]]:
    """The dotted name and the values of each text."""
    parsed = []
    for text in assignments:
        name, equals, rest = text.partition("=")
        if not equals:
            raise ValueError(f"a setting must be written name=value, but is {text!r}")
        path = resolve(value, name.strip())
        parsed.append((path, _parse_several(path, _kind(value, path), rest.strip())))
    return parsed


def _kind(value: Any, path: str) -> Any:
    """The annotated type of the field at a dotted path."""
    name, _, rest = path.partition(".")
    if rest:
        return _kind(getattr(value, name), rest)
    return typing.get_type_hints(type(value))[name]


def _parse_several(path: str, kind: Any, text: str) -> list[Any]:
    if kind is int and "-" in text[1:]:
        return parse_numbers(text, path)
    if kind in (int, float, bool) or typing.get_origin(kind) is typing.Literal:
        return [_parse(path, kind, part) for part in text.split(",")]
    return [_parse(path, kind, text)]


def parse_choices(value: Any, assignment: str) -> tuple[str, tuple[Any, ...]]:
    """The dotted name and the values of "bias=true,false"; for tuples, "a=1,2;3,4"."""
    name, equals, rest = assignment.partition("=")
    if not equals:
        raise ValueError(f"choices must be written name=value,value, but are {assignment!r}")
    path = resolve(value, name.strip())
    kind = _kind(value, path)
    if kind is int and "-" in rest.strip()[1:]:
        return path, tuple(parse_numbers(rest.strip(), path))
    is_tuple = any(typing.get_origin(each) is tuple for each in (kind, *typing.get_args(kind)))
    parts = rest.split(";" if is_tuple else ",")
    return path, tuple(dict.fromkeys(_parse(path, kind, part.strip()) for part in parts))


def as_text(value: Any) -> str:
    """As it is written after "name=" on the command line."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(as_text, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def short_name(value: Any, path: str) -> str:
    """The last part of a dotted name, if that is unambiguous."""
    last = path.split(".")[-1]
    return path if [each.split(".")[-1] for each in paths(value)].count(last) > 1 else last


def parse_numbers(text: str, name: str) -> list[int]:
    """ "0-3,7" -> [0, 1, 2, 3, 7]"""
    result: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            numbers = range(0)
        if not numbers:
            example = "numbers and ranges such as 0-3,7"
            raise ValueError(f"{name} must be {example}, but is {text!r}")
        if numbers[-1] >= 2**63 or numbers[-1] - numbers[0] >= MAX_RANGE:
            limit = f"at most {MAX_RANGE:,} numbers below 2⁶³"
            raise ValueError(f"{name} must be {limit}, but is {text!r}")
        result += numbers
    return list(dict.fromkeys(result))


def _parse(path: str, kind: Any, text: str) -> Any:
    options = typing.get_args(kind)
    if types.NoneType in options:
        rest = next(option for option in options if option is not types.NoneType)
        return None if text.lower() == "none" else _parse(path, rest, text)
    if typing.get_origin(kind) is tuple:
        parts = [part.strip() for part in text.split(",")]
        return tuple(_parse(path, options[0], part) for part in parts if part)
    if typing.get_origin(kind) is typing.Literal:
        if text not in options:
            raise ValueError(f"{path} must be one of {', '.join(options)}, but is {text!r}")
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{path} must be true or false, but is {text!r}")
        return text.lower() == "true"
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if isinstance(number, float) and not math.isfinite(number):  # JSON has no such numbers
        names = {int: "a whole number", float: "a number"}
        raise ValueError(f"{path} must be {names[kind]}, but is {text!r}")
    return number
