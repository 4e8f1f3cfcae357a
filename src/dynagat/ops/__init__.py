"""The ops gat, gatv2, dpgat, pair_linear, on every device."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from dynagat.graph import Graph
from dynagat.ops import devices, fused, reference
from dynagat.ops import pairs as native_pairs


def backend(tensor: Tensor) -> ModuleType:
    """The definition, or the ops of torch.library, which call the kernels of the device."""
    return reference if devices.choose(tensor.device) == "reference" else fused


def gat(query_score: Tensor, key_score: Tensor, value: Tensor, graph: Graph, **options):
    """score_ij = LeakyReLU(query_score_i + key_score_j + W_e e_ij); see `reference.gat`."""
    query_score = graph.rows_of_queries(query_score, -2)
    return backend(value).gat(query_score, key_score, value, graph, **options)


def gatv2(query: Tensor, key: Tensor, a: Tensor, graph: Graph, **options):
    """score_ij = aᵀ LeakyReLU(query_i + key_j + W_e e_ij); see `reference.gatv2`."""
    query = graph.rows_of_queries(query, -3)
    return backend(key).gatv2(query, key, a, graph, **options)


def dpgat(query: Tensor, key: Tensor, value: Tensor, graph: Graph, **options):
    """score_ij = ⟨query_i, key_j + W_e e_ij⟩ / √C; see `reference.dpgat`."""
    query = graph.rows_of_queries(query, -3)
    return backend(key).dpgat(query, key, value, graph, **options)


def pair_linear(x: Tensor, pairs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """out_p = W (x_i ∘ x_j) + b for each pair p = (i, j); see `reference.pair_linear`."""
    native = native_pairs.is_native(x, pairs, weight)
    return (native_pairs if native else reference).pair_linear(x, pairs, weight, bias)
