"""capture: record the attention of every layer of a model while it runs.

    with capture(model) as attention:
        model(x, edge_index)
    attention.table()

No layer is changed and nothing is computed twice: the ops of our layers have an observer, and the
softmax that PyG's layers call is wrapped. Captured tensors are detached.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dynagat.analysis import pyg, subset
from dynagat.analysis.contents import codes_of
from dynagat.analysis.edge_ids import edge_ids, first_loops
from dynagat.analysis.table import Extent, LayerAttention, Table, count_used, tabulate
from dynagat.graph import Graph
from dynagat.nn.core import GraphAttention
from dynagat.nn.edges import read_edges
from dynagat.ops.observe import Observation, observing

Draft = Callable[[], Iterable[LayerAttention]]
Ids = Tensor | Mapping[Any, Tensor] | None  # one array, or one per node or edge type


class Attention:
    """The attention captured in a `capture` block, in the order of the layers' calls."""

    def __init__(self) -> None:
        self._seen: list[LayerAttention] = []
        self._drafts: list[tuple[Draft, Ids, Ids]] = []  # evaluated on first use
        self._nodes: Ids = None
        self._edges: Ids = None

    @property
    def seen(self) -> list[LayerAttention]:
        """One entry per call of a layer."""
        drafts, self._drafts = self._drafts, []
        for draft, nodes, edges in drafts:
            for view in draft():
                self._seen.append(self._with_ids(view, nodes, edges))
        return self._seen

    def on(self, batch: Any = None, *, nodes: Ids = None, edges: Ids = None) -> None:
        """Use global ids for the calls that follow, which run on a sampled part of a larger graph.

        Args:
            batch: a sampled batch of PyG, with `n_id` and `e_id`; None for a whole graph.
            nodes: global id of each node of the batch, or a dict of ids by node type.
            edges: global id of each edge of the batch, or a dict of ids by edge type.
        """
        self._nodes = pyg.ids_of(batch, "n_id") if nodes is None else nodes
        self._edges = pyg.ids_of(batch, "e_id") if edges is None else edges

    def table(self) -> Table:
        """Tensors with one row per edge and head, and with `to_pandas` and `to_parquet`."""
        self.check()
        return tabulate(self.seen)

    def check(self) -> None:
        """Raise an error if nothing was captured."""
        if not self.seen:
            raise ValueError("no attention was captured: call the model inside the capture block")

    def _add(self, draft: Draft) -> None:
        self._drafts.append((draft, self._nodes, self._edges))

    def _with_ids(self, view: LayerAttention, nodes: Ids, edges: Ids) -> LayerAttention:
        """The view with global ids and the index of its call."""
        kind = pyg.edge_type_of(view.layer, nodes, edges)
        if kind is None and (isinstance(nodes, Mapping) or isinstance(edges, Mapping)):
            raise ValueError(
                f"layer {view.layer!r} must have an edge type in its path to use ids by type, but "
                "has none"
            )
        of_key, of_query = (pyg.of_type(nodes, kind and kind[end]) for end in (0, 2))
        of_edge = pyg.of_type(edges, kind)
        edge_id = view.edge_id
        if of_edge is not None:
            given = edge_id >= 0
            edge_id = edge_id.index_put((given,), of_edge.to(edge_id)[edge_id[given]])
        return replace(
            view,
            query=view.query if of_query is None else of_query[view.query],
            key=view.key if of_key is None else of_key[view.key],
            edge_id=edge_id,
            call=sum(each.layer == view.layer for each in self._seen),
        )


@contextmanager
def capture(model: nn.Module, *, sample: int | None = None) -> Iterator[Attention]:
    """Within the block, capture every call of an attention layer inside `model`.

    Supported are the layers of dynagat and every `MessagePassing` layer that calls PyG's `softmax`,
    such as GATConv, GATv2Conv, TransformerConv and RGATConv, inside any other module such as
    HeteroConv. A compiled model runs uncompiled within the block.

    With a `sample`, a random seed, only some queries of each call of our layers are captured if the
    graph is large: see `subset`.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, but is a {type(model).__name__}")
    layers = {module: path for path, module in reversed(list(_layers(model)))}
    if not layers:
        kinds = sorted({type(module).__name__ for module in model.modules()})
        raise ValueError(
            f"model has no attention layer to capture; it consists of {', '.join(kinds)}"
        )
    attention = Attention()
    recorder = _Recorder(attention, layers, sample)
    with ExitStack() as stack:
        stack.enter_context(_uncompiled())
        stack.enter_context(observing(recorder.on_op))
        stack.enter_context(pyg.observing_softmax(layers, recorder.on_softmax))
        for layer in layers:
            for handle in recorder.hooks_of(layer):
                stack.callback(handle.remove)
        yield attention


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, module in model.named_modules():
        if isinstance(module, GraphAttention) or pyg.attends(module):
            names = [
                name for name in path.split(".") if name != "_orig_mod"
            ]  # added by torch.compile
            yield ".".join(names), module


_lock = threading.Lock()
_blocks = 0  # number of open blocks in all threads, which share the compiler's stance
_stance = ExitStack()


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Run compiled code uncompiled within the block, because it may not call hooks."""
    global _blocks
    if "torch._dynamo" not in sys.modules:  # nothing was compiled
        yield
        return
    with _lock:
        if _blocks == 0:
            _stance.enter_context(torch.compiler.set_stance("force_eager"))
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if _blocks == 0:
                _stance.close()


@dataclass
class _Frame:
    """A call of a layer that has not returned yet."""

    layer: nn.Module
    arguments: Mapping[str, Any]
    edges: Any = None  # the edges that PyG's layer computes on
    observations: list[Observation] = field(default_factory=list)
    softmaxes: list[tuple[Any, Tensor | None, Tensor]] = field(default_factory=list)
    has_parts: bool = False  # a softmax covered only some of the edges

    @property
    def flow(self) -> str:
        return str(getattr(self.layer, "flow", "source_to_target"))


class _Recorder:
    """Tracks the running layer in each thread and collects its scores and weights."""

    def __init__(
        self, attention: Attention, layers: Mapping[nn.Module, str], sample: int | None
    ) -> None:
        self.attention, self.layers, self.sample = attention, layers, sample
        self._running = threading.local()

    def hooks_of(self, layer: nn.Module) -> Iterator[Any]:
        yield layer.register_forward_pre_hook(self._enter, with_kwargs=True)
        yield layer.register_forward_hook(self._leave, with_kwargs=True, always_call=True)
        if not isinstance(layer, GraphAttention):
            yield from pyg.hook_edges(layer, self._take_edges, self._take_alpha)

    @property
    def _frames(self) -> list[_Frame]:
        return self._running.__dict__.setdefault("frames", [])

    def __deepcopy__(self, memo: dict) -> _Recorder:
        return self  # hooks of a copied model: its layers are unknown and ignored

    def _enter(self, layer: nn.Module, args: tuple, kwargs: dict) -> None:
        if layer not in self.layers:
            return
        try:
            arguments = inspect.signature(layer.forward).bind(*args, **kwargs).arguments
        except TypeError:  # forward will raise its own error
            arguments = {}
        self._frames.append(_Frame(layer, arguments))

    def _leave(self, layer: nn.Module, args: tuple, kwargs: dict, out: Any) -> None:
        if not self._is_running(layer):  # another hook failed before `_enter` was called
            return
        frame = self._frames.pop()
        if out is None:  # it failed
            return
        for draft in _drafts(frame, self.layers[layer], self.sample):
            self.attention._add(draft)

    def on_op(self, observation: Observation) -> None:
        frames = self._frames
        if frames and isinstance(frames[-1].layer, GraphAttention):
            frames[-1].observations.append(observation)

    def on_softmax(self, score: Tensor, weight: Tensor) -> None:
        frames = self._frames
        if not frames or frames[-1].edges is None:
            return
        num_edges = read_edges(frames[-1].edges, frames[-1].flow).num_edges
        if len(score) != num_edges:
            frames[-1].has_parts = True
        elif (
            num_edges or not frames[-1].softmaxes
        ):  # without edges, a softmax per relation also covers all
            numbers = (
                score.detach().clone(),
                weight.detach().clone(),
            )  # the layer may overwrite them
            frames[-1].softmaxes.append((frames[-1].edges, *numbers))

    def _is_running(self, layer: nn.Module) -> bool:
        return bool(self._frames) and self._frames[-1].layer is layer

    def _take_edges(self, layer: nn.Module, inputs: tuple) -> None:
        if self._is_running(layer):
            self._frames[-1].edges = inputs[0]

    def _take_alpha(self, layer: nn.Module, inputs: tuple, out: Any) -> None:
        """With a softmax per relation, `_alpha` holds all weights while the layer propagates."""
        weight = getattr(layer, "_alpha", None)
        if not self._is_running(layer) or not isinstance(weight, Tensor):
            return
        frame = self._frames[-1]
        if frame.has_parts and not frame.softmaxes:  # not if all edges have the same relation
            frame.softmaxes.append((inputs[0], None, weight.detach()))


def _drafts(frame: _Frame, path: str, sample: int | None) -> Iterator[Draft]:
    """The views of a call. Those of our layers are evaluated later: their arrays never change."""
    flow = frame.flow
    named = (frame.arguments.get("edge_index"), frame.arguments.get("adj_t"))
    given = next((each for each in named if each is not None), frame.edges)
    name, query_row = type(frame.layer).__name__, _query_row(given)
    call = _Call(path, name, _is_one_set(frame), query_row, *_codes(frame))
    for observation in frame.observations:
        num_given = read_edges(given, flow).num_edges
        loops = None if _is_whole(observation) else first_loops(read_edges(given, flow).ends())
        views = partial(_views_of_sight, call, observation, num_given, loops)
        if sample is None or len(observation.edge_id) <= subset.MAX_EDGES:
            yield views
        else:  # now, so that the memory of the whole is free for the next layer
            yield partial(list, list(views(sample)))
    for seen, score, weight in frame.softmaxes or _no_edges(frame):
        ends, given_ends = (_copy(read_edges(each, flow).ends()) for each in (seen, given))
        edges = (*ends, edge_ids(ends, given_ends))
        flat = None if score is None else _by_head(score)
        view = _view(call, edges, _by_head(weight), flat)
        yield partial(_one, replace(view, **_relations(frame, view.edge_id)))


def _relations(frame: _Frame, edge_id: Tensor) -> dict[str, Any]:
    """The relation of each edge, where a layer of PyG takes one, as RGATConv does."""
    given, count = frame.arguments.get("edge_type"), getattr(frame.layer, "num_relations", 1)
    if not isinstance(given, Tensor) or count == 1 or bool((edge_id < 0).any()):
        return {}
    return {"relation": given.detach().long()[edge_id], "num_relations": count}


def _no_edges(frame: _Frame) -> Iterator[tuple[Any, None, Tensor]]:
    """Without edges, GATConv calls no softmax."""
    if frame.edges is not None and read_edges(frame.edges, frame.flow).num_edges == 0:
        yield frame.edges, None, torch.empty(0, getattr(frame.layer, "heads", 1))


def _by_head(numbers: Tensor) -> Tensor:  # [E], [E, H] or [E, H, 1] -> [E, H]
    return numbers[:, None] if numbers.dim() == 1 else numbers.flatten(1)


@dataclass(frozen=True, eq=False)
class _Call:
    """What the views of one call have in common."""

    path: str
    kind: str
    is_one_set: bool  # are queries and keys the same nodes?
    query_row: Tensor | None  # node of each query, if several queries share a node
    query_codes: Tensor | None  # [B, N]: codes of the nodes' contents, if known
    key_codes: Tensor | None


def _one(view: LayerAttention) -> list[LayerAttention]:
    return [view]


def _view(
    call: _Call,
    edges: tuple[Tensor, Tensor, Tensor],
    weight: Tensor,
    score: Tensor | None,
    batch: int = 0,
) -> LayerAttention:
    query, key, edge_id = edges
    query_node = query if call.query_row is None else call.query_row[query]
    is_loop = query_node == key
    if not call.is_one_set:  # then only added self-loops count
        is_loop &= edge_id < 0
    return LayerAttention(
        call.path, call.kind, query, key, edge_id, is_loop, weight, score,
        query_codes=_used(call.query_codes, query_node, batch),
        key_codes=_used(call.key_codes, key, batch),
    )  # fmt: skip


def _used(codes: Tensor | None, node: Tensor, batch: int) -> Tensor | None:
    """The distinct codes of some nodes in an element of a batch, which may share one input."""
    if codes is None:
        return None
    is_used = torch.zeros(codes.shape[1], dtype=torch.bool)
    is_used[node.cpu()] = True
    return codes[batch % len(codes), is_used].unique()


def _views_of_sight(
    call: _Call,
    observation: Observation,
    num_given: int,
    loops: tuple[Tensor, Tensor] | None,
    sample: int | None = None,
) -> Iterator[LayerAttention]:
    """One view per batch element: the caller's edges in order, then added self-loops; with a
    sample, those of some queries."""
    query, key, edge, relation, whole = _edges(observation, sample)
    order = edge.argsort()
    ends, edge = (query[order], key[order]), edge[order]
    of_all: dict[str, Any] = {"whole": whole, "num_relations": observation.num_relations}
    if relation is not None:
        of_all["relation"] = relation[order]
    edge_id = torch.where(edge < num_given, edge, -1)
    if loops is not None:
        num_loops = observation.weights.shape[-2] - num_given
        added = loops[0] < num_loops  # not the kept loops of a Graph, nor unused ids
        replaced = edge.new_full((num_loops,), -1)
        replaced[loops[0][added]] = loops[1][added]
        is_loop = edge >= num_given
        edge_id[is_loop] = replaced[edge[is_loop] - num_given]
    numbers = [each.flatten(0, -3) if each.dim() > 2 else each[None] for each in
               (observation.weights, observation.scores)]  # fmt: skip
    if len(edge) < observation.weights.shape[-2]:
        numbers = [each.index_select(1, edge) for each in numbers]
    for batch, (weight, score) in enumerate(zip(*numbers, strict=True)):
        yield replace(_view(call, (*ends, edge_id), weight, score, batch), **of_all)


def _edges(
    observation: Observation, sample: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Extent | None]:
    """Query, key and edge id of the edges; their relation, if there are several; and the extent of
    the whole, if they are a sample."""
    rowptr, relations = observation.rowptr, observation.num_relations
    row = torch.arange(len(rowptr) - 1, device=rowptr.device).repeat_interleave(rowptr.diff())
    query, relation = (row, None) if relations == 1 else (row // relations, row % relations)
    key, edge = observation.key_index, observation.edge_id
    if sample is None:
        return query, key.long(), edge.long(), relation, None
    degree = rowptr[::relations].diff()
    whole = Extent(int((degree > 0).sum()), count_used(key), len(edge))
    is_drawn = subset.drawn_queries(degree.cpu(), sample).to(query.device)
    at = is_drawn[query].nonzero()[:, 0]
    return (
        query[at],
        key[at].long(),
        edge[at].long(),
        None if relation is None else relation[at],
        whole,
    )


def _is_whole(observation: Observation) -> bool:
    """Is every edge id in use? Not if self-loops were replaced."""
    return len(observation.edge_id) == observation.weights.shape[-2]


def _query_row(given: Any) -> Tensor | None:
    return (
        given.query_row.long() if isinstance(given, Graph) and given.query_row is not None else None
    )


def _copy(ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """int64 copies, which do not change with the caller's edges."""
    return ends[0].to(torch.long, copy=True), ends[1].to(torch.long, copy=True)


def _codes(frame: _Frame) -> tuple[Tensor | None, Tensor | None]:
    """Codes of the contents of queries and of keys; None for an input without rows of nodes."""
    x = frame.arguments.get("x")
    if not isinstance(x, (tuple, list)):
        codes = codes_of(x)
        return codes, codes
    if frame.flow != "source_to_target" or len(x) != 2:
        return None, None
    return codes_of(x[1]), codes_of(x[0])


def _is_one_set(frame: _Frame) -> bool:
    """Are queries and keys the same nodes? In a pair, the queries may be the first keys."""
    x = frame.arguments.get("x")
    if not isinstance(x, (tuple, list)):
        return True
    key, query = x
    return query is None or (key is not None and key.data_ptr() == query.data_ptr())
