"""Your own training loop on several processes: PyTorch's DDP over our loader.

On one machine with two processes: torchrun --standalone --nproc-per-node 2 examples/ddp.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from dynagat import GATv2Conv, Graph
from dynagat.sampling import Group, NeighborLoader, infer

N = 3000  # nodes


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first_layer = GATv2Conv(8, 8, heads=4, add_self_loops=False)
        self.last_layer = GATv2Conv(32, 3, add_self_loops=False)

    def first(self, x, graph):  # the graph's queries are the first of its keys
        return F.elu(self.first_layer((x, x[: graph.num_queries]), graph))

    def last(self, x, graph):
        return self.last_layer((x, x[: graph.num_queries]), graph)

    def forward(self, x, graphs):
        return self.last(self.first(x, graphs[0]), graphs[1])


def train(group):
    torch.manual_seed(0)  # every process makes the same graph, in which classes form groups
    query = torch.arange(N).repeat(8)
    graph = Graph.from_edges(query, (query + 3 * torch.randint(N, query.shape)) % N, N)
    y = torch.arange(N) % 3
    x = F.one_hot(y, 8) + 2 * torch.randn(N, 8)
    seeds, test = torch.randperm(N).split(N // 2)
    loader = NeighborLoader(graph, [10, 10], seeds, batch_size=256, shuffle=True, layered=True,
                            rank=group.rank, world_size=group.size)  # fmt: skip
    network = Network()
    averaged = DistributedDataParallel(network)  # starts with the first process's weights
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for epoch in range(5):
        for batch in loader:  # this process's part of each batch of 256 nodes
            out = averaged(x[batch.node_id], batch.graphs)
            loss = F.cross_entropy(out, y[batch.node_id[: batch.num_seeds]])
            optimizer.zero_grad()
            loss.backward()  # averages the gradients
            optimizer.step()
        out = infer([network.first, network.last], x, graph, group=group)  # exact, and divided
        accuracy = float((out[test].argmax(1) == y[test]).float().mean())
        if group.rank == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.3f}")


dist.init_process_group("gloo")  # "nccl" for GPUs; torchrun says who the others are
train(Group.of_torch())
dist.destroy_process_group()
