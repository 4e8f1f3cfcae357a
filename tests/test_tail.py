"""The tail of a layer: one native pass equals the formula, and the modules one after the other."""

import copy
import itertools

import pytest
import torch
from torch import nn

from dynagat.nn.dropout import Dropout
from dynagat.nn.tail import Tail
from dynagat.ops import reference
from dynagat.ops.tail import tail, tail_op

ACTIVATIONS = ("none", "relu", "elu")
KINDS = list(itertools.product(ACTIVATIONS, ("none", "layer", "batch", "given"), ACTIVATIONS))


def arguments(inner, norm, outer, rows=37, width=7, dtype=torch.float64, dropout=0.3):
    """The tensors to differentiate, and the options."""
    tensors = {"x": torch.randn(rows, width), "residual": torch.randn(rows, width),
               "weight": torch.randn(width), "bias": torch.randn(width)}  # fmt: skip
    tensors = {name: t.to(dtype).requires_grad_() for name, t in tensors.items()}
    options = {"inner": inner, "norm": norm, "outer": outer, "gain": 1.5, "dropout": dropout}
    if norm == "given":
        options |= {"norm": "batch", "mean": torch.randn(width), "variance": torch.rand(width)}
        options |= {name: options[name].to(dtype) for name in ("mean", "variance")}
    return tensors, {**options, "seed": torch.tensor(5)}


def results(op, tensors, options):
    """Out, mean, variance, and the gradients of all tensors."""
    out, *statistics = op(**tensors, **options)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    return out, *statistics, *torch.autograd.grad(out, list(tensors.values()), weights)


@pytest.mark.parametrize("width", [1, 7, 40])
@pytest.mark.parametrize(("inner", "norm", "outer"), KINDS)
def test_the_op_equals_the_reference(inner, norm, outer, width):
    tensors, options = arguments(inner, norm, outer, width=width)
    expected = results(reference.tail, tensors, options)
    for ours, exact in zip(results(tail, tensors, options), expected, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_lower_precision_is_as_close_as_its_rounding(norm, dtype):
    tensors, options = arguments("relu", norm, "elu", rows=500, width=24)
    rounded = {name: t.detach().to(dtype).requires_grad_() for name, t in tensors.items()}
    exact = {name: t.detach().double().requires_grad_() for name, t in rounded.items()}
    limit = 4 * max(torch.finfo(dtype).eps, 1e-6)  # sums are computed in float32
    pairs = zip(results(tail, rounded, options), results(reference.tail, exact, options),
                strict=True)  # fmt: skip
    for ours, expected in pairs:
        scale = expected.abs().max() if expected.numel() else 1
        assert ((ours.double() - expected).abs() <= limit * scale).all()


@pytest.mark.parametrize("norm", ["layer", "batch", "given"])
def test_gradients_equal_finite_differences_also_the_second(norm):
    tensors, options = arguments("elu", norm, "elu", rows=4, width=3)

    def run(*leaves):
        return tail(**dict(zip(tensors, leaves, strict=True)), **options)[0]

    leaves = tuple(tensors.values())
    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


def test_x_may_be_its_own_residual():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    def run(x):
        return tail(x, residual=x, inner="elu", norm="layer")[0]

    assert torch.autograd.gradcheck(run, x)
    assert torch.autograd.gradgradcheck(run, x)


@pytest.mark.native
@pytest.mark.parametrize("norm", ["none", "layer", "batch", "given"])
def test_the_op_passes_opcheck(norm):
    tensors, options = arguments("relu", norm, "elu", rows=5)
    tensors["residual"] = None if norm == "none" else tensors["residual"]
    names = ("mean", "variance", "seed")
    given = [*tensors.values(), *(options.get(name) for name in names)]
    kinds = options["inner"], options["norm"], options["outer"]
    torch.library.opcheck(tail_op, (*given, *kinds, 1.5, 1e-5, options["dropout"]))


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_bits_do_not_depend_on_threads(norm, threads):
    tensors, options = arguments("relu", norm, "elu", rows=5000, width=30, dtype=torch.float32)
    threads(1)
    once = results(tail, tensors, options)
    for num_threads in (2, 3):
        threads(num_threads)
        for x, y in zip(once, results(tail, tensors, options), strict=True):
            assert torch.equal(x, y)


def test_what_is_dropped_depends_on_seed_and_entry_alone():
    x, seed = torch.ones(50, 13), torch.tensor(2**62 + 9)
    keep = reference.keep_mask(seed, 1, 50, 13, 0.4)[0]
    kept = tail(x, dropout=0.4, seed=seed)[0]
    assert torch.equal(kept, keep / 0.6)
    assert torch.equal(tail(x[:20], dropout=0.4, seed=seed)[0], kept[:20])


def test_numbers_that_are_not_finite_stay_where_the_reference_has_them():
    tensors, options = arguments("relu", "layer", "relu", rows=20, width=9, dtype=torch.float32)
    with torch.no_grad():
        tensors["x"][3, 2], tensors["x"][5, 1], tensors["residual"][7, 0] = (
            torch.nan, torch.inf, -torch.inf)  # fmt: skip
    expected = results(reference.tail, tensors, options)
    for ours, exact in zip(results(tail, tensors, options), expected, strict=True):
        assert torch.equal(ours.isfinite(), exact.isfinite())


def test_no_rows():
    tensors, options = arguments("relu", "layer", "none", rows=0)
    out, mean, _, dx, _, dweight, _ = results(tail, tensors, options)
    assert (out.shape, mean.shape, dx.shape) == ((0, 7), (0,), (0, 7))
    assert torch.equal(dweight, torch.zeros(7, dtype=torch.float64))


WRONG = {
    "residual must have shape": {"residual": torch.ones(4, 2)},
    "weight must have shape": {"weight": torch.ones(5)},
    "inner must be one of none, relu, elu": {"inner": "tanh"},
    "norm must be one of none, layer, batch": {"norm": "group"},
    "seed is missing, but dropout is 0.5": {"dropout": 0.5},
    "dropout must be a probability, but is 2": {"dropout": 2.0, "seed": torch.tensor(1)},
    "mean and variance must be given together": {"norm": "batch", "mean": torch.ones(3)},
}


@pytest.mark.native
@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_raises_an_error(message):
    with pytest.raises(ValueError, match=message):
        tail(torch.ones(4, 3), **WRONG[message])


SEQUENCES = {
    "residual": lambda: (nn.ReLU(), [nn.LayerNorm(12), Dropout(0.0)]),
    "batch": lambda: (None, [nn.BatchNorm1d(12), nn.ReLU()]),
    "moving": lambda: (None, [nn.BatchNorm1d(12, momentum=None, affine=False), nn.ELU()]),
    "without statistics": lambda: (nn.ELU(), [nn.BatchNorm1d(12, track_running_stats=False)]),
    "twice": lambda: (nn.ELU(), [nn.ELU(), nn.LayerNorm(12), nn.ReLU(), nn.LayerNorm(12)]),
    "others": lambda: (nn.Tanh(), [nn.Sequential(nn.ReLU(), nn.LayerNorm(12, bias=False)),
                                   nn.Linear(12, 5), nn.ELU(0.5), nn.LayerNorm(5)]),
}  # fmt: skip


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("name", SEQUENCES)
def test_the_module_equals_its_modules_one_after_the_other(name, adds):
    inner, modules = SEQUENCES[name]()
    with torch.no_grad():
        for each in nn.Sequential(*modules).parameters():
            each.add_(torch.rand_like(each))
    ours, plain = Tail(*modules, inner=inner), copy.deepcopy(nn.Sequential(*modules))
    assert ours.state_dict().keys() == plain.state_dict().keys()
    x, residual = (torch.randn(20, 12, requires_grad=True) for _ in range(2))
    for is_training in (True, True, False):
        ours.train(is_training), plain.train(is_training)
        h = x if inner is None else inner(x)
        out = ours(x, residual, 2.0) if adds else ours(x)
        expected = plain(residual + 2.0 * h if adds else h)
        torch.testing.assert_close(out, expected, rtol=2e-5, atol=2e-5)
        grads, exact = (
            torch.autograd.grad(y.sin().sum(), [x, *module.parameters()])
            for y, module in ((out, ours), (expected, plain))
        )
        for ours_grad, exact_grad in zip(grads, exact, strict=True):
            torch.testing.assert_close(ours_grad, exact_grad, rtol=1e-4, atol=1e-4)
        for key, value in plain.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[key], value)


def test_a_batch_of_one_row_raises_the_error_of_torch():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        Tail(nn.BatchNorm1d(3), nn.ReLU())(torch.ones(1, 3))


def test_dropout_is_off_in_evaluation_and_has_the_right_rate_in_training():
    module, x = Tail(nn.ReLU(), nn.Dropout(0.3)), torch.ones(1000, 50)
    assert float((module(x) == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert not torch.equal(module(x), module(x))
    assert torch.equal(module.eval()(x), x)


def test_hooks_are_called():
    seen, module = [], Tail(nn.LayerNorm(4), nn.ReLU())
    module[1].register_forward_hook(lambda *_: seen.append("relu"))
    module(torch.randn(3, 4))
    assert seen == ["relu"]


@pytest.mark.parametrize("module", [nn.ReLU(), nn.LayerNorm(8), nn.Dropout(0), nn.Sequential()])
def test_a_replaced_forward_is_called(module):
    module = copy.deepcopy(module)
    module.forward = lambda x: 7 * x
    x = torch.randn(5, 8)
    expected = torch.sigmoid(7 * x.relu())
    torch.testing.assert_close(Tail(nn.ReLU(), module, nn.Sigmoid())(x), expected)


def test_the_module_compiles():
    module, x = Tail(nn.LayerNorm(8), nn.ELU(), inner=nn.ReLU()), torch.randn(6, 8)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, x), module(x, x))


def test_an_inner_module_with_parameters_is_refused():
    with pytest.raises(ValueError, match="inner must have no parameters"):
        Tail(nn.ReLU(), inner=nn.Linear(3, 3))
