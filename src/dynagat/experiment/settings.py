"""Settings: frozen records whose fields are set by name, and say where they depart from the paper.

A field made by `departure` has two values: ours, and that of the paper's released code. Its number
is that of docs/reproduction.md, so that D5 finds the field, and the field finds D5.
"""

from __future__ import annotations

import itertools
import math
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 10_000  # numbers of a range


@dataclass(frozen=True)
class Departure:
    """A field in which the corrected value is not that of the released code."""

    path: str
    number: str
    corrected: Any
    published: Any


def departure(corrected: Any, *, published: Any, number: str) -> Any:
    """A dataclass field with the corrected value as its default."""
    return field(default=corrected, metadata={"published": published, "number": number})


def departures(value: Any, prefix: str = "") -> Iterator[Departure]:
    """All that a record, or a record inside of it, marks."""
    for each in fields(value):
        path = f"{prefix}{each.name}"
        if is_dataclass(getattr(value, each.name)):
            yield from departures(getattr(value, each.name), f"{path}.")
        elif "number" in each.metadata:
            mark = each.metadata
            yield Departure(path, mark["number"], each.default, mark["published"])


def as_published(value: T) -> T:
    """The record with every departure taken back."""
    return with_values(value, {mark.path: mark.published for mark in departures(value)})


def as_dict(value: Any, *, whole: bool = True) -> Any:
    """Nested plain dicts and lists, what JSON can hold.

    A field whose metadata say "later" came when there were records already: where it has its
    default, they do not tell it (not `whole`), so that their keys stay what they are.
    """
    if is_dataclass(value):
        told = [
            (each.name, getattr(value, each.name))
            for each in fields(value)
            if whole or "later" not in each.metadata or getattr(value, each.name) != each.default
        ]
        return {name: as_dict(inner, whole=whole) for name, inner in told}
    if isinstance(value, (tuple, list)):
        return [as_dict(each) for each in value]
    return value


def restored(value: T, plain: Mapping[str, Any]) -> T:
    """The record that `as_dict` made this of, whole or not, given another of its kind."""
    told = {**_untold(value), **flat(plain)}
    return with_values(value, {p: tuple(v) if isinstance(v, list) else v for p, v in told.items()})


def _untold(value: Any, prefix: str = "") -> dict[str, Any]:
    """What a field that "came later" had in records that do not tell it."""
    found = {}
    for each in fields(value):
        inner = getattr(value, each.name)
        if is_dataclass(inner):
            found |= _untold(inner, f"{prefix}{each.name}.")
        elif "later" in each.metadata:
            found[f"{prefix}{each.name}"] = each.default
    return found


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"data": {"k": 4}} -> {"data.k": 4}"""
    found = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": each for inner, each in flat(value).items()}
        else:
            found[name] = value
    return found


def paths(value: Any) -> list[str]:
    """The dotted names of all fields."""
    return list(flat(as_dict(value)))


def resolve(value: Any, name: str) -> str:
    """The dotted name that `name` stands for: itself, or the only one that ends in it."""
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
    """A copy with the fields at dotted paths replaced: at once, for one may need another."""
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
    """The records that texts "name=value" ask for; "k=4-6" and "lr=0.1,0.01" ask for several."""
    choices = dict(parse_settings(value, assignments))
    return [
        with_values(value, dict(zip(choices, news, strict=True)))
        for news in itertools.product(*choices.values())
    ]


def parse_settings(value: Any, assignments: list[str]) -> list[tuple[str, list[Any]]]:
    """The dotted name and the values of each text."""
    found = []
    for text in assignments:
        name, equals, rest = text.partition("=")
        if not equals:
            raise ValueError(f"a setting must be written name=value, but is {text!r}")
        path = resolve(value, name.strip())
        found.append((path, _parse_several(path, _kind(value, path), rest.strip())))
    return found


def _kind(value: Any, path: str) -> Any:
    """The annotated type of the field at a dotted path."""
    name, _, rest = path.partition(".")
    if rest:
        return _kind(getattr(value, name), rest)
    return typing.get_type_hints(type(value))[name]


def _parse_several(path: str, kind: Any, text: str) -> list[Any]:
    if kind is int and "-" in text[1:]:
        return parse_numbers(text, path)
    if kind in (int, float):
        return [_parse(path, kind, part) for part in text.split(",")]
    return [_parse(path, kind, text)]


def parse_choices(value: Any, assignment: str) -> tuple[str, tuple[Any, ...]]:
    """The dotted name and the values of "bias=true,false"; tuples are parted as in "a=1,2;3,4"."""
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
    """As it is written after "name="."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(as_text, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def short_name(value: Any, path: str) -> str:
    """The last name of a dotted one, where it is enough."""
    last = path.split(".")[-1]
    return path if [each.split(".")[-1] for each in paths(value)].count(last) > 1 else last


def parse_numbers(text: str, name: str) -> list[int]:
    """ "0-3,7" -> [0, 1, 2, 3, 7]"""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            numbers = range(0)
        if not numbers:
            example = "numbers and ranges such as 0-3,7"
            raise ValueError(f"{name} must be {example}, but is {text!r}")
        if numbers[-1] >= 2**63 or numbers[-1] - numbers[0] >= MOST:
            raise ValueError(f"{name} must be at most {MOST:,} numbers below 2⁶³, but is {text!r}")
        found += numbers
    return list(dict.fromkeys(found))


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
        found = kind(text)
    except ValueError:
        found = math.nan
    if isinstance(found, float) and not math.isfinite(found):  # which JSON can't hold
        names = {int: "a whole number", float: "a number"}
        raise ValueError(f"{path} must be {names[kind]}, but is {text!r}")
    return found
