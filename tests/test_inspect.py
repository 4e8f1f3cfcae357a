"""dynagat inspect: a finished run, a Python file or a checkpoint with its data."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv
from torch_geometric.nn.models import GAT
from typer.testing import CliRunner

import dynagat as library
from dynagat.analysis.checkpoint import read_checkpoint, read_data
from dynagat.cli import app
from tests.test_cli import TINY, dynagat, one_thread  # noqa: F401  (a fixture)

FILE = """
import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GAT

torch.manual_seed(0)
data = Data(x=torch.randn(20, 4), edge_index=torch.randint(0, 20, (2, 120)), y=torch.arange(20) % 3)
model = GAT(4, 6, num_layers=2, heads=2, v2=True)
"""


def graph():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 4, generator=generator)
    return x, torch.randint(0, 20, (2, 120), generator=generator)


@pytest.fixture
def arrays(tmp_path):
    x, edge_index = graph()
    np.savez(tmp_path / "graph.npz", x=x, edge_index=edge_index, y=np.arange(20) % 3)
    return tmp_path / "graph.npz"


def inspect(*words, cwd, code=0):
    return dynagat("inspect", *words, cwd=cwd, code=code)


def refusal(*words, cwd):
    """The one-line error message; no page is written."""
    message = inspect(*words, cwd=cwd, code=2).stderr
    assert message.startswith("dynagat: ")
    assert message.count("\n") == 1
    assert not (cwd / "inspect.html").exists()
    return message


# Runs of the store


def run(cwd, *words):
    return dynagat("run", "dictionary-lookup", *TINY, "--seeds", 0, *words, cwd=cwd).stdout


def test_a_finished_run_is_inspected_by_its_benchmark_or_key(tmp_path):
    run(tmp_path, "--mechanism", "gat,gatv2,gcn", "--heads", "2")
    words = ["dictionary-lookup", "--mechanism", "gat", "--set", "k=4", "--heads", 2, "--seed", 0]
    shown = inspect(*words, cwd=tmp_path)
    header, *heads, note = shown.stdout.splitlines()
    assert header.split()[-2:] == ["attends?", "ranking"]
    assert [line.split()[2] for line in heads] == ["1.00", "1.00"]  # the weighted agreement
    assert all(line.endswith("   static") for line in heads)  # GAT can be nothing else
    assert "the queries have only 4 distinct contents" in note
    page = (tmp_path / "inspect.html").read_text()
    assert "dictionary-lookup, GAT (2 heads), k=4" in page
    records = dynagat("records", "export", cwd=tmp_path).stdout.splitlines()
    key = next(json.loads(r)["key"] for r in records if json.loads(r)["mechanism"] == "gat")
    assert inspect(key[:10], cwd=tmp_path).stdout == shown.stdout


def test_run_with_inspect_shows_the_heads_of_every_run(tmp_path):
    shown = run(tmp_path, "--mechanism", "gat,gcn", "--heads", "2", "--inspect")
    assert "dictionary-lookup, GAT (2 heads), k=4, seed 0" in shown
    assert sum("1.00 [1.00, 1.00]" in line for line in shown.splitlines()) == 2
    assert "GCN, k=4, seed 0" in shown  # with the reason why it has no table
    assert "model has no attention layer to capture" in shown
    again = run(tmp_path, "--mechanism", "gat", "--heads", "2", "--inspect", "--json")
    (layer,) = json.loads(again)["microscope"]["layers"]
    assert [head["weighted_agreement"]["value"] for head in layer["heads"]] == [1, 1]


def test_a_run_that_does_not_exist_or_is_not_the_only_one_is_refused(tmp_path):
    run(tmp_path, "--mechanism", "gat,gatv2", "--heads", "1")
    assert "2 runs of dynagat.sqlite fit, name one by its key: " in refusal(
        "dictionary-lookup", cwd=tmp_path
    )
    message = refusal("dictionary-lookup", "--seed", 7, cwd=tmp_path)
    assert "no run of dynagat.sqlite fits 'dictionary-lookup'" in message
    assert "there is no setting 'kk'" in refusal("dictionary-lookup", "--set", "kk=4", cwd=tmp_path)
    assert "name=value" in refusal("dictionary-lookup", "--set", "k", cwd=tmp_path)


def test_a_run_without_attention_or_weights_is_refused(tmp_path):
    run(tmp_path, "--mechanism", "gcn")
    assert "model has no attention layer" in refusal("dictionary-lookup", cwd=tmp_path)
    dynagat("records", "export", "--out", "runs.jsonl", cwd=tmp_path)
    dynagat("records", "import", "runs.jsonl", "--store", "other.sqlite", cwd=tmp_path)
    message = refusal("dictionary-lookup", "--store", "other.sqlite", cwd=tmp_path)
    assert "store other.sqlite has no weights of run" in message
    assert "does not exist" in refusal("dictionary-lookup", "--store", "none.sqlite", cwd=tmp_path)


# A Python file


def test_a_file_that_defines_model_and_data_is_inspected(tmp_path):
    (tmp_path / "mine.py").write_text(FILE + 'names = [f"paper {i}" for i in range(20)]\n')
    analysis = json.loads(inspect("mine.py", "--json", "--out", "p.html", cwd=tmp_path).stdout)
    assert [layer["name"] for layer in analysis["layers"]] == ["convs.0", "convs.1"]
    assert analysis["layers"][0]["heads"][0]["same_label"]["uniform"] > 0
    assert "paper 7" in (tmp_path / "p.html").read_text()


def test_a_file_can_import_from_its_folder_and_take_a_checkpoint(tmp_path):
    (tmp_path / "zoo.py").write_text(FILE)
    (tmp_path / "mine.py").write_text("from zoo import data, model\n")
    before = inspect("mine.py", cwd=tmp_path).stdout
    torch.manual_seed(5)
    torch.save(GAT(4, 6, num_layers=2, heads=2, v2=True).state_dict(), tmp_path / "w.pt")
    assert inspect("mine.py", "--checkpoint", "w.pt", cwd=tmp_path).stdout != before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "mine.py must define model, but does not"),
        ("model = 3\ndata = 4\n", "mine.py must be a torch.nn.Module, but is a int"),
        (FILE + "del data\n", "mine.py must define data"),
        ("x = 1\ny = x / 0\n", "mine.py, line 2 failed: ZeroDivisionError: division by zero"),
        (FILE + "from torch_geometric.nn import GCNConv\nmodel = GCNConv(4, 4)\n",
         "model has no attention layer to capture; it consists of GCNConv"),
        (FILE + "data.edge_index = torch.stack([torch.arange(20), torch.arange(20)])\n",
         "nothing to compare in convs.0, convs.1: no query has more than one key"),
        (FILE + "data.x[3] = float('nan')\n", "weights are nan or infinite"),
        (FILE + "names = ['one']\n", "names"),
    ],
)  # fmt: skip
def test_a_file_that_can_not_be_inspected_is_refused_in_a_sentence(tmp_path, text, sentence):
    (tmp_path / "mine.py").write_text(text)
    assert sentence in refusal("mine.py", cwd=tmp_path)


def test_a_page_for_a_million_nodes_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    message = refusal("mine.py", "--nodes", 1_000_000, cwd=tmp_path)
    assert "nodes must be at most 20000" in message
    assert "1000000" in message


def test_options_of_another_subject_are_refused(tmp_path):
    assert "mine.py is not a file" in refusal("mine.py", cwd=tmp_path)
    message = refusal("a.py", "--data", "g.npz", cwd=tmp_path)
    assert "--data is for a checkpoint, but a.py is none" in message
    message = refusal("w.pt", "--checkpoint", "v.pt", cwd=tmp_path)
    assert "--checkpoint is for a Python file, but w.pt is none" in message
    message = refusal("w.pt", "--heads", 2, cwd=tmp_path)
    assert "--heads is for a run of the store, but w.pt is a file" in message
    assert "w.pt needs its data" in refusal("w.pt", cwd=tmp_path)


# A checkpoint with its data


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("nested", [None, "model_state_dict"])
def test_a_checkpoint_of_pygs_gat_gives_the_models_own_attention(tmp_path, v2, heads, nested):
    model = GAT(4, 6, num_layers=3, out_channels=5, heads=heads, v2=v2).eval()
    state = model.state_dict()
    torch.save(state if nested is None else {nested: state, "epoch": 3}, tmp_path / "w.pt")
    x, edge_index = graph()
    with library.capture(model) as theirs, torch.no_grad():
        model(x, edge_index)
    read = read_checkpoint(tmp_path / "w.pt").eval()
    with library.capture(read) as ours, torch.no_grad():
        read(x, edge_index)
    assert [view.num_heads for view in ours.seen] == [view.num_heads for view in theirs.seen]
    for mine, other in zip(ours.seen, theirs.seen, strict=True):
        torch.testing.assert_close(mine.weight, other.weight)


def test_a_checkpoint_is_inspected_with_its_data(tmp_path, arrays):
    x, edge_index = graph()
    torch.save(GAT(4, 6, num_layers=2, heads=2).state_dict(), tmp_path / "w.pt")
    torch.save(Data(x=x, edge_index=edge_index, y=torch.arange(20) % 3), tmp_path / "d.pt")
    torch.save({"x": x, "edge_index": edge_index}, tmp_path / "t.pt")
    shown = [inspect("w.pt", "--data", name, cwd=tmp_path).stdout for name in ("d.pt", "graph.npz")]
    assert shown[0] == shown[1]
    assert shown[0].count("static") == 4
    assert "convs.1" in shown[0]
    assert inspect("w.pt", "--data", "t.pt", cwd=tmp_path).stdout == shown[0]
    np.savez(tmp_path / "double.npz", x=x.double().numpy(), edge_index=edge_index.numpy(),
             y=np.arange(20) % 3, names=np.array([{}]))  # fmt: skip
    assert inspect("w.pt", "--data", "double.npz", cwd=tmp_path).stdout == shown[0]


def test_a_layer_with_edge_features_is_read_from_its_checkpoint(tmp_path):
    x, edge_index = graph()
    layer = GATv2Conv(4, 3, heads=2, edge_dim=2, residual=True, concat=False)
    torch.save(layer.state_dict(), tmp_path / "w.pt")
    read = read_checkpoint(tmp_path / "w.pt")
    edge_attr = torch.randn(120, 2)
    torch.testing.assert_close(read(x, edge_index, edge_attr), layer(x, edge_index, edge_attr))


def test_a_checkpoint_that_does_not_determine_the_model_is_refused(tmp_path, arrays):
    def refusal_of(state):
        torch.save(state, tmp_path / "w.pt")
        return refusal("w.pt", "--data", "graph.npz", cwd=tmp_path)

    assert "holds no GATConv or GATv2Conv; it starts with weight, bias" in refusal_of(
        torch.nn.Linear(3, 2).state_dict()
    )
    state = GAT(4, 6, num_layers=2, heads=2, norm="layer_norm").state_dict()
    assert "a checkpoint does not say between which layers it is used" in refusal_of(state)
    assert "must hold a state dict, but holds a list" in refusal_of([1, 2])
    (tmp_path / "w.pt").write_bytes(b"nothing of torch's")
    assert "not a file of tensors" in refusal("w.pt", "--data", "graph.npz", cwd=tmp_path)


def test_missing_and_damaged_data_are_refused(tmp_path, arrays):
    torch.save(GAT(4, 6, num_layers=2, heads=2).state_dict(), tmp_path / "w.pt")
    assert "none.npz" in refusal("w.pt", "--data", "none.npz", cwd=tmp_path)
    np.savez(tmp_path / "half.npz", x=np.zeros((3, 4)))
    message = refusal("w.pt", "--data", "half.npz", cwd=tmp_path)
    assert "half.npz must hold edge_index; it holds x" in message
    np.savez(tmp_path / "odd.npz", x=np.zeros((3, 4)), edge_index=np.zeros((3, 2), int))
    message = refusal("w.pt", "--data", "odd.npz", cwd=tmp_path)
    assert "odd.npz: edge_index must be int64 [2, E], but is int64 [3, 2]" in message
    arrays.write_bytes(arrays.read_bytes()[:100])
    message = refusal("w.pt", "--data", "graph.npz", cwd=tmp_path)
    assert "graph.npz was cut short or altered" in message


def test_no_code_in_a_data_file_is_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (print, ("boom",))

    torch.save({"x": Bomb(), "edge_index": 1}, tmp_path / "d.pt")
    with pytest.raises(ValueError, match="not a file of tensors"):
        read_data(tmp_path / "d.pt")


# The theorems


@pytest.mark.slow
def test_theory_shows_every_theorem():
    """Times are measured, so that certificate may fail on a busy machine; the exit code says so."""
    done = CliRunner().invoke(app, ["theory", "--json"], catch_exceptions=False)
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    names = ["Theorem 1", "Theorem 2", "Remark", "Theorem 3", "Counterexample"]
    assert [each["name"] for each in shown] == [*names, "Time", "Parameters"]
    assert all(each["facts"] for each in shown)
    assert all(each["shown"] for each in shown if each["name"] != "Time")
    assert done.exit_code == (0 if all(each["shown"] for each in shown) else 1)
