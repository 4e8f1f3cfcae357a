"""Checkpoints of the paper's released code: made here in the layout of the authors' files."""

import argparse
import enum
import io
import pickle
import sys
import types

import pytest
import torch
from torch import nn

from dynagat.benchmarks import BENCHMARKS, find
from dynagat.nn import GATConv, GATv2Conv
from dynagat.report.subjects import of_released
from tests.test_cli import dynagat

K, DIM = 4, 16


@pytest.fixture
def common(monkeypatch):
    """The released code's module of Enums, which is not there when a file is read."""
    module = types.ModuleType("common")
    for name, members in {
        "Task": {"DICTIONARY": 1},
        "GNN_TYPE": {"GCN": 1, "GIN": 2, "GAT": 3, "GAT2": 4},
        "STOP": {"TRAIN_NODE": 1, "TRAIN_GRAPH": 2, "TEST_NODE": 3, "TEST_GRAPH": 4},
    }.items():
        setattr(module, name, enum.Enum(name, members, module="common"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "common", module)
        yield module


def options(common, kind="GAT2", heads=1, **changes):
    values = {
        "task": common.Task.DICTIONARY, "type": common.GNN_TYPE[kind], "dim": DIM,
        "num_heads": heads, "size": K, "num_layers": 1, "dropout": 0.0, "train_fraction": 0.8,
        "max_epochs": 50000, "eval_every": 10, "batch_size": 1024, "accum_grad": 1,
        "stop": common.STOP.TEST_NODE, "save": None, "load": None, "plot": False, "patience": 20,
        "loader_workers": 0, "use_layer_norm": False, "use_activation": False,
        "use_residual": False, "include_self": False, "unroll": False,
    }  # fmt: skip
    return argparse.Namespace(**{**values, **changes})


def state(kind="GAT2", heads=1, names="new"):
    """The state dict, and the same layer of ours."""
    torch.manual_seed(1)
    shape = (1, heads, DIM // heads)
    matrix = torch.randn(DIM, DIM)  # one storage with two names
    parts = {name: torch.randn(K + 1, DIM) for name in ("layer0_keys", "layer0_values")}
    saved = {f"{name}.weight": value for name, value in parts.items()}
    if kind == "GAT":
        source, target, bias = torch.randn(shape), torch.randn(shape), torch.randn(DIM)
        layer = GATConv(DIM, DIM // heads, heads=heads, add_self_loops=False)
        layer.load_state_dict(
            {"att_src": source, "att_dst": target, "bias": bias, "lin.weight": matrix}
        )
        vectors = ("att_src", "att_dst") if names == "new" else ("att_l", "att_r")
        matrices = ("lin_src", "lin_dst") if names == "new" else ("lin_l", "lin_r")
        entries = dict(zip(vectors, (source, target), strict=True)) | {"bias": bias}
    else:
        vector, matrices = torch.randn(shape), ("lin_l", "lin_r")
        layer = GATv2Conv(
            DIM, DIM // heads, heads=heads, bias=False, share_weights=True, add_self_loops=False
        )
        entries = {"att": vector}
        layer.load_state_dict({"att": vector, "lin_l.weight": matrix, "lin_r.weight": matrix})
    entries |= {f"{name}.weight": matrix for name in matrices}
    saved |= {f"layers.0.{name}": value for name, value in entries.items()}
    saved["out_layer.weight"] = torch.randn(K, DIM)
    return saved, layer


def written(tmp_path, saved, name="released.pt"):
    path = tmp_path / name
    torch.save(saved, path)  # pickle protocol 2, zip format, as the authors' files
    return path


def read(path):
    return of_released(path, list(BENCHMARKS.values()))


@pytest.mark.parametrize(
    ("kind", "heads", "names"),
    [("GAT2", 1, "new"), ("GAT", 8, "new"), ("GAT", 8, "old"), ("GAT", 1, "old")],
)
def test_a_released_file_becomes_the_same_network(kind, heads, names, common, tmp_path):
    saved, layer = state(kind, heads, names)
    args = options(common, kind, heads)
    path = written(tmp_path, {"model": saved, "args": args})
    sys.modules.pop("common")
    subject = read(path)
    values = subject.data  # of the first test graphs of seed 11, which have the held-out pair
    assert values.shape == (6, K)
    value = {name: saved[f"{name}.weight"] for name in ("layer0_keys", "layer0_values")}
    queries = torch.relu(value["layer0_keys"][:K] + value["layer0_values"][K])
    edges = torch.cartesian_prod(torch.arange(K), torch.arange(K)).T  # key, query
    loops = torch.arange(K).repeat(2, 1) + torch.tensor([[K], [0]])
    edges = torch.cat([edges, loops], 1) if kind == "GAT" else edges
    for graph, logits in zip(values, subject.model(values), strict=True):
        keys = torch.relu(value["layer0_keys"][:K] + value["layer0_values"][graph])
        hidden = layer((torch.cat([keys, queries]), queries), edges)
        expected = nn.functional.linear(hidden, saved["out_layer.weight"])
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    mechanism = {"GAT": "GAT", "GAT2": "GATv2"}[kind]
    count = "1 head" if heads == 1 else "8 heads"
    assert subject.title == f"released.pt, released {mechanism} ({count}), k=4"
    assert "accuracy on the graphs of seed 11, without dropout: train" in subject.notes[0]


def test_the_command_inspects_a_released_file_like_a_run(common, tmp_path):
    saved, _ = state("GAT", 8)
    path = written(tmp_path, {"model": saved, "args": options(common, "GAT", 8)})
    done = dynagat("inspect", "--released", path, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.endswith("static")]) == 8  # GAT can be nothing else
    assert "released GAT (8 heads), k=4" in (tmp_path / "inspect.html").read_text()
    assert "without dropout: train" in done.stderr


class Evil:
    def __reduce__(self):
        return print, ("code of the file was run",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda saved, common: [1, 2], "must hold a dict, as the released DictionaryLookup files"),
        (lambda saved, common: saved["model"], "must hold a state dict `model` and options `args`"),
        (lambda saved, common: saved | {"args": {"size": 4}}, "must hold a state dict `model` and"),
        (
            lambda saved, common: saved | {"args": options(common, "GIN")},
            r"type must be 3 \(gat\) or 4 \(gatv2\), but is 2",
        ),
        (
            lambda saved, common: saved | {"args": options(common, num_layers=2)},
            "num_layers must be 1, but is 2",
        ),
        (
            lambda saved, common: saved | {"args": options(common, use_layer_norm=True)},
            "use_layer_norm must be off, as in the released files, but is on",
        ),
        (
            lambda saved, common: saved | {"args": options(common, size=None)},
            "option size must be a positive number, but is None",
        ),
        (
            lambda saved, common: saved | {"args": options(common, size=5)},
            "does not fit its own options: size mismatch for out.weight",
        ),
        (
            lambda saved, common: saved | {"args": options(common, heads=3)},
            "heads must divide dim=16, but is 3",
        ),
    ],
)
def test_a_wrong_file_gets_one_sentence(change, message, common, tmp_path):
    saved = {"model": state()[0], "args": options(common)}
    path = written(tmp_path, change(saved, common))
    with pytest.raises(ValueError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused_and_their_code_is_not_run(common, tmp_path, capsys):
    file = io.BytesIO()
    torch.save({"model": state()[0], "args": Evil()}, file)
    text = tmp_path / "text.pt"
    text.write_text("no checkpoint")
    cut = tmp_path / "cut.pt"
    cut.write_bytes(file.getvalue()[:400])
    evil = tmp_path / "evil.pt"
    evil.write_bytes(file.getvalue())
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps(Evil()))
    for path in (text, cut, evil, plain, tmp_path):
        with pytest.raises(ValueError, match=str(path)) as caught:
            read(path)
        assert "\n" not in str(caught.value)
    assert "code of the file was run" not in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"missing.pt can't be read: No such file"):
        read(tmp_path / "missing.pt")


def test_the_command_needs_a_subject_and_a_benchmark_with_released_files(tmp_path):
    def refusal(*words):
        return dynagat("inspect", *words, cwd=tmp_path, code=2).stderr

    assert "name what to inspect: a benchmark, a run's key, or a file" in refusal()
    assert "a benchmark with released checkpoints must be named, but got pubmed" in refusal(
        "pubmed", "--released", "x.pt"
    )
    assert "--seed is for a run of the store" in refusal("--released", "x.pt", "--seed", 1)
    assert "--released is for a benchmark, but model.py is a file" in refusal(
        "model.py", "--released", "x.pt"
    )
    assert find("dictionary-lookup").released is not None
