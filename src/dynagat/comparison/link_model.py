"""LinkModel: a model that scores pairs of nodes of the graph it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from dynagat.benchmarks.own_links import StoredLinks
from dynagat.comparison.model import Model
from dynagat.comparison.predictions import LinkScores
from dynagat.data.link_split import all_links, codes_of, is_in, pairs_of
from dynagat.data.store import GraphData, tensor
from dynagat.data.tables.csv_lines import TableError, shown
from dynagat.data.tables.destination import EDGE_BASE, Memory
from dynagat.data.tables.edge_list import EdgeColumns, EdgeReader
from dynagat.data.tables.ids import Ids
from dynagat.data.tables.table_file import TableFile
from dynagat.data.texts import Texts
from dynagat.graph import Graph
from dynagat.prediction.links import LinkPrediction, LinkProblem, score_pairs
from dynagat.prediction.nodes import has_features
from dynagat.prediction.prediction import MicroscopeInput


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class LinkModel(Model):
    """score(pairs) returns how likely each pair is linked; suggest(node) its likeliest new links.

    Messages are passed on all links that are known, those of validation and test too.
    """

    ids: Any  # one per node
    x: np.ndarray | None  # [N, features]; None if the network learned a vector for each node
    links: np.ndarray  # [n] codes of all known links, sorted
    ends: tuple[str, str]  # columns of the two nodes
    self_loops: bool = True

    @classmethod
    def seen(cls, data: GraphData, source: Any) -> dict[str, Any]:
        """What a model keeps of the graph it was trained on."""
        table = data.about.get("links", {})
        x = np.asarray(data.x, np.float32) if has_features(data) else None
        return {
            "in_dim": 0 if x is None else x.shape[1],
            "ids": data.nodes[data.node_type].arrays.get("id", np.arange(data.num_nodes)),
            "x": x,
            "links": all_links(data),
            "ends": (table.get("key", "source"), table.get("query", "target")),
            "self_loops": cast(StoredLinks, source).self_loops,
        }

    @classmethod
    def make_network(cls, settings: Any, mechanism: str, values: Mapping[str, Any]) -> nn.Module:
        """A network with new weights."""
        return settings.build(_problem(values), mechanism)

    @property
    def arrays(self) -> dict[str, Any]:
        own = {"ids": self.ids, "links": self.links}
        return own if self.x is None else own | {"x": self.x}

    def score(self, pairs: Any, /) -> LinkScores:
        """How likely pairs of nodes are linked: 0 to 1, beside pairs that are drawn at random.

        Args:
            pairs: a list, an array or a data frame of two ids in each row; or the path of a CSV or
                Parquet file with the columns of the table of edges.
        """
        is_file = isinstance(pairs, (str, Path))
        return self._scored(self._read(Path(pairs)) if is_file else self._find(pairs))

    def predict(self, data: Any, /) -> LinkScores:
        """The same as `score`."""
        return self.score(data)

    def suggest(self, node: Any, *, top: int = 10) -> LinkScores:
        """The nodes that a node is most likely linked to, besides itself and those it is."""
        if top < 1:
            raise ValueError(f"top must be at least 1, but is {top}")
        start = int(self._index([node])[0])
        if start < 0:
            raise ValueError(f"node {shown(node)} is not in the graph of the model")
        others = np.arange(len(self.ids))
        pairs = np.stack([np.full(len(others), start), others], axis=1)
        pairs = pairs[(others != start) & ~self._linked(pairs)]
        scores = self._scores(pairs)
        return self._result(pairs[order := np.argsort(-scores, kind="stable")[:top]], scores[order])

    def microscope_input(self, data: GraphData) -> MicroscopeInput:
        """The graph of the training links, and some test links."""
        problem = StoredLinks(self_loops=self.self_loops).problem(data)
        given = LinkPrediction(problem).microscope_input()
        return MicroscopeInput(given.inputs, names=[str(each) for each in self.ids])

    @cached_property
    def _names(self) -> Ids:
        is_text = isinstance(self.ids, Texts)
        return Ids(pa.array(list(self.ids), pa.large_string() if is_text else pa.int64()))

    @cached_property
    def _vectors(self) -> Tensor:
        """[N, dim]: what the readout takes."""
        problem, network = _problem(vars(self)).to(self.device), cast(Any, self.network)
        network.eval()
        with torch.no_grad():
            return network.encode(problem.x, problem.graph)

    def _index(self, names: list[Any]) -> np.ndarray:
        """The node of each id, -1 if it is unknown."""
        texts = pa.array([str(name) for name in names], pa.string())
        index = self._names.find([texts])
        if index is None:  # some are no integers
            known = {str(name): node for node, name in enumerate(self.ids)}
            return np.array([known.get(str(name), -1) for name in names])
        return index.combine_chunks().fill_null(-1).to_numpy().astype(np.int64)

    def _find(self, pairs: Any) -> np.ndarray:
        """[P, 2] nodes of pairs of ids."""
        rows = pairs.to_numpy() if hasattr(pairs, "to_numpy") else pairs
        rows = [list(row) for row in rows]
        if not rows:
            raise ValueError("pairs must hold at least one pair, but are empty")
        for n, row in enumerate(rows):
            if len(row) != 2:
                raise ValueError(f"pairs[{n}] must hold two ids, but holds {len(row)}")
        index = self._index([name for row in rows for name in row]).reshape(-1, 2)
        for n, nodes in enumerate(index.tolist()):
            if -1 in nodes:
                name = shown(rows[n][nodes.index(-1)])
                raise ValueError(f"pairs[{n}] holds {name}, which is not in the graph of the model")
            if nodes[0] == nodes[1]:
                raise ValueError(f"pairs[{n}] holds {shown(rows[n][0])} twice, which is no link")
        return index

    def _read(self, path: Path) -> np.ndarray:
        """[P, 2] nodes of the pairs in a file."""
        file = TableFile.open(path)
        file.check_columns(self.ends)
        memory = Memory()
        ends = EdgeColumns(*self.ends)
        reader = EdgeReader(file, ends, self._names, known_as="in the graph of the model")
        reader.write_as_listed(memory, EDGE_BASE)
        index = [memory.growing[f"{EDGE_BASE}/{end}_index"].array for end in ("key", "query")]
        pairs = np.stack(index, axis=1).astype(np.int64)
        same = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
        if len(same):
            row = int(same[0])
            name = shown(self.ids[int(pairs[row, 0])])
            raise TableError(f"{file.locate(row)}: the pair holds {name} twice, which is no link")
        return pairs

    def _linked(self, pairs: np.ndarray) -> np.ndarray:
        return is_in(codes_of(pairs, len(self.ids)), np.asarray(self.links))

    def _scores(self, pairs: np.ndarray) -> np.ndarray:
        if not len(pairs):
            return np.empty(0)
        vectors = self._vectors.to(self.device)
        out = score_pairs(self.network, vectors, tensor(pairs).long().to(self.device))
        return torch.sigmoid(out.cpu().double()).numpy()

    def _scored(self, pairs: np.ndarray) -> LinkScores:
        return self._result(pairs, self._scores(pairs))

    def _result(self, pairs: np.ndarray, scores: np.ndarray) -> LinkScores:
        first, second = ([self.ids[int(node)] for node in nodes] for nodes in pairs.T)
        return LinkScores(self.ends, first, second, scores, self._linked(pairs))


def _problem(values: Mapping[str, Any]) -> LinkProblem:
    """The graph of all known links."""
    count = len(values["ids"])
    pairs = tensor(pairs_of(np.asarray(values["links"]), count))
    query, key = torch.cat([pairs, pairs.flip(1)]).T.contiguous()
    x = values.get("x")
    x = torch.arange(count) if x is None else tensor(np.asarray(x)).float()
    edges = Graph.from_edges(query, key, count)
    return LinkProblem(x, edges, {}, {}, self_loops=values["self_loops"])
