"""Features that are mostly zero: the product without zeros equals the dense one."""

import gc

import pytest
import torch
import torch.nn.functional as F

import dynagat
from dynagat.native import kernels
from dynagat.ops import sparse
from dynagat.ops.head_scores import with_scores
from dynagat.ops.project import project

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore:Sparse CS")]


def made(rows=400, columns=200, out=13, density=0.05, dtype=torch.float64):
    """x with empty rows and columns, a weight and a bias."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    x *= torch.rand(rows, columns, generator=generator) < density
    x[: rows // 4], x[:, : columns // 4] = 0, 0
    weight, bias = (torch.randn(s, generator=generator) for s in ((out, columns), (out,)))
    return x.to(dtype), weight.to(dtype).requires_grad_(), bias.to(dtype).requires_grad_()


def results(out, weight, bias):
    gradient = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view(out.shape)
    return [out.detach(), *torch.autograd.grad(out, (weight, bias), gradient.to(out.dtype))]


@pytest.mark.parametrize("out", [1, 7, 8, 64, 100])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.19])
def test_the_product_equals_the_dense_one(out, density):
    x, weight, bias = made(out=out, density=density)
    found = sparse.find(x)
    assert found is not None
    pairs = zip(
        results(sparse.project(found, weight, bias), weight, bias),
        results(F.linear(x, weight, bias), weight, bias),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def test_float32_errs_by_no_more_than_twice_the_dense_product():
    x, weight, bias = made(2_000, 300, 64, dtype=torch.float32)
    exact = F.linear(x.double(), weight.double(), bias.double())
    error, own = (
        (out - exact).abs().max() for out in (F.linear(x, weight, bias), project(x, weight, bias))
    )
    assert sparse.find(x) is not None
    assert own <= 2 * error


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_the_entries_of_a_sparse_tensor_have_gradients(layout):
    x, weight, bias = made(30, 20, 9)
    given = x.to_sparse(layout=layout).requires_grad_()
    entries = sparse.find(given)
    values = entries.values.detach().requires_grad_()

    def call(v, w, b):
        return sparse.project(sparse.Sparse(entries.pattern, v), w, b)

    assert torch.autograd.gradcheck(call, (values, weight, bias))
    gradient = torch.randn(30, 9, dtype=torch.float64)
    (dx,) = torch.autograd.grad(project(given, weight, bias), given, gradient)
    expected = (gradient @ weight) * (x != 0)
    torch.testing.assert_close(dx.to_dense(), expected)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_a_sparse_tensor_with_many_entries_is_made_dense_once(layout):
    x, weight, bias = made(density=0.8)
    given = x.to_sparse(layout=layout)
    with torch.inference_mode():
        project(given, weight, bias)
    dense = sparse.to_dense(given)
    assert sparse.find(given) is None
    assert sparse.to_dense(given) is dense
    pairs = zip(
        results(project(given, weight, bias), weight, bias),
        results(F.linear(x, weight, bias), weight, bias),
        strict=True,
    )
    assert all(torch.equal(one, other) for one, other in pairs)
    dropped = []
    for each in (given, x):
        torch.manual_seed(0)
        dropped.append(dynagat.dropout(each, 0.5))
    assert torch.equal(*dropped)
    given.values().mul_(2)
    torch.testing.assert_close(sparse.to_dense(given), 2 * x)
    assert sparse.find(given.requires_grad_()) is not None


def test_a_matrix_is_counted_again_after_a_change_and_forgotten_with_it(monkeypatch):
    x, calls, count = made()[0], [], sparse._count
    monkeypatch.setattr(sparse, "_count", lambda x: calls.append(x.shape) or count(x))
    first = sparse.find(x)
    assert sparse.find(x) is first
    x[3, 3] = 5.0
    assert torch.equal(sparse.find(x).values, x[x != 0])
    assert len(calls) == 2
    x += 1
    assert sparse.find(x) is None
    size = len(sparse._known)
    del x
    gc.collect()
    assert len(sparse._known) < size


def test_what_is_dense_small_differentiable_or_half_is_left_to_the_dense_product():
    x, _, _ = made()
    assert sparse.find(x) is not None
    assert sparse.find(torch.randn(400, 200)) is None
    assert sparse.find(x[:50].clone()) is None
    assert sparse.find(x.t()) is None
    assert sparse.find(x.clone().requires_grad_()) is None
    assert sparse.find(x.bfloat16()) is None


def test_the_bits_do_not_depend_on_the_number_of_threads():
    x, weight, bias = made(1_000, 300, 64, dtype=torch.float32)
    threads, found = torch.get_num_threads(), []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(results(project(x, weight, bias), weight, bias))
    torch.set_num_threads(threads)
    for each in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(each, found[0], strict=True))


def test_nan_features_are_entries_and_zeros_hide_nan_weights():
    x, weight, bias = made()
    x[200, 100] = torch.nan
    weight.data[:, 150] = torch.inf
    out, expected = project(x, weight, bias), F.linear(x, weight, bias)
    assert out[200].isnan().all()
    rows = (x[:, 150] == 0).nonzero()[:, 0]
    assert out[rows[rows != 200]].isfinite().all()
    assert not expected[rows].isfinite().any()


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
def test_indices_out_of_range_are_an_error(layout):
    shape = (4, 3)
    if layout == torch.sparse_coo:
        index = torch.tensor([[0, 3], [1, 7]])
        x = torch.sparse_coo_tensor(index, torch.ones(2), shape, check_invariants=False)
        x = x._coalesced_(True)
    else:
        rows, columns = torch.tensor([0, 1, 1, 2, 2]), torch.tensor([1, 7])
        x = torch.sparse_csr_tensor(rows, columns, torch.ones(2), shape, check_invariants=False)
    with pytest.raises(ValueError, match=r"columns of a sparse x must lie in \[0, 3\), but hold 7"):
        sparse.find(x)


def test_the_kernels_check_every_index():
    table, values, out = torch.ones(3, 8), torch.ones(2), torch.zeros(2, 8)

    def call(pointers, index, position):
        arrays = [torch.tensor(a, dtype=torch.int32) for a in (pointers, index, position)]
        addresses = [array.data_ptr() for array in arrays]
        sizes = [2, 3, 2]
        kernels.sparse_product(
            addresses, sizes, values.data_ptr(), table.data_ptr(), 8, 0, out.data_ptr(), False, 1
        )

    call([0, 1, 2], [0, 2], [1, 0])
    assert out.sum() == 16
    for bad in (
        ([0, 3, 2], [0, 2], [1, 0]),
        ([-1, 1, 2], [0, 2], [1, 0]),
        ([0, 1, 2], [0, 3], [1, 0]),
        ([0, 1, 2], [0, -1], [1, 0]),
        ([0, 1, 2], [0, 2], [1, 2]),
    ):
        with pytest.raises(ValueError, match="index that is out of range"):
            call(*bad)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "DPGATConv"])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, None], ids=str)
def test_a_layer_takes_sparse_features(kind, layout):
    x, _, _ = made()
    edges = torch.randint(0, 400, (2, 900))
    layer = getattr(dynagat, kind)(200, 5, heads=3, residual=True).double()
    dense = x.clone().requires_grad_()  # takes the dense product
    expected = layer(dense, edges)
    given = x if layout is None else x.to_sparse(layout=layout)
    torch.testing.assert_close(layer(given, edges), expected)
    pair = getattr(dynagat, kind)((200, 200), 5, add_self_loops=False).double()
    torch.testing.assert_close(pair((given, given), edges), pair((dense, dense), edges))
    related = getattr(dynagat, kind)(200, 5, num_relations=2).double()
    relation = torch.arange(900) % 2
    out = related(given, edges, relation=relation)
    torch.testing.assert_close(out, related(dense, edges, relation=relation))


def test_a_sparse_x_of_another_layout_is_an_error():
    layer = dynagat.GATv2Conv(200, 5)
    x = made(dtype=torch.float32)[0].to_sparse_csc()
    with pytest.raises(ValueError, match=r"COO or CSR, but has the layout torch\.sparse_csc"):
        layer(x, torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(
        ValueError, match="x must have single numbers as its entries, but has whole"
    ):
        layer(made(dtype=torch.float32)[0].to_sparse(1), torch.zeros(2, 1, dtype=torch.long))


@pytest.mark.parametrize(
    ("shape", "offset"),
    [
        ((5, 2, 3), None),
        ((300, 8, 8), None),
        ((2, 40, 1, 11), None),
        ((600, 8, 8), (0, 270, 270, 599, 600)),  # rows of four relations; the second has none
    ],
)
def test_the_scores_of_gat_are_dot_products(shape, offset):
    value = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    counts = torch.tensor(offset or (0, shape[0])).diff()
    vectors = torch.randn(2, len(counts), *shape[-2:], dtype=torch.float64).unbind()
    vectors = [vector.requires_grad_() for vector in vectors]
    by_row = [vector.repeat_interleave(counts, 0) for vector in vectors] if offset else vectors
    plain = [(value * vector).sum(-1) for vector in by_row]
    found = with_scores(value, *vectors, offset)
    for one, other in zip(found, (*plain, value), strict=True):
        torch.testing.assert_close(one, other)
    weights = [torch.randn_like(out) for out in found]
    tensors = (value, *vectors)
    expected = torch.autograd.grad([*plain, value * 1.0], tensors, weights)
    for one, other in zip(torch.autograd.grad(found, tensors, weights), expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("offset", [None, (0, 1, 1, 4)])
def test_the_scores_of_gat_have_a_second_derivative(offset):
    vector = (3 if offset else 1, 2, 3)
    value, a, b = (torch.randn(s, dtype=torch.float64) for s in ((4, 2, 3), vector, vector))
    tensors = [tensor.requires_grad_() for tensor in (value, a, b)]

    def call(*tensors):
        query, key, same = with_scores(*tensors, offset)
        return query * key, same**2

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, None], ids=str)
@pytest.mark.parametrize("is_inference", [False, True])
def test_what_is_found_in_inference_mode_serves_training_too(layout, is_inference):
    x, weight, bias = made()
    given = x if layout is None else x.to_sparse(layout=layout)
    expected = F.linear(x, weight, bias)
    with torch.inference_mode():
        inference = given.clone() if is_inference else given
        torch.testing.assert_close(project(inference, weight, bias), expected)
        dropped = dynagat.dropout(x, 0.5)
        torch.testing.assert_close(project(dropped, weight, bias), F.linear(dropped, weight, bias))
    for one, other in zip(
        results(project(given, weight, bias), weight, bias),
        results(expected, weight, bias),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_entries_with_duplicates_are_added_in_inference_mode():
    x, weight, bias = made()
    half = (x / 2).to_sparse()
    index, values = half.indices().repeat(1, 2), half.values().repeat(2)
    twice = torch.sparse_coo_tensor(index, values, x.shape, check_invariants=True)
    with torch.inference_mode():
        torch.testing.assert_close(project(twice, weight, bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize("density", [0.05, 0.5])
@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_compiled_layer_takes_sparse_features(layout, density, has_gradient):
    torch.compiler.reset()
    x, _, _ = made(density=density)
    edges = torch.randint(0, 400, (2, 900))
    layer = dynagat.GATv2Conv(200, 8, heads=8, residual=True).double()
    compiled = torch.compile(layer, backend="aot_eager")
    given = x.to_sparse(layout=layout).requires_grad_(has_gradient)
    out = compiled(given, edges)
    torch.testing.assert_close(out, layer(x, edges))
    out.sum().backward()
    assert (given.grad is not None) == has_gradient
    torch.testing.assert_close(compiled(x, edges), out)
