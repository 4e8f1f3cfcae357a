"""Readers of known formats: published counts, PyG's own readers, round trips, and bad files."""

import gzip
import os
import pickle
import shutil
import struct
import warnings
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from bench.synthetic_ogb import make_ogb
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix
from torch_geometric.data import Data, HeteroData

from dynagat.data.npz import read_npz
from dynagat.data.ogb import SETS, read_ogb
from dynagat.data.pickles import read_pickle, read_torch_pickle
from dynagat.data.planetoid import PARTS, read_planetoid
from dynagat.data.pyg import from_pyg
from dynagat.data.store import EDGE, NODE, Edges, GraphData, Nodes
from dynagat.data.texts import Texts

SMALL = {"ogbn-arxiv": 400, "ogbn-mag": 3490, "ogbn-products": 470, "ogbn-proteins": 60,
         "ogbl-collab": 200, "ogbl-citation2": 200, "ogbl-ddi": 50}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory):
    """Create each synthetic dataset once, and return a copy that a test may damage."""
    whole = {}

    def make(name, into):
        if name not in whole:
            whole[name] = make_ogb(name, tmp_path_factory.mktemp(name) / name, nodes=SMALL[name])
        shutil.copytree(whole[name], into / name)
        return into / name

    return make


def data_folder(name):
    return Path(os.environ["DYNAGAT_DATA"]) / name


def write_gz(path, text):
    path.write_bytes(gzip.compress(text.encode()))


def lines_of(path):
    return gzip.decompress(path.read_bytes()).decode().splitlines()


# Planetoid


def dense(rows):
    return np.array(rows, np.float32)


def write_planetoid(folder, **changed):
    """Five nodes, the last two for test in reverse order; node 4 has a loop and a double edge."""
    folder.mkdir(exist_ok=True)
    graph = defaultdict(list, {0: [1], 1: [0, 2], 2: [1], 3: [4], 4: [3, 3, 4]})
    parts = {"x": dense([[1, 0]]), "y": dense([[1, 0]]), "tx": dense([[5, 5], [4, 4]]),
             "ty": dense([[0, 1], [0, 0]]), "allx": dense([[1, 0], [2, 0], [3, 0]]),
             "ally": dense([[1, 0], [0, 1], [1, 0]]), "graph": graph}  # fmt: skip
    for part, value in {**parts, **changed}.items():
        (folder / f"ind.tiny.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.tiny.test.index").write_text(changed.get("test", "4\n3\n"))
    return folder


@pytest.fixture
def one_valid(monkeypatch):
    monkeypatch.setattr("dynagat.data.planetoid.NUM_VALID", 2)


def test_planetoid_test_nodes_are_placed_by_the_index(tmp_path, one_valid):
    data = read_planetoid(write_planetoid(tmp_path / "f"))
    assert data.name == "tiny"
    assert data.x[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert data.y.tolist() == [0, 1, 0, -1, 1]  # the class of node 3 is unknown
    assert {part: index.tolist() for part, index in data.split.items()} == {
        "train": [0], "valid": [1, 2], "test": [4, 3],
    }  # fmt: skip
    pairs = set(zip(data.sole_edges.key_index, data.sole_edges.query_index, strict=True))
    assert pairs == {(0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3)}
    assert data.num_edges == 6


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": Path("evil")}, r"ind\.tiny\.y holds a pathlib.* may hold only arrays"),
        ({"y": print}, r"ind\.tiny\.y holds a (__builtin__|builtins)\.print"),
        ({"ty": dense([[1, 0]])}, r"ind\.tiny\.ty must have shape \(2, 2\), but has \(1, 2\)"),
        ({"graph": {0: [7]}}, r"ind\.tiny\.graph must hold nodes from 0 to 4, but holds 7"),
        ({"graph": [1, 2]}, r"ind\.tiny\.graph must hold a dictionary of neighbour lists"),
        ({"allx": "words"}, r"ind\.tiny\.allx must hold a matrix of numbers, but holds a str"),
        ({"test": "4\nx\n"}, r"test\.index, line 2: must be a node index, but is 'x'"),
        ({"test": ""}, r"test\.index is empty"),
        ({"test": "4\n2\n"}, r"node 2 is in valid and in test"),
    ],
)
def test_bad_planetoid_files_are_errors(tmp_path, one_valid, changed, message):
    with pytest.raises(ValueError, match=message):
        read_planetoid(write_planetoid(tmp_path / "f", **changed))


class Forged:
    """Pickles as a call of `function`, with a state that need not fit."""

    def __init__(self, function, arguments, state):
        self.reduced = function, arguments, state

    def __reduce__(self):
        return self.reduced


def forged_array(shape=(1, 2), content=b"\0" * 8, name="f4", order="<", flags=0):
    state = (3, order, None, None, None, -1, -1, flags)
    dtype = Forged(np.dtype, (name, False, True), state)
    start = np.empty(0).__reduce__()[:2]
    return Forged(*start, (1, shape, dtype, False, content))


def forged_sparse(**changed):
    matrix = csr_array(np.eye(2, dtype=np.float32))
    state = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    return Forged(csr_matrix, (), {**state, "_shape": (2, 2), **changed})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        # The flags of an object dtype are cleared: numpy would use the bytes as pointers.
        (forged_array(content=b"A" * 16, name="O8", order="|"), "an array of 'O8' instead of num"),
        (forged_array(name="V8"), "an array of 'V8' instead of numbers"),
        (forged_array(name=["f4"]), "instead of numbers"),
        (forged_array(order="?"), r"unknown byte order '\?'"),
        (forged_array(shape=(2**40, 2**40)), "impossible shape|8 bytes for an array of shape"),
        (forged_array(shape=(2**70, 2)), "impossible shape"),
        (forged_array(shape=(-1, 2)), "impossible shape"),
        (forged_array(shape=("a", 2)), "impossible shape"),
        (forged_array(content=b"\0" * 7), "7 bytes for an array of shape"),
        (forged_array(content=["a", "b"]), "an array of objects instead of numbers"),
        (forged_sparse(_shape=(2, 2**40)), "would take over 2 GB"),
        (forged_sparse(_shape=("a", 2)), "impossible shape"),
        (forged_sparse(indices=np.array([0, -1], np.int32)), "index outside of them"),
        (forged_sparse(indices=np.array([0, 2], np.int32)), "index outside of them"),
        (forged_sparse(indptr=np.array([0, 2, 1], np.int32)), "do not fit its shape"),
        (forged_sparse(indptr=np.array([0, 9, 2], np.int32)), "do not fit its shape"),
        (forged_sparse(data=np.ones(1, np.float32)), "do not fit its shape"),
        (forged_sparse(data="words"), "data of a sparse matrix must be a list of numbers"),
    ],
)
def test_forged_arrays_are_refused_in_one_sentence(tmp_path, one_valid, value, message):
    folder = write_planetoid(tmp_path / "f", x=value)
    with pytest.raises(
        ValueError, match=rf"ind\.tiny\.x was (cut short or )?altered: .*({message})"
    ):
        read_planetoid(folder)


# Instructions of pickle protocol 2: names are pickletools' own.
PROTO, STOP, NONE, EMPTY_DICT, EMPTY_TUPLE, TUPLE1, TUPLE2 = (
    b"\x80\2",
    b".",
    b"N",
    b"}",
    b")",
    b"\x85",
    b"\x86",
)
SETITEM, BUILD, NEWOBJ = b"s", b"b", b"\x81"
ENCODE, SPARSE = b"c_codecs\nencode\n", b"cscipy.sparse.csr\ncsr_matrix\n"
DOUBLED = b"]q\0" + b"".join(b"(h%ch%clq%c" % (n, n, n + 1) for n in range(60))


def attributes(text):
    return EMPTY_DICT + b"X" + struct.pack("<I", len(text)) + text + NONE + SETITEM


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        (EMPTY_DICT + EMPTY_TUPLE + TUPLE1 * 100_000 + NONE + SETITEM, "keys are neither texts"),
        (DOUBLED, "must hold a matrix of numbers, but holds a list"),
        (
            DOUBLED + b"cnumpy\ndtype\n" + b"h\x3c" + TUPLE1 + b"R",
            "it holds an array of",
        ),
        (NONE + b"r\xff\xff\xff\xff", "must hold a matrix of numbers, but holds a NoneType"),
        (ENCODE + NONE + attributes(b"__defaults__") + TUPLE2 + BUILD, "sets the state of a _Name"),
        (SPARSE + EMPTY_TUPLE + NEWOBJ + attributes(b"dense") + BUILD, "must have data, indices"),
        (SPARSE + EMPTY_TUPLE + NEWOBJ, "a sparse matrix has the impossible shape None"),
        (b"\x8b" + struct.pack("<i", 2**31 - 1), "not enough data"),
        (b"\x8b" + struct.pack("<i", 1000) + b"A" * 1000, "an integer of 7999 bits"),
        (b"\x8e" + struct.pack("<Q", 2**62), "unpickled"),
        (b"X\x05\0\0\0hello" + b"Q", "holds torch tensors where numpy arrays are expected"),
        (b"ios\nsystem\n(", "it has the instruction INST"),
        (NONE + EMPTY_TUPLE + b"R", "calls a value that is no function"),
        (NONE + NONE + b"a", "appends to a NoneType"),
        (b"h\7", "KeyError"),
        (b"l", "IndexError"),
        (b"0", "the instruction POP, which no array needs"),
    ],
)
def test_forged_instructions_are_refused_at_once(tmp_path, one_valid, instructions, message):
    """Python's own unpickler ends some of them in a segmentation fault, or in hours or GB."""
    folder = write_planetoid(tmp_path / "f")
    (folder / "ind.tiny.x").write_bytes(PROTO + instructions + STOP)
    with pytest.raises(ValueError, match=rf"ind\.tiny\.x .*{message}"):
        read_planetoid(folder)


def test_bytes_that_are_named_many_times_become_few_arrays(tmp_path):
    """The file has 1 MB, and makes 1,000 arrays of it."""
    content, path = bytes(1 << 20), tmp_path / "f.pkl"
    arrays = [forged_array(shape=(1 << 20,), content=content, name="u1") for _ in range(1000)]
    path.write_bytes(pickle.dumps(arrays, protocol=4))
    assert path.stat().st_size < 2 << 20
    with pytest.raises(ValueError, match="holds more numbers than fit into it"):
        read_pickle(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"graph": dict.fromkeys(range(5), [0] * 900)}, "holds more neighbours than fit into it"),
        ({"test": "4\n99999999999\n"}, "test.index holds node 99999999999, but there are features"),
        ({"test": "4\n" + "9" * 5000}, "test.index, line 2: must be a node index, but is '9999"),
        ({"tx": dense([[5, 5], [4, np.inf]])}, "features must be finite numbers, but one is inf"),
        ({"ally": np.empty((3, 0), np.float32)}, "ally must hold a matrix of numbers"),
    ],
)
def test_planetoid_files_are_bounded_by_their_size(tmp_path, one_valid, changed, message):
    with pytest.raises(ValueError, match=message):
        read_planetoid(write_planetoid(tmp_path / "f", **changed))


@pytest.mark.parametrize("node", [2**70, -1, "1", 0.5, None])
def test_neighbours_that_are_no_nodes_are_refused(tmp_path, one_valid, node):
    for graph in ({0: [node]}, {node: [0]}):
        folder = write_planetoid(tmp_path / "f", graph=graph)
        with pytest.raises(ValueError, match=r"ind\.tiny\.graph must hold nodes from 0 to 4, but"):
            read_planetoid(folder)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", ">i4", "|b1", "<u2", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_unpickled_as_numpy_would(tmp_path, dtype, order):
    array = np.asarray(np.arange(6).reshape(2, 3) % 3, dtype=dtype, order=order)
    for protocol in (2, 3, 4):
        path = tmp_path / "array.pkl"
        path.write_bytes(pickle.dumps({"a": [array, (array[:1],)]}, protocol=protocol))
        ours = read_pickle(path)["a"]
        assert ours[0].dtype == array.dtype.newbyteorder("=")
        assert np.array_equal(ours[0], array)
        assert ours[1][0].shape == (1, 3)


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_or_cut_planetoid_file_is_named(tmp_path, one_valid, part):
    path = write_planetoid(tmp_path / "f") / f"ind.tiny.{part}"
    whole = path.read_bytes()
    if part != "test.index":
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match=f"{part} was cut short or altered"):
            read_planetoid(tmp_path / "f", "tiny")
    path.unlink()
    with pytest.raises(ValueError, match=f"{part} is missing; Planetoid's files are"):
        read_planetoid(tmp_path / "f", "tiny")


class _Runs:
    def __reduce__(self):
        return os.system, ("echo run > /tmp/never",)


def test_nothing_in_a_pickle_is_run(tmp_path):
    path = tmp_path / "f.pkl"
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(_Runs(), protocol=protocol))
        with pytest.raises(ValueError, match=r"f\.pkl holds a posix\.system, but may hold only"):
            read_pickle(path)
    torch.save(_Runs(), path)
    with pytest.raises(ValueError, match=r"holds a posix\.system"):
        read_torch_pickle(path)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "train", "unknown"),
    [
        ("pubmed", 19_717, 44_324, 500, 3, 60, 0),
        ("cora", 2_708, 5_278, 1_433, 7, 140, 0),
        ("citeseer", 3_327, 4_552, 3_703, 6, 120, 15),
    ],
)
def test_planetoid_is_as_published_and_as_pyg_reads_it(
    name, nodes, edges, features, classes, train, unknown
):
    from torch_geometric.io import read_planetoid_data

    data = read_planetoid(data_folder(name))
    assert (data.num_nodes, data.num_edges, data.x.shape[1]) == (nodes, 2 * edges, features)
    assert len(data.task["classes"]) == classes
    assert [len(data.split[part]) for part in ("train", "valid", "test")] == [train, 500, 1000]
    assert (data.y < 0).sum() == unknown
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about old names in the pickles
        theirs = read_planetoid_data(str(data_folder(name)), name)
    ours = data.to_pyg()
    assert torch.equal(ours.x, theirs.x)
    assert torch.equal(ours.y.clamp(min=0), theirs.y)  # PyG has 0 for unknown classes
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(ours[mask], theirs[mask])
    assert set(map(tuple, ours.edge_index.T.tolist())) == set(
        map(tuple, theirs.edge_index.T.tolist())
    )


# OGB


@pytest.mark.parametrize("name", SETS)
def test_synthetic_folders_are_read(synthetic, tmp_path, name):
    folder = synthetic(name, tmp_path)
    data = read_ogb(folder)
    assert data.num_nodes == SMALL[name]
    rows = {kind: edges.count for kind, edges in data.edges.items()}
    if name != "ogbn-mag":
        lines = lines_of(folder / "raw" / "edge.csv.gz")
        pairs = np.array([line.split(",") for line in lines], int)
        (edges,) = data.edges.values()
        if SETS[name].both:  # each line, then its inverse
            assert rows[EDGE] == 2 * len(pairs)
            assert np.array_equal(edges.key_index.reshape(-1, 2), pairs)
            assert np.array_equal(edges.query_index.reshape(-1, 2), pairs[:, ::-1])
        else:
            assert np.array_equal(edges.key_index, pairs[:, 0])
            assert np.array_equal(edges.query_index, pairs[:, 1])
    kind = {"ogbn-proteins": "multilabel"}.get(name, "classification")
    assert data.task["kind"] == ("links" if name.startswith("ogbl") else kind)


def test_the_arrays_of_each_dataset_have_their_names(synthetic, tmp_path):
    arxiv = read_ogb(synthetic("ogbn-arxiv", tmp_path))
    assert set(arxiv.nodes[NODE].arrays) == {"x", "y", "year"}
    assert arxiv.x.shape == (400, 128)
    first = lines_of(tmp_path / "ogbn-arxiv" / "raw" / "node-feat.csv.gz")[0]
    assert arxiv.x[0].tolist() == np.array(first.split(","), np.float32).tolist()
    years = arxiv.nodes[NODE].arrays["year"]
    assert (years[arxiv.split["train"]] <= 2017).all()
    assert set(years[arxiv.split["test"]]) == {2019}
    proteins = read_ogb(synthetic("ogbn-proteins", tmp_path))
    assert set(proteins.nodes[NODE].arrays) == {"y", "species"}
    assert proteins.y.shape == (60, 112)
    attributes = proteins.sole_edges.arrays["attr"]
    assert attributes.shape[1] == 8
    assert np.array_equal(attributes[::2], attributes[1::2])
    mag = read_ogb(synthetic("ogbn-mag", tmp_path))
    assert mag.node_type == "paper"
    assert set(mag.nodes) == {"author", "field_of_study", "institution", "paper"}
    assert mag.only("cites").num_nodes == 3490
    assert mag.edges["paper", "cites", "paper"].arrays["reltype"][0] == 2
    collab = read_ogb(synthetic("ogbl-collab", tmp_path))
    assert set(collab.sole_edges.arrays) == {"weight", "year"}
    assert {name.partition("/")[2] for name in collab.split if name.startswith("valid")} == {
        "edge", "edge_neg", "weight", "year",
    }  # fmt: skip
    assert np.array_equal(collab.split["train/edge"][:, 0], collab.sole_edges.key_index[::2])
    citation = read_ogb(synthetic("ogbl-citation2", tmp_path))
    assert citation.split["test/target_node_neg"].shape[1] == 1000


def test_a_dataset_is_recognised_by_the_folder_or_the_given_name(synthetic, tmp_path):
    folder = synthetic("ogbn-arxiv", tmp_path)
    for name in ("ogbn_arxiv", "arxiv"):
        folder = folder.rename(tmp_path / name)
        assert read_ogb(folder, replace=True).name == "ogbn-arxiv"
    assert read_ogb(folder, "mine").name == "mine"
    folder = folder.rename(tmp_path / "other")
    with pytest.raises(
        ValueError, match="must be named after the OGB dataset that it holds: one of"
    ):
        read_ogb(folder)
    assert read_ogb(folder, "ogbn-arxiv", replace=True).num_nodes == 400


def spoil(path, change):
    """Rewrite a .csv.gz with changed lines."""
    lines = lines_of(path)
    write_gz(path, "".join(f"{line}\n" for line in change(lines)))


def cut(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("raw/edge.csv.gz", cut, "edge.csv.gz was cut short or altered"),
        ("raw/edge.csv.gz", lambda p: spoil(p, lambda rows: [*rows[:5], "7"]),
         "edge.csv.gz, line 6: Expected 2 columns, got 1"),
        ("raw/edge.csv.gz", lambda p: spoil(p, lambda rows: [*rows[:5], "7,x"]),
         "edge.csv.gz, line 6: int64: invalid value 'x'"),
        ("raw/edge.csv.gz", lambda p: spoil(p, lambda rows: [*rows[:5], "7,"]),
         "edge.csv.gz, line 6: a cell is empty or nan"),
        ("raw/edge.csv.gz", lambda p: spoil(p, lambda rows: [*rows[:5], "7,400"]),
         "edge.csv.gz, line 6: nodes are 0 to 399, but the edge has node 400"),
        ("raw/edge.csv.gz", lambda p: spoil(p, lambda rows: ["-1,0", *rows]),
         "edge.csv.gz, line 1: nodes are 0 to 399, but the edge has node -1"),
        ("raw/edge.csv.gz", lambda p: spoil(p, lambda rows: rows[:-1]),
         r"edge.csv.gz must have 2755 rows, but has 2754"),
        ("raw/edge.csv.gz", lambda p: write_gz(p, ""), "edge.csv.gz, line 1: expected 2 col"),
        ("raw/edge.csv.gz", lambda p: p.write_bytes(b"no gzip"), "edge.csv.gz was cut short or al"),
        ("raw/node-feat.csv.gz", lambda p: spoil(p, lambda rows: [
            *rows[:7], rows[7].replace(rows[7].split(",")[3], "inf"), *rows[8:]]),
         "node-feat.csv.gz, line 8: features must be finite numbers, but one is inf"),
        ("raw/node-feat.csv.gz", lambda p: spoil(p, lambda rows: [
            *rows[:7], rows[7].replace(rows[7].split(",")[3], "nan"), *rows[8:]]),
         "node-feat.csv.gz, line 8: a cell is empty or nan"),
        ("raw/node-feat.csv.gz", Path.unlink, "node-feat.csv.gz is missing; OGB's download"),
        ("raw/num-node-list.csv.gz", Path.unlink, "num-node-list.csv.gz is missing"),
        ("raw/num-node-list.csv.gz", lambda p: write_gz(p, "3\n4\n"),
         "must hold one number, for one graph, but holds 2"),
        ("raw/node-label.csv.gz", lambda p: spoil(p, lambda rows: rows[1:]),
         "there must be 400 labels, but there are 399"),
        ("raw/node-label.csv.gz", lambda p: spoil(p, lambda rows: ["-3", *rows[1:]]),
         "classes must be 0 or more, but one is -3"),
        ("raw/node_year.csv.gz", lambda p: spoil(p, lambda rows: rows[1:]),
         "year must have 400 rows, but has 399"),
        ("split/time/valid.csv.gz", Path.unlink, "valid.csv.gz is missing; the official split"),
        ("split/time/valid.csv.gz", lambda p: spoil(p, lambda rows: ["400"]),
         "valid has 400, but nodes are 0 to 399"),
        ("split/time/valid.csv.gz", lambda p: spoil(p, lambda rows: [*rows, rows[0]]),
         "valid holds a node twice"),
        ("split/time/valid.csv.gz", lambda p: shutil.copy(p.with_name("train.csv.gz"), p),
         "is in train and in valid"),
    ],
)  # fmt: skip
def test_bad_ogb_files_are_errors_and_nothing_is_stored(synthetic, tmp_path, file, change, message):
    folder = synthetic("ogbn-arxiv", tmp_path)
    change(folder / file)
    with pytest.raises(ValueError, match=message):
        read_ogb(folder)
    assert not list((tmp_path / "cache" / "store").iterdir())


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("raw/nodetype-has-label.csv.gz", "nodetype-has-label.csv.gz is missing"),
        ("raw/node-feat/paper/node-feat.csv.gz", "paper/node-feat.csv.gz is missing"),
        ("raw/node-label/paper/node-label.csv.gz", "node-label.csv.gz is missing"),
        (
            "raw/relations/author___writes___paper/edge.csv.gz",
            "author___writes___paper/edge.csv.gz",
        ),
        ("split/time/paper/test.csv.gz", "test.csv.gz is missing"),
    ],
)
def test_a_missing_file_of_mag_is_named(synthetic, tmp_path, file, message):
    folder = synthetic("ogbn-mag", tmp_path)
    (folder / file).unlink()
    with pytest.raises(ValueError, match=message):
        read_ogb(folder)


def test_a_folder_of_something_else_is_an_error(tmp_path):
    (tmp_path / "arxiv").mkdir()
    with pytest.raises(
        ValueError, match=r"is not a folder of OGB's files: it has none of raw/edge"
    ):
        read_ogb(tmp_path / "arxiv")


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("is_zip", [True, False])
def test_pairs_are_read_however_torch_saved_them(synthetic, tmp_path, protocol, is_zip):
    folder = synthetic("ogbl-ddi", tmp_path)
    before = read_ogb(folder)
    for part in ("train", "valid", "test"):
        path = folder / "split" / "target" / f"{part}.pt"
        torch.save(
            read_torch_pickle(path),
            path,
            pickle_protocol=protocol,
            _use_new_zipfile_serialization=is_zip,
        )
    after = read_ogb(folder, replace=True)
    for name, array in before.split.items():
        assert np.array_equal(after.split[name], array)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"edge": np.array([[0, 50]])}, "train.pt, train/edge.*nodes are 0 to 49.*has node 50"),
        ({"edge": "words"}, "train.pt: edge must be an array of numbers"),
        ([1], "train.pt must hold arrays by name, but holds a list"),
        ({"edge": torch.ones(2)}, "train.pt holds a torch"),
        (b"cut", "train.pt was cut short or altered"),
        ("zip", "torch.save does not compress, but its content is compressed"),
    ],
)
def test_bad_pairs_are_errors(synthetic, tmp_path, held, message):
    path = synthetic("ogbl-ddi", tmp_path) / "split" / "target" / "train.pt"
    if isinstance(held, bytes):
        cut(path)
    elif held == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("train/data.pkl", pickle.dumps({"edge": np.zeros((9999, 2), int)}))
    else:
        torch.save(held, path)
    with pytest.raises(ValueError, match=message):
        read_ogb(tmp_path / "ogbl-ddi")


def test_binary_forms_give_the_same_graph(synthetic, tmp_path):
    data = read_ogb(synthetic("ogbn-arxiv", tmp_path))
    folder = tmp_path / "binary" / "ogbn-arxiv"
    (folder / "raw").mkdir(parents=True)
    shutil.copytree(tmp_path / "ogbn-arxiv" / "split", folder / "split")
    edges, arrays = data.sole_edges, data.nodes[NODE].arrays
    np.savez_compressed(
        folder / "raw" / "data.npz",
        edge_index=np.stack([edges.key_index, edges.query_index]).astype(np.int64),
        num_nodes_list=np.array([400]),
        num_edges_list=np.array([edges.count]),
        node_feat=arrays["x"],
        node_year=arrays["year"][:, None],
    )
    np.savez_compressed(folder / "raw" / "node-label.npz", node_label=data.y[:, None] * 1.0)
    binary = read_ogb(folder, path=tmp_path / "stored")
    assert np.array_equal(binary.sole_edges.key_index, edges.key_index)
    assert np.array_equal(binary.sole_edges.query_index, edges.query_index)
    assert np.array_equal(binary.x, data.x)
    assert np.array_equal(binary.y, data.y)
    assert np.array_equal(binary.split["test"], data.split["test"])
    assert binary.nodes[NODE].arrays["year"].shape == (400,)


def test_binary_forms_of_several_types_give_the_same_graph(synthetic, tmp_path, monkeypatch):
    monkeypatch.setattr("dynagat.npz_file.BLOCK", 1 << 12)  # so that there are many blocks
    data = read_ogb(synthetic("ogbn-mag", tmp_path))
    folder = tmp_path / "binary" / "ogbn-mag"
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "time").mkdir(parents=True)
    split = {part: {"paper": np.asarray(index)} for part, index in data.split.items()}
    torch.save(split, folder / "split" / "time" / "split_dict.pt", pickle_protocol=4)

    def save(name, arrays):
        np.savez_compressed(folder / "raw" / f"{name}.npz", **arrays)

    named = {"___".join(kind): edges for kind, edges in data.edges.items()}
    save("num_nodes_dict", {kind: np.array([n.count]) for kind, n in data.nodes.items()})
    save("num_edges_dict", {kind: np.array([e.count]) for kind, e in named.items()})
    save("edge_index_dict",
         {kind: np.stack([e.key_index, e.query_index]) for kind, e in named.items()})  # fmt: skip
    save("edge_reltype", {kind: e.arrays["reltype"] for kind, e in named.items()})
    save("node_feat_dict", {"paper": data.x})
    save("node-label", {"paper": data.y})
    binary = read_ogb(folder, path=tmp_path / "stored")
    for kind, edges in data.edges.items():
        assert np.array_equal(binary.edges[kind].key_index, edges.key_index)
        assert np.array_equal(binary.edges[kind].query_index, edges.query_index)
        assert np.array_equal(binary.edges[kind].arrays["reltype"], edges.arrays["reltype"])
    assert np.array_equal(binary.x, data.x)
    assert np.array_equal(binary.y, data.y)
    assert np.array_equal(binary.split["valid"], data.split["valid"])


def test_the_block_size_does_not_change_the_graph(synthetic, tmp_path, monkeypatch):
    folder = synthetic("ogbn-products", tmp_path)
    before = read_ogb(folder)
    monkeypatch.setattr("dynagat.data.blocks.CSV_BLOCK", 1 << 12)
    after = read_ogb(folder, replace=True)
    assert np.array_equal(before.sole_edges.key_index, after.sole_edges.key_index)
    assert np.array_equal(before.x, after.x)


@pytest.mark.data
def test_arxiv_is_as_published():
    data = read_ogb(data_folder("ogbn-arxiv"))
    assert (data.num_nodes, data.num_edges) == (169_343, 1_166_243)
    assert data.symmetric().num_edges == 2_315_598
    assert len(data.task["classes"]) == 40
    assert data.task["classes"][0] == "arxiv cs na"
    assert [len(data.split[part]) for part in ("train", "valid", "test")] == [
        90_941, 29_799, 48_603,
    ]  # fmt: skip
    year = data.nodes[NODE].arrays["year"]
    later = year[data.sole_edges.key_index] >= year[data.sole_edges.query_index]
    assert later.mean() > 0.95  # keys cite queries: OGB's direction


@pytest.mark.data
def test_ddi_is_as_published():
    data = read_ogb(data_folder("ogbl-ddi"))
    assert (data.num_nodes, data.num_edges) == (4_267, 2 * 1_067_911)
    sizes = {name: len(pairs) for name, pairs in data.split.items()}
    assert sizes == {"train/edge": 1_067_911, "valid/edge": 133_489, "test/edge": 133_489,
                     "valid/edge_neg": 101_882, "test/edge_neg": 95_599}  # fmt: skip


# npz


def write_npz(path, **changed):
    held = {"x": np.eye(4), "edge_index": np.array([[0, 1, 2], [1, 2, 2]]), "y": np.arange(4) % 2}
    held |= {"train": np.array([0, 1]), "test": np.array([3]), "edge_attr": np.ones((3, 2))}
    whole = {name: value for name, value in {**held, **changed}.items() if value is not None}
    np.savez(path, **whole)
    return path


def test_an_npz_of_plain_arrays_is_read(tmp_path):
    data = read_npz(write_npz(tmp_path / "mine.npz"), directed=True)
    assert data.name == "mine"
    assert (data.num_nodes, data.num_edges) == (4, 3)
    assert data.sole_edges.arrays["attr"].shape == (3, 2)
    assert data.task["classes"] == ["0", "1"]
    assert set(data.split) == {"train", "test"}
    with pytest.raises(ValueError, match=r"has edge_attr, in which merged edges may differ: read"):
        read_npz(tmp_path / "mine.npz")
    both = read_npz(write_npz(tmp_path / "mine.npz", edge_attr=None))
    assert both.num_edges == 5
    assert both.without_loops().num_edges == 4


def test_all_common_names_are_read(tmp_path):
    expected = read_npz(write_npz(tmp_path / "mine.npz"), directed=True)
    parts = {"data": np.ones(3), "indices": np.array([1, 2, 2]), "shape": np.array([4, 4])}
    adjacency = {f"adj_{name}": array for name, array in parts.items()}
    features = {"attr_data": np.ones(4), "attr_indices": np.arange(4), "attr_indptr": np.arange(5),
                "attr_shape": np.array([4, 4])}  # fmt: skip
    others = [
        {"edge_index": None, "row": np.array([0, 1, 2]), "col": np.array([1, 2, 2])},
        {"edge_index": None, "adj_indptr": np.array([0, 1, 2, 3, 3]), **adjacency},
        {"x": None, **features},
        {"y": None, "labels": np.arange(4) % 2},
        {"train": None, "train_mask": np.array([True, True, False, False])},
        {"names": np.array([{"an": "object"}], dtype=object)},  # is ignored
    ]
    for changed in others:
        found = read_npz(write_npz(tmp_path / "mine.npz", **changed), directed=True)
        assert np.array_equal(found.x, expected.x)
        assert np.array_equal(found.y, expected.y)
        assert np.array_equal(found.sole_edges.query_index, expected.sole_edges.query_index)
        assert np.array_equal(found.split["train"], expected.split["train"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edge_index": np.array([[0], [4]])}, "edge 0: nodes are 0 to 3, but the edge has node 4"),
        ({"edge_index": np.ones((2, 3))}, r"edge_index must be integers \[2, E\], but is fl"),
        ({"edge_index": None}, "must have edge_index; row and col; or adj_indptr"),
        ({"x": np.full((4, 2), np.nan)}, "x, row 0: features must be finite numbers, but one is n"),
        ({"x": np.eye(3)}, "the numbers of nodes must agree, but are x 3, y 4"),
        ({"x": np.array(["a"] * 4)}, "x must be numbers"),
        ({"x": np.array([{}] * 4, dtype=object)}, "mine.npz: x must be numbers, but is object"),
        ({"test": np.array([1])}, "node 1 is in train and in test"),
        ({"test": np.array([4])}, "test has 4, but nodes are 0 to 3"),
        ({"test": np.array([3, 3])}, "test holds a node twice"),
        ({"test": np.array([0.5])}, "test must be a vector of node indices"),
        ({"train": None, "train_mask": np.ones(3, bool)}, r"must be of shape \[4\], but is \[3\]"),
        ({"y": np.array([0, -2, 0, 0])}, "classes must be 0 or more, but one is -2"),
        ({"y": np.full((4, 2), 0.5)}, "must hold labels of 0 and 1, but one is 0.5"),
        ({"edge_attr": np.ones((2, 2))}, "attr of edges node-to-node must have 3 rows, but has 2"),
    ],
)
def test_bad_npz_files_are_errors(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read_npz(write_npz(tmp_path / "mine.npz", **changed), directed=True)


def test_a_truncated_npz_is_an_error(tmp_path):
    cut(write_npz(tmp_path / "mine.npz"))
    with pytest.raises(ValueError, match=r"mine\.npz was cut short or altered"):
        read_npz(tmp_path / "mine.npz")


@pytest.mark.data
@pytest.mark.parametrize("name", ["photo", "computers"])
def test_amazon_is_as_pyg_reads_it(name):
    from torch_geometric.io import read_npz as read_theirs

    path = data_folder("amazon") / f"amazon_electronics_{name}.npz"
    ours = read_npz(path).without_loops().to_pyg()
    theirs = read_theirs(str(path), to_undirected=True)
    assert torch.equal(ours.x, theirs.x)
    assert torch.equal(ours.y, theirs.y)
    order = ours.edge_index.flip(0)  # ours are sorted by query, theirs by key; both directions
    assert torch.equal(order, theirs.edge_index)


# PyG


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 6), st.integers(0, 9), st.booleans(), st.integers(0, 99))
def test_a_graph_survives_the_way_to_pyg_and_back(num_nodes, num_edges, is_typed, seed):
    random = np.random.default_rng(seed)
    num_edges = num_edges if num_nodes else 0
    key, query = random.integers(0, max(1, num_nodes), (2, num_edges))
    y = random.integers(-1, 3, num_nodes)
    arrays = {"x": random.normal(size=(num_nodes, 3)).astype(np.float32), "y": y,
              "id": Texts.of([f"n{at}" for at in range(num_nodes)])}  # fmt: skip
    nodes = {"paper" if is_typed else NODE: Nodes(num_nodes, arrays)}
    kind = ("paper", "cites", "paper") if is_typed else EDGE
    edges = {kind: Edges(key, query, {"attr": random.normal(size=(num_edges, 2)), "year": key})}
    if is_typed:
        nodes["author"] = Nodes(2)
        edges["author", "writes", "author"] = Edges(np.array([0]), np.array([1]))
    order = random.permutation(num_nodes)
    split = {"train": order[:2], "valid": order[2:3], "test": order[3:]}
    task = {"kind": "classification", "node_type": next(iter(nodes))}
    data = GraphData("g", nodes, edges, split, {"task": task})
    back = from_pyg(data.to_pyg(), "g")
    assert list(back.nodes) == list(nodes)
    assert list(back.edges) == list(edges)
    for name, found in back.nodes.items():
        assert found.count == nodes[name].count
        assert set(found.arrays) == (set(nodes[name].arrays) if num_nodes else set(found.arrays))
        for inner in found.arrays:
            assert list(map(str, found.arrays[inner])) == list(map(str, nodes[name].arrays[inner]))
    for name, found in back.edges.items():
        assert np.array_equal(found.key_index, edges[name].key_index)
        assert np.array_equal(found.query_index, edges[name].query_index)
        for inner, array in edges[name].arrays.items():
            assert np.array_equal(found.arrays[inner], array)
    for part, index in split.items():
        assert np.array_equal(back.split[part], np.sort(index))
    assert back.task["kind"] == "classification"


def test_pairs_survive_the_way_to_pyg_and_back(synthetic, tmp_path):
    data = read_ogb(synthetic("ogbl-collab", tmp_path))
    found = data.to_pyg()
    back = from_pyg(found, "back")
    assert back.task["kind"] == "links"
    assert set(back.split) == set(data.split)
    assert all(np.array_equal(back.split[name], array) for name, array in data.split.items())
    assert found.edge_weight.shape == (data.num_edges,)


@pytest.mark.parametrize(
    ("y", "kind", "dtype"),
    [
        (torch.tensor([0, 1, -1]), "classification", np.int64),
        (torch.tensor([[0], [1], [2]]), "classification", np.int64),
        (torch.tensor([0.5, 1.0, float("nan")]), "regression", np.float32),
        (torch.tensor([[0.0, 1.0]] * 3), "multilabel", np.float32),
        (torch.tensor([[True, False]] * 3), "multilabel", np.float32),
    ],
)
def test_the_task_is_inferred_from_the_targets(y, kind, dtype):
    data = from_pyg(Data(x=torch.ones(3, 1), edge_index=torch.zeros(2, 0).long(), y=y), "g")
    assert data.task["kind"] == kind
    assert data.y.dtype == dtype


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edge_index": torch.tensor([[0], [3]])}, "nodes are 0 to 2, but the edge has node 3"),
        ({"edge_index": None}, r"edge_index of edges node-to-node must be a tensor of shape"),
        ({"train_mask": torch.ones(3, 5).bool()}, r"must be booleans of shape \[3\], but is bool"),
        ({"train_mask": torch.ones(3)}, r"must be booleans of shape \[3\], but is float32"),
    ],
)
def test_bad_pyg_data_are_errors(changed, message):
    data = Data(x=torch.ones(3, 1), y=torch.zeros(3).long(), edge_index=torch.zeros(2, 0).long())
    for name, value in changed.items():
        data[name] = value
    with pytest.raises(ValueError, match=message):
        from_pyg(data, "g")


def test_targets_of_two_types_are_refused():
    data = HeteroData()
    for kind in ("a", "b"):
        data[kind].x, data[kind].y = torch.ones(2, 1), torch.zeros(2).long()
    with pytest.raises(ValueError, match="must have y for one type, but has it for a, b"):
        from_pyg(data, "g")


def test_values_with_a_row_per_edge_belong_to_the_edges_whatever_their_name():
    typed = HeteroData()
    typed["a"].num_nodes, typed["b"].num_nodes = 3, 2
    typed["a", "to", "b"].edge_index = torch.tensor([[0, 1], [1, 0]])
    typed["a", "to", "b"].time = torch.tensor([5, 6])
    (edges,) = from_pyg(typed, "g").edges.values()
    assert edges.arrays["time"].tolist() == [5, 6]
    plain = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    plain.time = torch.tensor([5, 6])
    data = from_pyg(plain, "g")
    assert data.edges[EDGE].arrays["time"].tolist() == [5, 6]
    assert list(data.nodes[NODE].arrays) == ["x"]
    assert data.to_pyg().edge_time.tolist() == [5, 6]
    plain.edge_time = torch.tensor([7, 8])
    with pytest.raises(ValueError, match="must have time or edge_time, but have both"):
        from_pyg(plain, "g")
