"""MoleculeModel: a model that predicts molecules, given as SMILES."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from dynagat.benchmarks.own_molecules import atom_inputs, molecule_problem
from dynagat.comparison.model import Model
from dynagat.comparison.predictions import Predictions
from dynagat.data.collection import collection_of
from dynagat.data.molecules import GRAPH
from dynagat.data.store import NODE, GraphData, tensor
from dynagat.prediction.graphs import GraphPrediction, GraphProblem, GraphTask
from dynagat.prediction.prediction import MicroscopeInput


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class MoleculeModel(Model):
    """predict(molecules) returns a prediction for each of them."""

    smiles: str  # column of the molecules in the table that it was trained on

    @classmethod
    def seen(cls, data: GraphData, source: Any) -> dict[str, Any]:
        """What a model keeps of the molecules it was trained on."""
        problem = molecule_problem(data)
        return {
            "in_dim": problem.x.shape[1],
            "target_mean": problem.target_mean,
            "target_std": problem.target_std,
            "smiles": data.about["molecules"]["smiles"],
        }

    def predict(self, data: GraphData | Sequence[str], /) -> Predictions:
        """Predict for molecules as `read_molecules` returns them, or for a list of SMILES."""
        from dynagat.data.molecule_table import molecules_of

        data = data if isinstance(data, GraphData) else molecules_of(data)
        out, ids = self.outputs(data), data.nodes[GRAPH].arrays["id"]
        name = data.about["molecules"]["smiles"] or self.smiles
        return Predictions.of(out, self.task, ids, self.target_mean, self.target_std, id_name=name)

    def outputs(self, data: GraphData) -> Tensor:
        """[G, out]: output of the network."""
        graphs, x = (
            collection_of(data),
            atom_inputs(tensor(np.asarray(data.nodes[NODE].arrays["x"]))),
        )
        problem = GraphProblem(graphs, x, torch.empty(0), {}, self.task["kind"], 0)
        prediction = GraphPrediction(problem.to(self.device), GraphTask())
        return prediction.outputs(self.network, torch.arange(len(graphs))).cpu()

    def microscope_input(self, data: GraphData) -> MicroscopeInput:
        """Some test molecules."""
        return GraphPrediction(molecule_problem(data), GraphTask()).microscope_input()
