"""Heads whose behaviour is known, from which the limits of the verdicts were chosen.

Prints the table of docs/microscope.md; takes about a minute.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynagat import DPGATConv, GATConv, GATv2Conv, how_attentive
from dynagat.analysis.attentive import Attentiveness
from dynagat.benchmarks import DICTIONARY_LOOKUP
from dynagat.experiment import grid, improved, revive, run

K = 8  # size of DictionaryLookup


def random_graph(num_nodes: int = 200, degree: int = 10) -> tuple[Tensor, Tensor]:
    edges = torch.randint(num_nodes, (2, num_nodes * degree))
    return torch.randn(num_nodes, 16), edges


def untrained(layer: nn.Module) -> Attentiveness:
    return how_attentive(layer, random_graph())


def uniform() -> Attentiveness:
    """Uniform weights, as in a GCN without its degree normalisation."""
    layer = GATv2Conv(16, 8, heads=4)
    nn.init.zeros_(layer.att)
    return untrained(layer)


def dictionary(mechanism: str, heads: int = 1) -> Attentiveness:
    """Trained on DictionaryLookup, in which each query needs a different key."""
    (settings,) = grid(
        improved(DICTIONARY_LOOKUP.settings), [f"k={K}", "max_rounds=10", f"heads={heads}"]
    )
    benchmark = DICTIONARY_LOOKUP.with_settings(settings)
    record = run(benchmark, mechanism, 0)
    assert record.weights is not None
    network, given = revive(benchmark, mechanism, 0, record.weights)
    return how_attentive(network, given.inputs)


class Chooser(nn.Module):
    """Embed the nodes, attend, classify."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.embed, self.layer, self.out = nn.Linear(13, 32), layer, nn.Linear(width, 8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.layer(self.embed(x).relu(), edge_index))


def priorities(num_nodes: int = 150) -> tuple[Tensor, Tensor, Tensor]:
    """Each node predicts the value of its neighbour with the highest priority: one ranking."""
    key = torch.rand(num_nodes, num_nodes).argsort(1)[:, :6]
    query = torch.arange(num_nodes)[:, None].expand_as(key)
    priority, value = torch.rand(num_nodes), torch.randint(8, (num_nodes,))
    columns = priority[:, None], F.one_hot(value, 8), torch.randn(num_nodes, 4)
    answer = value[key.gather(1, priority[key].argmax(1, keepdim=True))[:, 0]]
    return torch.cat(columns, 1), torch.stack([key.flatten(), query.flatten()]), answer


def one_ranking(layer: nn.Module, width: int) -> Attentiveness:
    model = Chooser(layer, width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(300):
        x, edges, answer = priorities()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges), answer).backward()
        optimizer.step()
    x, edges, _ = priorities()
    return how_attentive(model, (x, edges))


CASES = {
    "GAT, untrained, 8 heads": lambda: untrained(GATConv(16, 8, heads=8)),
    f"GAT trained on DictionaryLookup, k = {K}": lambda: dictionary("gat"),
    f"GAT trained on DictionaryLookup, k = {K}, 8 heads": lambda: dictionary("gat", 8),
    "GATv2 with a = 0, 4 heads: as a GCN": uniform,
    "GATv2 trained on data with one ranking": lambda: one_ranking(
        GATv2Conv(32, 16, add_self_loops=False), 16
    ),
    "GATv2, untrained, 8 heads": lambda: untrained(GATv2Conv(16, 8, heads=8)),
    "DPGAT, untrained, 8 heads": lambda: untrained(DPGATConv(16, 8, heads=8)),
    f"GATv2 trained on DictionaryLookup, k = {K}": lambda: dictionary("gatv2"),
    f"DPGAT trained on DictionaryLookup, k = {K}": lambda: dictionary("dpgat"),
}


def line(name: str, result: Attentiveness) -> str:
    """The range over the heads, and the number of heads with each verdict."""
    columns = [
        [getattr(head, number).value for head in result.heads]
        for number in ("weighted_agreement", "agreement", "same_choice", "uniformity")
    ]
    words = [[head.attends.word for head in result.heads],
             [head.ranking.word for head in result.heads]]  # fmt: skip
    cells = [*map(interval, columns), *map(counts, words)]
    return f"| {name} | {' | '.join(cells)} |"


def counts(words: list[str]) -> str:
    return ", ".join(f"{words.count(each)} {each}" for each in sorted(set(words)))


def interval(values: list[float]) -> str:
    low, high = min(values), max(values)
    if low != low:
        return "–"
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


if __name__ == "__main__":
    names = "weighted agreement", "agreement τ", "same choice", "neighbours / degree"
    print(f"| head | {' | '.join(names)} | attends? | ranking |")
    print("| --- | ---: | ---: | ---: | ---: | --- | --- |")
    for name, measure in CASES.items():
        torch.manual_seed(0)
        print(line(name, measure()), flush=True)
