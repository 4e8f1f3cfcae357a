"""Placement: the device of a run, and values on devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dynagat.graph import Graph

T = TypeVar("T")
CPU = torch.device("cpu")
ACCELERATORS = ("cuda", "xpu", "mps")  # "auto" takes the first kind that torch finds


def find_device(name: str) -> torch.device:
    """The device of a name such as "cuda", "cuda:1" or "auto"; a ValueError if it is not here."""
    if name == "auto":
        found = [kind for kind in ACCELERATORS if count_devices(kind)]
        return torch.device(found[0], _current(found[0])) if found else CPU
    kind, colon, number = name.partition(":")
    is_numbered = number.isascii() and number.isdigit() if colon else True
    if kind not in ("cpu", *ACCELERATORS) or not is_numbered:
        known = ", ".join(("auto", "cpu", *ACCELERATORS))
        raise ValueError(
            f"device must be one of {known}, or one with a number such as cuda:1, but is {name!r}"
        )
    count = 1 if kind == "cpu" else count_devices(kind)
    if int(number or 0) >= count:
        found = f"only {count}" if count else "none"
        raise ValueError(
            f"device is {name}, but torch {torch.__version__} finds {found} of that kind here"
        )
    return CPU if kind == "cpu" else torch.device(kind, int(number or _current(kind)))


def count_devices(kind: str) -> int:
    """How many devices of a kind torch can use here."""
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = module_of(kind)
    return module.device_count() if module is not None and module.is_available() else 0


def module_of(kind: str) -> ModuleType | None:
    """torch.cuda and the like."""
    return getattr(torch, kind, None)


def _current(kind: str) -> int:
    return 0 if kind == "mps" else getattr(torch, kind).current_device()


def describe(device: torch.device) -> str:
    """As records show it: "cuda:0, NVIDIA A100"."""
    if device.type not in ("cuda", "xpu"):
        return str(device)
    return f"{device}, {getattr(torch, device.type).get_device_name(device)}"


def device_of(network: nn.Module) -> torch.device:
    """The device of a network's parameters; the CPU if it has none."""
    return next((each.device for each in network.parameters()), CPU)


@contextmanager
def forked_random_state(device: torch.device) -> Iterator[None]:
    """Within the block, random numbers of the CPU and of the device are drawn without effects on
    later ones."""
    state = random_state(device)
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            set_random_state(device, state)


def random_state(device: torch.device) -> Tensor | None:
    """The state of a device's random generator, which draws dropout; None for the CPU."""
    module = module_of(device.type)
    if device.type == "cpu" or module is None:
        return None
    return module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)


def set_random_state(device: torch.device, state: Tensor | None) -> None:
    module = module_of(device.type)
    if state is None or module is None:
        return
    if device.type == "mps":
        module.set_rng_state(state)
    else:
        module.set_rng_state(state, device)


# Values on devices


def moved(value: T, device: torch.device, *, non_blocking: bool = False) -> T:
    """A value with all its tensors on a device; those that are there already are the same ones.

    It may consist of tensors, graphs, modules, PyG's data, dataclasses, sequences and mappings.
    """
    return _each(value, lambda part: part.to(device, non_blocking=non_blocking))


def pinned(value: T) -> T:
    """A value with all its tensors in memory that devices can copy from while others compute."""
    return _each(value, lambda part: part.pin_memory())


def _each(value: Any, function: Callable[[Any], Any]) -> Any:
    """A value in which a function of everything that can be on a device was taken."""
    if isinstance(value, Graph):
        return value.with_arrays(function)
    if is_dataclass(value) and not isinstance(value, type):
        return _each_field(value, function)
    if isinstance(value, Tensor) or hasattr(value, "to"):
        return function(value)
    if isinstance(value, Mapping):
        return {name: _each(part, function) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_each(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _each_field(value: Any, function: Callable[[Any], Any]) -> Any:
    parts = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    news = {name: _each(part, function) for name, part in parts.items()}
    changed = {name: new for name, new in news.items() if new is not parts[name]}
    return replace(value, **changed) if changed else value


def copied_ahead(batches: Iterable[T], device: torch.device) -> Iterator[T]:
    """The batches on a device. The next one is copied while the device computes on the last.

    The copies go through pinned memory and a stream of their own, where the device has streams.
    """
    if device.type == "cpu":
        yield from batches
        return
    copy = Copies(device) if device.type in ("cuda", "xpu") else partial(_plain_copy, device)
    waiting: Callable[[], T] | None = None
    for batch in batches:
        begun = copy(batch)
        if waiting is not None:
            yield waiting()
        waiting = begun
    if waiting is not None:
        yield waiting()


def _plain_copy(device: torch.device, batch: T) -> Callable[[], T]:
    copy = moved(batch, device)
    return lambda: copy


class Copies:
    """Copies to a device, on a stream beside the one that computes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.streams: Any = module_of(device.type)
        self.stream = self.streams.Stream(device)

    def __call__(self, batch: T) -> Callable[[], T]:
        """Begin to copy a batch; the result waits for it and returns it."""
        source = pinned(batch)  # kept until the copy is over
        with self.streams.stream(self.stream):
            copy = moved(source, self.device, non_blocking=True)
        copied = self.stream.record_event()  # the next copy may have begun before `finish`

        def finish(source: T = source) -> T:
            computing = self.streams.current_stream(self.device)
            computing.wait_event(copied)
            _each(copy, partial(_use_on, computing))
            return copy

        return finish


def _use_on(stream: Any, part: Any) -> Any:
    """Keep a tensor's memory until the stream has used it."""
    if isinstance(part, Tensor):
        part.record_stream(stream)
    return part
