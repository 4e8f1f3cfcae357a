"""LinkNeighborLoader: batches as from PyG's, with reproducible samples and negatives."""

import math

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader
from torch_geometric.sampler import BaseSampler, NegativeSampling, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample

from dynagat import GATv2Conv, Graph
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes
from dynagat.sampling import LinkNeighborLoader, Neighbours

NUM_NODES, NUM_EDGES, NUM_LINKS = 200, 900, 101
GENERATOR = torch.Generator().manual_seed(2)
DATA = Data(
    x=torch.randn(NUM_NODES, 8, generator=GENERATOR),
    edge_index=torch.randint(0, NUM_NODES, (2, NUM_EDGES), generator=GENERATOR),
    edge_attr=torch.arange(NUM_EDGES)[:, None].float(),
)
LINKS = torch.randint(0, NUM_NODES, (2, NUM_LINKS), generator=GENERATOR)
LABELS = torch.arange(NUM_LINKS) % 3
GRAPH = Graph.from_edge_index(DATA.edge_index, NUM_NODES)
STORED = GraphData(
    "made-up",
    {NODE: Nodes(NUM_NODES, {"x": DATA.x.numpy()})},
    {EDGE: Edges(*DATA.edge_index.numpy())},
)
TRIPLET = {"mode": "triplet", "amount": 2}


class AllNeighbours(BaseSampler):
    """PyG's own sampling of links and labels; its compiled samplers are not installed here."""

    edge_permutation = None

    def __init__(self, hops=2):
        self.hops = hops

    def sample_from_nodes(self, index, **kwargs):
        raise NotImplementedError

    def sample_from_edges(self, index, neg_sampling=None):
        return edge_sample(index, self.expand, NUM_NODES, False, neg_sampling=neg_sampling)

    def expand(self, seeds, _time):
        nodes, edges, frontier = seeds.tolist(), [], set(seeds.tolist())
        for _ in range(self.hops):
            found = [e for e, i in enumerate(DATA.edge_index[1].tolist()) if i in frontier]
            keys = dict.fromkeys(DATA.edge_index[0, found].tolist())
            frontier = {key for key in keys if key not in nodes}
            nodes, edges = [*nodes, *frontier], edges + found
        local = {node: n for n, node in enumerate(nodes)}
        row, col = ([local[i] for i in side] for side in DATA.edge_index[:, edges].tolist())
        return SamplerOutput(*map(torch.tensor, (nodes, row, col, edges)))


def pyg_batches(links=LINKS, **options):
    return list(LinkLoader(DATA, AllNeighbours(), links, batch_size=30, **options))


def our_batches(data=DATA, links=LINKS, **options):
    return list(LinkNeighborLoader(data, [-1, -1], links, batch_size=30, **options))


def edges_of(batch):
    return sorted(map(tuple, batch.n_id[batch.edge_index].T.tolist()))


def assert_same_batches(one, other):
    assert len(one) == len(other)
    for x, y in zip(one, other, strict=True):
        assert x.keys() == y.keys()
        for name in x.keys():  # noqa: SIM118
            same = torch.equal if isinstance(x[name], torch.Tensor) else lambda a, b: a == b
            assert same(x[name], y[name]), name


# As from PyG


@pytest.mark.parametrize("labels", [None, LABELS, LABELS.float()[:, None]])
def test_batches_with_all_neighbours_equal_those_of_pyg(labels):
    ours, theirs = our_batches(edge_label=labels), pyg_batches(edge_label=labels)
    for our, their in zip(ours, theirs, strict=True):
        assert torch.equal(our.n_id.sort().values, their.n_id.sort().values)
        assert torch.equal(our.e_id.sort().values, their.e_id.sort().values)
        assert edges_of(our) == edges_of(their)
        assert torch.equal(our.n_id[our.edge_label_index], their.n_id[their.edge_label_index])
        assert torch.equal(our.edge_label_index, their.edge_label_index)
        assert torch.equal(our.input_id, their.input_id)
        assert torch.equal(our.x, DATA.x[our.n_id])
        assert torch.equal(our.edge_attr, DATA.edge_attr[our.e_id])
        assert ("edge_label" in our) == ("edge_label" in their) == (labels is not None)
        assert labels is None or torch.equal(our.edge_label, their.edge_label)
        assert set(our.keys()) - set(their.keys()) <= {"num_sampled_nodes", "num_sampled_edges"}
        assert set(their.keys()) <= set(our.keys())


@pytest.mark.parametrize("labels", [None, LABELS, LABELS + 1, torch.ones(NUM_LINKS)])
@pytest.mark.parametrize("amount", [1, 0.5, 2.3])
def test_labels_with_binary_negatives_are_those_of_pyg(labels, amount):
    options = {"edge_label": labels, "neg_sampling": {"mode": "binary", "amount": amount}}
    for our, their in zip(our_batches(**options), pyg_batches(**options), strict=True):
        count = len(our.input_id)
        assert torch.equal(our.edge_label, their.edge_label)
        assert our.edge_label.dtype == their.edge_label.dtype
        assert our.edge_label_index.shape == their.edge_label_index.shape
        assert our.edge_label.shape == (count + math.ceil(amount * count),)
        assert our.edge_label[:count].min() == 1
        ends = our.n_id[our.edge_label_index[:, :count]]
        assert torch.equal(ends, their.n_id[their.edge_label_index[:, :count]])


@pytest.mark.parametrize("amount", [1, 3])
def test_triplets_have_the_attributes_of_pyg(amount):
    options = {"neg_sampling": NegativeSampling("triplet", amount)}
    for our, their in zip(our_batches(**options), pyg_batches(**options), strict=True):
        links = torch.stack([our.src_index, our.dst_pos_index])
        assert torch.equal(our.n_id[links], LINKS[:, our.input_id])
        assert our.dst_neg_index.shape == their.dst_neg_index.shape
        assert set(their.keys()) <= set(our.keys())
        assert "edge_label_index" not in our
        assert "edge_label" not in our


def test_attributes_of_links_of_the_data_are_replaced():
    data = DATA.clone()
    data.edge_label_index, data.edge_label = LINKS, LABELS
    batch = our_batches(data)[0]
    assert batch.edge_label_index.shape == (2, 30)
    assert "edge_label" not in batch
    assert "edge_label_index" not in our_batches(data, neg_sampling="triplet")[0]
    assert data.edge_label_index is LINKS


@pytest.mark.parametrize("data", [DATA, GRAPH, STORED, Neighbours.from_graph(GRAPH)])
def test_without_links_all_edges_are_links(data):
    loader = LinkNeighborLoader(data, [1], batch_size=64)
    assert np.array_equal(loader.edge_label_index, DATA.edge_index)
    assert len(loader) == math.ceil(NUM_EDGES / 64)
    assert len(loader.dataset) == NUM_EDGES


# Negatives


def test_negatives_are_random_nodes_in_range():
    loader = LinkNeighborLoader(DATA, [1], LINKS, batch_size=NUM_LINKS, neg_sampling_ratio=30)
    (batch,) = loader
    drawn = batch.n_id[batch.edge_label_index[:, NUM_LINKS:]]
    assert drawn.shape == (2, 30 * NUM_LINKS)
    assert (drawn.min(), drawn.max()) == (0, NUM_NODES - 1)
    for side in drawn:
        counts = torch.bincount(side, minlength=NUM_NODES).double()
        expected = len(side) / NUM_NODES
        statistic = float(((counts - expected) ** 2 / expected).sum())  # chi-square, 199 degrees
        assert 120 < statistic < 300
    assert abs(np.corrcoef(*drawn.numpy())[0, 1]) < 0.06


@pytest.mark.parametrize(
    "given", ["binary", ("binary", 1), {"mode": "binary"}, NegativeSampling("binary")]
)
def test_every_form_of_negative_sampling_means_the_same(given):
    expected = our_batches(neg_sampling_ratio=1.0)
    assert_same_batches(our_batches(neg_sampling=given), expected)
    assert not torch.equal(expected[0].n_id, our_batches(neg_sampling_ratio=0)[0].n_id)


def test_the_second_nodes_of_a_triplet_follow_each_other():
    triplets = our_batches(neg_sampling=TRIPLET)
    pairs = our_batches(STORED, neg_sampling=TRIPLET)
    for data, batch in zip(triplets, pairs, strict=True):
        count = len(data.src_index)
        links, negatives = batch.pairs[:count], batch.pairs[count:].view(count, 2, 2)
        assert torch.equal(links.T, torch.stack([data.src_index, data.dst_pos_index]))
        assert torch.equal(negatives[..., 1], data.dst_neg_index)
        assert torch.equal(negatives[..., 0], data.src_index[:, None].expand(count, 2))
        assert batch.pair_label.tolist() == [1] * count + [0] * 2 * count


# Epochs


def make_loader(**options):
    given = {"batch_size": 16, "shuffle": True, "seed": 5, "neg_sampling": "binary"}
    return LinkNeighborLoader(DATA, [3, 2], LINKS, LABELS, **given | options)


def test_batches_do_not_depend_on_threads_or_prefetching(threads):
    threads(1)
    expected = list(make_loader(prefetch=0))
    for count in (1, 3):
        threads(count)
        for prefetch in (0, 1, 5):
            assert_same_batches(list(make_loader(prefetch=prefetch)), expected)
    assert_same_batches(list(make_loader(num_workers=0)), expected)


def test_epochs_differ_in_order_and_negatives_and_each_can_be_repeated():
    for shuffle in (True, False):
        loader = make_loader(shuffle=shuffle)
        first, second = list(loader), list(loader)
        seen = torch.cat([batch.input_id for batch in first])
        assert torch.equal(seen.sort().values, torch.arange(NUM_LINKS))
        assert torch.equal(seen, torch.arange(NUM_LINKS)) != shuffle
        one, other = (batch.n_id[batch.edge_label_index][:, 16:] for batch in (first[0], second[0]))
        assert not torch.equal(one, other)
        loader.set_epoch(0)
        assert_same_batches(list(loader), first)
        assert_same_batches(list(loader), second)


def test_other_seeds_and_batches_have_other_negatives():
    batches = [*make_loader(shuffle=False), *make_loader(shuffle=False, seed=6)]
    negatives = {tuple(b.n_id[b.edge_label_index[0, len(b.input_id) :]].tolist()) for b in batches}
    assert len(negatives) == len(batches) == 14


def test_the_last_batch_may_be_dropped_and_batches_transformed():
    sizes = list(make_loader(drop_last=True, transform=lambda batch: len(batch.input_id)))
    assert sizes == [16] * 6


# Our batches


@pytest.mark.parametrize("data", [GRAPH, STORED], ids=["Graph", "GraphData"])
def test_a_batch_of_a_graph_has_the_pairs_of_its_data(data):
    given = {"edge_label": LABELS, "neg_sampling": "binary", "seed": 3, "shuffle": True}
    for batch, their in zip(our_batches(data, **given), our_batches(**given), strict=True):
        assert torch.equal(batch.pairs.T, their.edge_label_index)
        assert batch.pair_label.dtype == torch.float
        assert batch.pair_label.tolist() == their.edge_label.tolist()
        ends = batch.node_id[: batch.num_seeds]
        assert torch.equal(ends, batch.node_id[batch.pairs].unique())
        turned = batch.to_pyg()
        assert "batch_size" not in turned
        for name in ("n_id", "e_id", "edge_index", "edge_label_index", "input_id"):
            assert torch.equal(turned[name], their[name])


@pytest.mark.parametrize(
    ("data", "layered"), [(DATA, True), (STORED, True), (STORED, False), (GRAPH, True)]
)
def test_pairs_are_rows_of_the_output_of_the_layers(data, layered):
    layers = [GATv2Conv(8, 4, heads=2, add_self_loops=False) for _ in range(2)]
    expected = DATA.x
    for layer in layers:
        expected = layer(expected, GRAPH)
    loader = LinkNeighborLoader(
        data, [-1, -1], LINKS, batch_size=40, layered=layered, neg_sampling="binary"
    )
    for batch in loader:
        x = DATA.x[batch.node_id]
        for layer, graph in zip(layers, batch.graphs, strict=True):
            x = layer((x, x[: graph.num_queries]), graph)
        assert len(x) == batch.num_seeds > batch.pairs.max()
        torch.testing.assert_close(x[batch.pairs], expected[batch.node_id[batch.pairs]])
        is_link = batch.pair_label == 1
        assert torch.equal(batch.node_id[batch.pairs[is_link]], LINKS.T[batch.input_id])


def test_pairs_without_labels_or_negatives_have_no_label():
    batch = our_batches(GRAPH)[0]
    assert batch.pair_label is None
    assert torch.equal(batch.node_id[batch.pairs].T, LINKS[:, :30])


def test_links_may_be_a_read_only_array_of_int32():
    links = LINKS.numpy().astype(np.int32)
    links.flags.writeable = False
    assert_same_batches(our_batches(links=links), our_batches())


# Wrong arguments


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"edge_label_index": torch.tensor([[0], [200]])}, ValueError,
         r"edge_label_index must lie in \[0, 200\), but has 200"),
        ({"edge_label_index": torch.tensor([[0], [-1]])}, ValueError, "but has -1"),
        ({"edge_label_index": LINKS.T}, ValueError, r"shape \[2, links\], but has \[101, 2\]"),
        ({"edge_label_index": LINKS[:, :0]}, ValueError, "at least one link, but is empty"),
        ({"edge_label_index": LINKS.float()}, TypeError, "edge_label_index must hold int32"),
        ({"edge_label_index": ("a", "to", "b")}, TypeError, r"tensor of shape \[2, links\], but"),
        ({"edge_label": LABELS[:50]}, ValueError, r"101 labels, but has shape \[50\]"),
        ({"edge_label": LABELS, "neg_sampling": "triplet"}, ValueError, "None for triplets"),
        ({"neg_sampling_ratio": -1}, ValueError, "neg_sampling_ratio must be a number above 0"),
        ({"neg_sampling": ("binary", 0)}, ValueError, "amount of .* above 0, but is 0"),
        ({"neg_sampling": ("triplet", 1.5)}, ValueError, "integer for triplets, but is 1.5"),
        ({"neg_sampling": "ternary"}, ValueError, "'binary' or 'triplet', but has 'ternary'"),
        ({"neg_sampling": {"mode": "binary", "ratio": 2}}, ValueError, "but has 'ratio'"),
        ({"neg_sampling": NegativeSampling("binary", 1, torch.ones(200))}, ValueError,
         "src_weight of neg_sampling must be None"),
        ({"neg_sampling": "binary", "neg_sampling_ratio": 1}, ValueError, "must not both be"),
        ({"edge_label_time": LABELS}, ValueError, "edge_label_time must be None"),
        ({"disjoint": True}, ValueError, "disjoint must be False"),
        ({"batch_size": 0}, ValueError, "batch_size must be an integer of 1 or more, but is 0"),
        ({"data": HeteroData()}, TypeError, "is a HeteroData"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(options, error, text):
    given = {"data": DATA, "num_neighbors": [2], "edge_label_index": LINKS, **options}
    with pytest.raises(error, match=text):
        LinkNeighborLoader(**given)
