"""The theorems' witnesses hold for any input; corrupted ones fail, and bad input is an error."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagat import DPGATConv, GATConv, GATv2Conv
from dynagat.analysis import theory
from dynagat.analysis.theory import Certificate

few = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31)
MAPPINGS = {
    "random": lambda n: torch.randint(n, (n,)),
    "constant": lambda n: torch.full((n,), n - 1),
    "cyclic": lambda n: torch.arange(n).roll(-1),
    "permutation": torch.randperm,
    "identity": torch.arange,
}
mappings = st.sampled_from(sorted(MAPPINGS))


def nodes(n, d, seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return torch.randn(n, d, dtype=dtype)


def collinear():
    return torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)


# Theorem 1


@few
@given(
    seed=seeds, n=st.integers(1, 30), d=st.integers(1, 6), scale=st.sampled_from([1e-3, 1.0, 1e3]),
    dtype=st.sampled_from([torch.float32, torch.float64]), loops=st.booleans(),
)  # fmt: skip
def test_every_query_of_a_gat_layer_ranks_the_keys_in_one_order(seed, n, d, scale, dtype, loops):
    x = scale * nodes(n, d, seed, dtype)
    layer = GATConv(d, 4, heads=3, add_self_loops=loops).to(dtype)
    witness = theory.static_keys(layer, x)
    assert witness.check()
    weight = theory.attention(layer, x)  # [queries, keys, H]
    for head, key in enumerate(witness.keys):
        top = weight[:, :, head].amax(1)
        torch.testing.assert_close(weight[:, key, head], top, rtol=1e-6, atol=0)


def test_the_static_key_maximises_a_src_w_x():
    layer, x = GATConv(3, 4, heads=2).double(), nodes(9, 3)
    by_key = (layer.lin(x).view(-1, 2, 4) * layer.att_src).sum(-1)
    assert torch.equal(theory.static_keys(layer, x).keys, by_key.argmax(0))


def test_a_changed_ranking_fails():
    witness = theory.static_keys(GATConv(3, 4, heads=2).double(), nodes(9, 3))
    assert witness.check()
    assert not replace(witness, ranking=witness.ranking.flip(1)).check()
    assert not replace(witness, ranking=witness.ranking.roll(1, 1)).check()
    assert not replace(witness, ranking=witness.ranking[:, :1].expand(-1, 9)).check()
    assert not replace(witness, x=nodes(9, 3, seed=1)).check()
    with torch.no_grad():
        witness.layer.att_src.neg_()
    assert not witness.check()


def test_static_keys_require_a_plain_gat_layer():
    x = nodes(4, 3)
    with pytest.raises(TypeError, match="layer must be a GATConv, but is a GATv2Conv"):
        theory.static_keys(GATv2Conv(3, 4).double(), x)
    with pytest.raises(ValueError, match="layer must have no edge_dim, but has edge_dim=2"):
        theory.static_keys(GATConv(3, 4, edge_dim=2).double(), x)
    with pytest.raises(ValueError, match="no num_relations, but has num_relations=5"):
        theory.static_keys(GATConv(3, 4, num_relations=5).double(), x)
    with pytest.raises(ValueError, match=r"monotonic LeakyReLU, but its negative_slope is -0\.5"):
        theory.static_keys(GATConv(3, 4, negative_slope=-0.5).double(), x)
    with pytest.raises(ValueError, match=r"x must be \[n, d\], but has shape \[4\]"):
        theory.static_keys(GATConv(3, 4).double(), x[:, 0])


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("kind", [GATConv, GATv2Conv, DPGATConv])
def test_attention_is_indexed_by_query_then_key_with_and_without_loops(kind, loops, flow):
    torch.manual_seed(0)
    layer = kind(3, 4, heads=2, add_self_loops=loops, flow=flow).double()
    x = nodes(5, 3)
    weight = theory.attention(layer, x)
    torch.testing.assert_close(weight.sum(1), torch.ones(5, 2, dtype=torch.float64))
    if kind is GATv2Conv:
        torch.testing.assert_close(weight, theory.scores(layer, x).softmax(1).detach())


# Theorem 2


@few
@given(seed=seeds, n=st.integers(2, 64), d=st.integers(1, 16), kind=mappings)
def test_gatv2_selects_any_mapping_of_any_nodes(seed, n, d, kind):
    witness = theory.select(nodes(n, d, seed), MAPPINGS[kind](n))
    assert witness.check()
    assert (witness.margins() > 0.75 * theory.SHARPNESS).all()


@few
@given(seed=seeds, kind=mappings, data=st.data())
def test_gatv2_selects_any_mapping_of_integer_nodes(seed, kind, data):
    """Grids, repeated coordinates and large offsets, where most lines do not separate the nodes."""
    d = data.draw(st.integers(1, 4))
    row = st.tuples(*[st.integers(-50, 50)] * d)
    rows = data.draw(st.lists(row, min_size=2, max_size=20, unique=True))
    torch.manual_seed(seed)
    x = torch.tensor(rows, dtype=torch.float64) + data.draw(st.sampled_from([0, 1000]))
    assert theory.select(x, MAPPINGS[kind](len(rows))).check()


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("d", [1, 4, 16])
def test_gatv2_distinguishes_nearly_equal_nodes(distance, d):
    x = 1 + distance * nodes(8, d)
    for make in MAPPINGS.values():
        assert theory.select(x, make(8)).check()


def test_gatv2_distinguishes_two_close_nodes_among_distant_ones():
    x = nodes(6, 3)
    x[4] = x[1] + 1e-5 * nodes(1, 3, seed=1)
    assert theory.select(x, [4, 1, 4, 1, 1, 4]).check()


def test_each_score_of_a_selection_is_one_hat():
    witness = theory.select(nodes(5, 2), [3, 3, 0, 1, 4])
    hats = theory.SHARPNESS * torch.eye(5, dtype=torch.float64)[witness.mapping]
    scores = theory.scores(witness.layer, witness.x)[..., 0]
    torch.testing.assert_close(scores.detach(), hats, rtol=0, atol=1e-9)


def test_selecting_does_not_change_the_random_state():
    state = torch.get_rng_state()
    theory.select(collinear(), [0, 1, 2])
    theory.certificates(seed=3)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "name", ["att", "lin_l.weight", "lin_r.weight", "lin_l.bias", "lin_r.bias"]
)
def test_a_selection_with_a_changed_parameter_fails(name):
    witness = theory.select(nodes(6, 3), [5, 4, 3, 2, 1, 0])
    assert witness.check()
    with torch.no_grad():
        witness.layer.get_parameter(name).mul_(-1)
    assert not witness.check()


@pytest.mark.parametrize("make", [theory.select, theory.select_by_dot])
def test_a_selection_of_another_mapping_or_of_other_nodes_fails(make):
    witness = make(nodes(6, 8), [5, 4, 3, 2, 1, 0])
    for query in range(6):
        other = witness.mapping.clone()
        other[query] = (other[query] + 1) % 6
        assert not replace(witness, mapping=other).check()
    assert not replace(witness, x=witness.x.roll(1, 0)).check()


@pytest.mark.parametrize("make", [theory.select, theory.select_by_dot])
def test_nodes_and_mappings_are_checked(make):
    x = nodes(8, 9)
    x[7] = x[3]
    with pytest.raises(ValueError, match="x must have distinct rows, but rows 3 and 7 are equal"):
        make(x, range(8))
    with pytest.raises(ValueError, match="x must have at least two rows, but has 1"):
        make(x[:1], [0])
    with pytest.raises(ValueError, match="x must be finite, but contains inf"):
        make(x.abs() / 0, range(8))
    with pytest.raises(ValueError, match=r"mapping must lie in \[0, 3\), but contains 3"):
        make(x[:3], [0, 1, 3])
    with pytest.raises(ValueError, match=r"mapping must be 3 integers.* but is \[2\] of"):
        make(x[:3], [0, 1])
    with pytest.raises(ValueError, match=r"mapping must be .* but is \[3\] of torch.float32"):
        make(x[:3], [0.0, 1.0, 2.0])


def test_nodes_that_float64_can_not_distinguish_are_an_error():
    x = torch.tensor([[1.0], [1.0 + 1e-15], [2.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match="the closest differ by only 6e-16 of their size"):
        theory.select(x, [0, 1, 2])


# The remark


@few
@given(
    seed=seeds, bias=st.booleans(), scale=st.sampled_from([1e-3, 1.0, 1e3]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_shared_weights_never_realise_a_cycle(seed, bias, scale, dtype):
    """No tolerance: scores are symmetric bit by bit, and the sign of a difference is exact."""
    x = scale * nodes(3, 4, seed, dtype)
    layer = GATv2Conv(4, 8, heads=16, share_weights=True, bias=bias).to(dtype)
    scores = theory.scores(layer, x)
    assert torch.equal(scores, scores.transpose(0, 1))
    assert (theory.cycle_margins(layer, x).amin(0) <= 0).all()


@pytest.mark.parametrize("share_weights", [True, False])
def test_the_margins_of_a_cycle_follow_from_the_layers_attention(share_weights):
    layer = GATv2Conv(4, 8, heads=5, share_weights=share_weights).double()
    x = nodes(3, 4)
    log = theory.attention(layer, x).log()
    own = torch.stack([log[0, 1] - log[0, 2], log[1, 2] - log[1, 0], log[2, 0] - log[2, 1]])
    torch.testing.assert_close(theory.cycle_margins(layer, x).detach(), own)


def test_a_search_finds_the_cycle_with_unshared_weights_only():
    x = nodes(3, 4)
    result = {
        share: theory.cycle_margins(theory.search_cycle(x, share_weights=share, restarts=4), x)
        for share in (True, False)
    }
    assert result[True].amin(0).max() <= 0 < result[False].amin(0).max()


def test_a_cycle_has_three_nodes():
    with pytest.raises(ValueError, match="x must have three rows, the nodes of a cycle, but has 4"):
        theory.cycle_margins(GATv2Conv(2, 4).double(), nodes(4, 2))
    with pytest.raises(TypeError, match="layer must be a GATv2Conv, but is a GATConv"):
        theory.cycle_margins(GATConv(2, 4).double(), nodes(3, 2))


# Theorem 3


@few
@given(seed=seeds, n=st.integers(2, 40), more=st.integers(0, 10), kind=mappings)
def test_dpgat_selects_any_mapping_of_independent_nodes(seed, n, more, kind):
    witness = theory.select_by_dot(nodes(n, n + more, seed), MAPPINGS[kind](n))
    assert witness.check()
    margin = torch.full((n,), n**-0.5, dtype=torch.float64)
    torch.testing.assert_close(witness.margins(), margin, rtol=1e-4, atol=0)


def test_dependent_nodes_are_an_error():
    message = "x must have linearly independent rows, but its 3 rows have rank 2"
    with pytest.raises(ValueError, match=message):
        theory.select_by_dot(collinear(), [1, 1, 1])


@few
@given(seed=seeds, place=st.floats(1e-3, 1 - 1e-3), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_dpgat_never_selects_a_key_between_two_others(seed, place, scale):
    first, last, *queries = scale * nodes(12, 3, seed)
    layer = DPGATConv(3, 4, heads=20, add_self_loops=False).double()
    witness = theory.middle_key_bound(layer, torch.stack(queries), first, last, place)
    assert witness.check()
    assert (witness.margins() <= 1e-9).all()


def test_a_key_off_the_line_fails_the_bound():
    first, last, *queries = nodes(12, 3)
    layer = DPGATConv(3, 4, heads=20, add_self_loops=False).double()
    witness = theory.middle_key_bound(layer, torch.stack(queries), first, last, 0.3)
    assert witness.check()
    assert not replace(witness, place=torch.tensor(0.4, dtype=torch.float64)).check()
    assert not replace(witness, keys=witness.keys.roll(1, 0)).check()
    off = witness.keys + torch.tensor([[0.0], [1e-6], [0.0]], dtype=torch.float64)
    assert not replace(witness, keys=off).check()


def test_the_middle_key_must_be_between_and_queries_must_not_be_keys():
    x = collinear()
    layer = DPGATConv(2, 2, add_self_loops=False).double()
    with pytest.raises(ValueError, match="place must lie strictly between 0 and 1, but is 1"):
        theory.middle_key_bound(layer, x, x[0], x[2], 1.0)
    with pytest.raises(ValueError, match="layer must have add_self_loops=False"):
        theory.middle_key_bound(DPGATConv(2, 2).double(), x, x[0], x[2], 0.5)
    with pytest.raises(TypeError, match="layer must be a DPGATConv, but is a GATv2Conv"):
        theory.middle_key_bound(GATv2Conv(2, 2).double(), x, x[0], x[2], 0.5)


def test_gatv2_selects_the_middle_key_that_dpgat_can_not():
    assert theory.select(collinear(), [1, 1, 1]).check()


# Certificates


@pytest.mark.parametrize("seed", [0, 1])
def test_every_theorem_is_shown(seed):
    result = theory.certificates(seed)
    assert [certificate.name for certificate in result] == [
        "Theorem 1", "Theorem 2", "Remark", "Theorem 3", "Counterexample",
    ]  # fmt: skip
    assert all(certificate.shown for certificate in result), "\n".join(map(str, result))


def test_certificates_are_deterministic():
    assert theory.certificates(5) == theory.certificates(5)


def test_a_certificate_prints_a_line_and_its_facts():
    certificate = Certificate("Theorem 1", "GAT is static", True, ("3 of 3 heads", "no ties"))
    assert str(certificate) == "Theorem 1 (GAT is static): shown\n  3 of 3 heads\n  no ties"
    assert str(replace(certificate, shown=False, facts=())).endswith(": NOT shown")


def test_a_theorem_with_a_wrong_witness_is_not_shown(monkeypatch):
    """A reversed ranking makes the witness, and therefore the certificate, fail."""
    wrong = theory.static_keys
    monkeypatch.setattr(theory, "static_keys", lambda layer, x: replace(
        wrong(layer, x), ranking=wrong(layer, x).ranking.flip(1)))  # fmt: skip
    assert not theory.gat_is_static().shown
