"""The benchmarks of the paper, one declarative file or folder each; and those on any graph."""

from dynagat.benchmarks.dictionary_lookup import DICTIONARY_LOOKUP
from dynagat.benchmarks.edge_noise import EDGE_NOISE
from dynagat.benchmarks.ogbl_citation2 import OGBL_CITATION2
from dynagat.benchmarks.ogbl_collab import OGBL_COLLAB
from dynagat.benchmarks.ogbl_ddi import OGBL_DDI
from dynagat.benchmarks.ogbn_arxiv import OGBN_ARXIV
from dynagat.benchmarks.ogbn_mag import OGBN_MAG
from dynagat.benchmarks.ogbn_products import OGBN_PRODUCTS
from dynagat.benchmarks.ogbn_proteins import OGBN_PROTEINS
from dynagat.benchmarks.own_graph import OWN_GRAPH
from dynagat.benchmarks.own_links import OWN_LINKS
from dynagat.benchmarks.own_molecules import OWN_MOLECULES
from dynagat.benchmarks.pubmed import CITESEER, CORA, PUBMED
from dynagat.benchmarks.qm9 import QM9
from dynagat.benchmarks.varmisuse import VARMISUSE
from dynagat.experiment import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    each.name: each
    for each in (
        DICTIONARY_LOOKUP,
        OGBN_ARXIV,
        OGBN_PRODUCTS,
        OGBN_MAG,
        OGBN_PROTEINS,
        EDGE_NOISE,
        OGBL_COLLAB,
        OGBL_CITATION2,
        OGBL_DDI,
        QM9,
        VARMISUSE,
        PUBMED,
        CORA,
        CITESEER,
    )
}


def find(name: str) -> Benchmark:
    """A benchmark by its name."""
    known = {**BENCHMARKS, OWN_GRAPH.name: OWN_GRAPH, OWN_MOLECULES.name: OWN_MOLECULES}
    known[OWN_LINKS.name] = OWN_LINKS
    if name not in known:
        raise ValueError(f"there is no benchmark {name!r}; there are {', '.join(known)}")
    return known[name]
