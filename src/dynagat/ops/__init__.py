"""The ops gat, gatv2, dpgat: fused kernels on the CPU, the reference on other devices."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from dynagat.graph import Graph
from dynagat.native import kernels
from dynagat.ops import fused, reference


def backend(tensor: Tensor) -> ModuleType:
    """The module that computes on this tensor's device."""
    return fused if kernels is not None and tensor.device.type == "cpu" else reference


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
