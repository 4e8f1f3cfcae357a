"""Arrays of .npz files: forged headers, members and numbers end in one sentence, at once."""

import io
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch

from dynagat.analysis.checkpoint import read_data
from dynagat.data.npz import read_npz
from dynagat.data.ogb import read_ogb
from dynagat.npz_file import array_names, read_arrays, read_rows

GOOD = {"x": np.eye(4), "edge_index": np.array([[0, 1, 2], [1, 2, 2]]), "y": np.arange(4) % 2}


def npy(array=None, **header):
    """The bytes of an .npy file, with a header that need not be true."""
    array = np.zeros(4) if array is None else array
    true = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, true | header)
    return file.getvalue() + array.tobytes()


def write(path, members, method=zipfile.ZIP_STORED):
    """An .npz of GOOD and other members: arrays, or raw bytes."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, value in {**GOOD, **members}.items():
            archive.writestr(f"{name}.npy", value if isinstance(value, bytes) else npy(value))
    return path


FORGED = [
    (npy(shape=(10**12,)), "x has 32 bytes, but its header says float64 of shape"),
    (npy(shape=(2**40, 2**40)), "x has 32 bytes, but its header says float64 of shape"),
    (npy(shape=(-4,)), "impossible shape"),
    (npy(shape=(-2, -2)), "impossible shape"),
    (npy(shape=(3,)), "x has 32 bytes"),
    (npy(shape=("4",)), "was cut short or altered"),
    (npy(descr="|O"), "x must be numbers, but is object"),
    (npy(descr=[("a", "<f8"), ("b", "|O")]), "x must be numbers, but is"),
    (npy(descr="<c16"), "x must be numbers, but is complex128"),
    (npy(descr="<f16"), "x must be numbers, but is float128"),
    (npy(descr="<U9"), "x must be numbers, but is <U9"),
    (npy(descr="<M8[s]"), "x must be numbers, but is datetime64"),
    (npy(descr="nothing"), "was cut short or altered"),
    (npy(descr="(" * 5000), "was cut short or altered"),
    (npy()[:20], "was cut short or altered"),
    (npy().replace(b"\x01\x00", b"\x09\x00", 1), "was cut short or altered"),
    (b"", "was cut short or altered"),
    (b"\x93NUMPY", "was cut short or altered"),
    (np.zeros((4, 1, 1)), r"x must be numbers \[N, features\]"),
]


@pytest.mark.parametrize(("member", "message"), FORGED)
def test_a_forged_array_is_refused_by_every_reader(tmp_path, member, message):
    path = write(tmp_path / "g.npz", {"x": member})
    with pytest.raises(ValueError, match=rf"g\.npz.*({message})"):
        read_npz(path)
    with pytest.raises(ValueError, match=rf"g\.npz.*({message})"):
        read_data(path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"edge_index": np.array([[0], [2**62]])}, "edge 0: nodes are 0 to 3, but"),
        ({"edge_index": np.array([[0, -1], [1, 1]])}, "edge 1: nodes are 0 to 3, but"),
        ({"num_nodes": np.array(2**60)}, "numbers of nodes must agree"),
        ({"num_nodes": np.array([4, 4])}, "num_nodes must be one integer, but is int64"),
        ({"y": np.array([0, 1, 2**62, 0])}, "classes must be numbered from 0, but one is 46116"),
        ({"y": np.array(3)}, "the labels must be a vector, but are one number"),
        ({"edge_attr": np.array(3.0)}, "edge_attr must have a row per edge, but is one number"),
        ({"attr_data": np.ones(1)}, None),
    ],
)
def test_forged_numbers_are_refused(tmp_path, members, message):
    path = write(tmp_path / "g.npz", members)
    if message is None:  # an array that is not used
        assert read_npz(path).num_nodes == 4
        return
    with pytest.raises(ValueError, match=message):
        read_npz(path)


@pytest.mark.parametrize("what", ["adj", "attr"])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shape": np.array([4, 2**40])}, "would take over 2 GB"),
        ({"shape": np.array([4.0, 4.0])}, "impossible shape"),
        ({"shape": np.array([4])}, "impossible shape"),
        ({"shape": np.array([4, -1])}, "impossible shape"),
        ({"indptr": np.array([0, 1, 2, 3, 9])}, "do not fit its shape"),
        ({"indptr": np.array([0, 2**63, 2, 3, 4], np.uint64)}, "do not fit its shape"),
        ({"indptr": np.array([[0, 1, 2, 3, 4]])}, "indptr of a sparse matrix must be a list"),
        ({"indices": np.array([0, 1, 2, -1])}, "index outside of them"),
        ({"data": np.ones((4, 1))}, "data of a sparse matrix must be a list"),
    ],
)
def test_a_forged_sparse_matrix_is_refused(tmp_path, what, changed, message):
    if what == "adj" and "GB" in message:
        return  # a matrix of edges is not made dense
    parts = {"data": np.ones(4), "indices": np.arange(4), "indptr": np.arange(5)}
    parts |= {"shape": np.array([4, 4])} | changed
    held = {f"{what}_{name}": array for name, array in parts.items()}
    kept = {"attr": "edge_index", "adj": "x"}[what]
    path = tmp_path / "g.npz"
    np.savez(path, **held, **{kept: GOOD[kept]})
    with pytest.raises(ValueError, match=message):
        read_npz(path)


def test_nodes_that_do_not_fit_into_memory_are_refused(tmp_path):
    np.savez(tmp_path / "g.npz", edge_index=np.array([[0], [2**50]]))
    with pytest.raises(ValueError, match=r"nodes would take .* GB of memory, but this machine has"):
        read_npz(tmp_path / "g.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_flipped_byte_anywhere_is_an_error_or_makes_no_difference(tmp_path, method):
    whole = write(tmp_path / "g.npz", {}, method).read_bytes()
    for at in range(0, len(whole), 7):
        (tmp_path / "g.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with suppress(ValueError):
            arrays = read_arrays(tmp_path / "g.npz", lambda name: name in GOOD)
            assert all(np.array_equal(array, GOOD[name]) for name, array in arrays.items())


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """The header and the zip's directory agree on 2⁵⁰ bytes."""
    content = npy(shape=(2**47,))
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(content)
        archive.infolist()[0].file_size = len(content) - 32 + 2**50
    with pytest.raises(ValueError, match=r"x would take 1125899.9 GB of memory, but this machine"):
        read_arrays(tmp_path / "bomb.npz", str)


def test_arrays_are_read_in_the_byte_order_of_the_machine_and_in_blocks(tmp_path, monkeypatch):
    swapped, matrix = np.arange(6, dtype=">i4"), np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.savez_compressed(tmp_path / "g.npz", a=swapped, b=matrix, c=np.array(3), d=np.empty((0, 2)))
    (tmp_path / "other").write_bytes((tmp_path / "g.npz").read_bytes())
    arrays = read_arrays(tmp_path / "g.npz", lambda name: name != "d")
    assert torch.from_numpy(arrays["a"]).tolist() == list(range(6))
    assert np.array_equal(arrays["b"], matrix)
    assert arrays["c"].shape == ()
    assert array_names(tmp_path / "other") == ["a", "b", "c", "d"]
    monkeypatch.setattr("dynagat.npz_file.BLOCK", 8)
    blocks = list(read_rows(tmp_path / "g.npz", "a", 1, 4, ()))
    assert [block.tolist() for block in blocks] == [[1, 2], [3, 4]]


def test_a_forged_array_of_ogb_is_refused(tmp_path):
    raw = tmp_path / "ogbn-arxiv" / "raw"
    raw.mkdir(parents=True)
    good = {
        "num_nodes_list": np.array([4]),
        "num_edges_list": np.array([3]),
        "node_feat": np.eye(4),
    }
    for name, member, message in [
        ("node_feat", npy(shape=(10**12, 1)), "its header says"),
        ("edge_index", npy(np.zeros((2, 3), int), fortran_order=True), "is in Fortran order"),
        ("num_nodes_list", npy(np.array(4)), "is one number"),
        ("num_nodes_list", npy(np.array([2**60])), "GB of memory"),
        ("num_nodes_list", npy(np.array([-4])), "must not be negative, but is -4"),
        ("edge_index", npy(np.zeros((3, 2), int)), r"must be of shape \[2, edges\]"),
    ]:
        write(raw / "data.npz", {**good, name: member})
        with pytest.raises(ValueError, match=rf"arxiv.*{message}"):
            read_ogb(raw.parent, path=tmp_path / "stored")
