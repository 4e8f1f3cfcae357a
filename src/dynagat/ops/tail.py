"""tail: residual sum, activation, norm and dropout after a layer, in one native pass.

Saved for the backward pass are x, the residual and two numbers per row (batch norm: per column).
Compiled and exported programs see `dynagat::tail` and `dynagat::tail_backward` as single nodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynagat.native import kernels
from dynagat.ops import reference
from dynagat.ops.fused import STORAGE, _check_tensor, empty

ACTIVATION_CODES = {"none": 0, "relu": 1, "elu": 2}
NORM_CODES = {"none": 0, "layer": 1, "batch": 2}
NUM_DIFFERENTIABLE = 4  # x to bias have gradients
NUM_TENSORS = 7  # x to seed
ARGUMENTS = (
    "Tensor x, Tensor? residual, Tensor? weight, Tensor? bias, Tensor? mean, Tensor? variance, "
    "Tensor? seed, str inner, str norm, str outer, float gain, float eps, float dropout"
)


class TailInputs(NamedTuple):
    """The arguments of `reference.tail`, in the order of the op's."""

    x: Tensor
    residual: Tensor | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None
    mean: Tensor | None = None
    variance: Tensor | None = None
    seed: Tensor | None = None
    inner: str = "none"
    norm: str = "none"
    outer: str = "none"
    gain: float = 1.0
    eps: float = 1e-5
    dropout: float = 0.0

    @property
    def compute_dtype(self) -> torch.dtype:
        return torch.promote_types(self.x.dtype, torch.float32)

    @property
    def has_statistics(self) -> bool:
        """Whether the op computes a mean and a variance, of each row or column."""
        return self.norm == "layer" or (self.norm == "batch" and self.mean is None)

    @property
    def statistics_shape(self) -> tuple[int, ...]:
        if not self.has_statistics:
            return (0,)
        return self.x.shape[:-1] if self.norm == "layer" else self.x.shape[-1:]


def tail(x: Tensor, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    """out = mask ∘ outer(weight ∘ n + bias), n the norm of residual + g inner(x); see
    `reference.tail`."""
    if kernels is None or x.device.type != "cpu" or x.dtype not in STORAGE:
        return reference.tail(x, **options)
    inputs = TailInputs(x, **options)
    compute = inputs.compute_dtype
    vectors = [None if t is None else t.to(compute) for t in inputs[2:6]]
    inputs = TailInputs._make((*inputs[:2], *vectors, *inputs[6:]))
    is_traced = torch.compiler.is_compiling() or type(x) not in (Tensor, torch.nn.Parameter)
    return (tail_op if is_traced else _Tail.apply)(*inputs)  # pyright: ignore[reportReturnType]


def _forward(*arguments) -> tuple[Tensor, Tensor, Tensor]:
    inputs = _checked(arguments)
    x, compute = inputs.x, inputs.compute_dtype
    out, shape = empty(x.shape, x.dtype), inputs.statistics_shape
    mean, variance = torch.empty(shape, dtype=compute), torch.empty(shape, dtype=compute)
    is_given = not inputs.has_statistics
    used = (inputs.mean, inputs.variance) if is_given else (mean, variance)
    _run(inputs, [*inputs[:4], *used, out])
    return out, mean, variance


tail_op = torch.library.custom_op(
    "dynagat::tail",
    _forward,
    mutates_args=(),
    device_types="cpu",
    schema=f"({ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
)


@tail_op.register_fake
def _(*arguments):
    inputs = TailInputs._make(arguments)
    mean = inputs.x.new_empty(inputs.statistics_shape, dtype=inputs.compute_dtype)
    return torch.empty_like(inputs.x), mean, torch.empty_like(mean)


def _backward(*arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, residual, weight, bias; empty where the input is None.

    `computed_mean` and `computed_variance` are those that the forward pass returned.
    """
    dout, computed_mean, computed_variance, *fields = arguments
    inputs = _checked(fields)
    x, compute = inputs.x, inputs.compute_dtype
    _check_tensor("dout", dout, x.shape, x.dtype)
    computed = computed_mean.contiguous(), computed_variance.contiguous()
    for name, statistic in zip(("mean", "variance"), computed, strict=True):
        _check_tensor(f"computed_{name}", statistic, inputs.statistics_shape, compute)
    tables = [torch.empty(0) if t is None else empty(t.shape, t.dtype) for t in inputs[:2]]
    vectors = [torch.empty(0) if t is None else torch.empty_like(t) for t in inputs[2:4]]
    used = computed if inputs.has_statistics else (inputs.mean, inputs.variance)
    grads = [
        grad if given is not None else None
        for grad, given in zip((*tables, *vectors), inputs, strict=False)
    ]
    _run(inputs, [*inputs[:4], *used, None, dout.contiguous(), *grads])
    return tables[0], tables[1], vectors[0], vectors[1]


tail_backward = torch.library.custom_op(
    "dynagat::tail_backward",
    _backward,
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor dout, Tensor computed_mean, Tensor computed_variance, {ARGUMENTS})"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)


@tail_backward.register_fake
def _(dout, computed_mean, computed_variance, *arguments):
    given = arguments[:NUM_DIFFERENTIABLE]
    return tuple(dout.new_empty(0) if t is None else torch.empty_like(t) for t in given)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*output[1:], *inputs[:NUM_TENSORS])
    ctx.options = inputs[NUM_TENSORS:]
    ctx.set_materialize_grads(False)


def _differentiate(ctx, dout, *_, call: Any = tail_backward):
    if dout is None:
        return (None,) * len(TailInputs._fields)
    tensors = ctx.saved_tensors
    grads = call(dout, *tensors, *ctx.options)
    wanted = ctx.needs_input_grad[:NUM_DIFFERENTIABLE]
    grads = [grad if is_wanted else None for grad, is_wanted in zip(grads, wanted, strict=True)]
    return *grads, *(None,) * (len(TailInputs._fields) - NUM_DIFFERENTIABLE)


def _no_second_derivative(ctx, *grads):
    raise NotImplementedError(
        "dynagat's tail has no second derivative in a compiled program; set "
        "DYNAGAT_BACKEND=reference to compute one"
    )


tail_op.register_autograd(_differentiate, setup_context=_save)
tail_backward.register_autograd(_no_second_derivative)


class _Tail(torch.autograd.Function):
    """`tail_op` for eager code; its gradients can be differentiated again."""

    @staticmethod
    def forward(*inputs):
        return _forward(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _save(ctx, inputs, output)
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx, *grads):
        again = torch.is_grad_enabled()
        return _differentiate(ctx, *grads, call=_plain_gradients if again else _backward)


def _plain_gradients(dout, computed_mean, computed_variance, *arguments) -> list[Tensor | None]:
    """Those of `reference.tail`, in differentiable steps."""
    inputs = TailInputs._make(arguments)
    with torch.enable_grad():
        # Views, because x and the residual may be the same tensor.
        views = [None if t is None else t.view_as(t) for t in inputs[:NUM_DIFFERENTIABLE]]
        again = TailInputs._make((*views, *inputs[NUM_DIFFERENTIABLE:]))
        out = reference.tail(**again._asdict())[0]
        wanted = [t for t in views if t is not None and t.requires_grad]
        found = iter(torch.autograd.grad(out, wanted, dout, create_graph=True))
    return [next(found) if t is not None and t.requires_grad else None for t in views]


def _run(inputs: TailInputs, arrays: list[Tensor | None]) -> None:
    channels = inputs.x.shape[-1]
    kinds = ACTIVATION_CODES[inputs.inner], NORM_CODES[inputs.norm], ACTIVATION_CODES[inputs.outer]
    kernels.tail(
        [0 if t is None else t.data_ptr() for t in arrays],
        inputs.x.numel() // channels,
        channels,
        STORAGE[inputs.x.dtype],
        kinds,
        inputs.mean is not None,
        (inputs.gain, inputs.eps, inputs.dropout),
        0 if inputs.seed is None else int(inputs.seed) & (2**64 - 1),
        torch.get_num_threads(),
    )


def _checked(fields: Any) -> TailInputs:
    """Inputs that the kernels can read: of the right types and sizes, and contiguous."""
    inputs = TailInputs._make(fields)
    x, channels = inputs.x, inputs.x.shape[-1:]
    for name, known in (("inner", ACTIVATION_CODES), ("norm", NORM_CODES),
                        ("outer", ACTIVATION_CODES)):  # fmt: skip
        if getattr(inputs, name) not in known:
            value = getattr(inputs, name)
            raise ValueError(f"{name} must be one of {', '.join(known)}, but is {value!r}")
    if x.dtype not in STORAGE or not x.is_cpu:
        raise TypeError(f"x must hold floats on the CPU, but holds {x.dtype} on {x.device}")
    if not channels or channels[0] < 1:
        raise ValueError(
            f"x must have shape [*, C], where C is at least 1, but has {list(x.shape)}"
        )
    if not 0 <= inputs.dropout <= 1:
        raise ValueError(f"dropout must be a probability, but is {inputs.dropout}")
    if inputs.dropout > 0 and inputs.seed is None:
        raise ValueError(f"seed is missing, but dropout is {inputs.dropout}")
    is_batch = inputs.norm == "batch"
    if (inputs.mean is None) != (inputs.variance is None) or (inputs.mean is not None) > is_batch:
        raise ValueError("mean and variance must be given together, and only with norm='batch'")
    if inputs.residual is not None:
        _check_tensor("residual", inputs.residual, x.shape, x.dtype)
    for name in ("weight", "bias", "mean", "variance"):
        if getattr(inputs, name) is not None:
            _check_tensor(name, getattr(inputs, name), channels, inputs.compute_dtype)
    tensors = [None if t is None else t.resolve_neg().contiguous() for t in inputs[:6]]
    return TailInputs._make((*tensors, *inputs[6:]))
