"""Train a plain PyG model and inspect its attention.

Run this file, or pass it to the command line, which reads `model` and `data`:

    python examples/pyg_model.py
    dynagat inspect examples/pyg_model.py
"""

import torch
import torch.nn.functional as F
from torch_geometric.datasets import KarateClub
from torch_geometric.nn.models import GAT

torch.manual_seed(0)
data = KarateClub()[0]
model = GAT(data.num_features, 8, num_layers=2, out_channels=4, heads=4, v2=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(100):
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()

if __name__ == "__main__":
    import dynagat

    print(dynagat.how_attentive(model, data))
