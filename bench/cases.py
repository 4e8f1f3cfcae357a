"""Cases: what is measured, as frozen values; in full, and in small for a quick look."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench.graphs import Dictionaries, Hub, Molecules, PowerLaw, Products, Recipe, Uniform

SHAPES = ((8, 32), (8, 8), (1, 64), (1, 256))  # H, C
# Fields of Case that older records lack: they are left out of a description at their default.
ADDED_LATER = ("batch_size", "pass_seeds", "string_ids", "benchmark")
ALL = ("pyg", "compiled", "dgl", "dynagat")


@dataclass(frozen=True)
class Effort:
    """How often a step is repeated: for about `seconds`, within these limits; and how long may a
    contender take for its first step, in which it may compile."""

    seconds: float = 8.0
    fewest: int = 3
    most: int = 11
    first_step: float = 300.0


@dataclass(frozen=True)
class Case:
    """One comparison: contenders, alternating, on the same graph in the same shape."""

    name: str
    group: str  # the table it belongs to
    graph: Recipe
    mechanism: str = "gatv2"
    heads: int = 8
    channels: int = 32
    in_dim: int = 128
    input_grad: bool = False  # whether x, too, has a gradient
    contenders: tuple[str, ...] = ALL
    against: Recipe | None = None  # degrees: the even graph
    huge_pages: bool = False  # floor: whether the tables lie on huge pages
    compiles: bool = True  # whether "compiled" takes part
    effort: Effort = field(default_factory=Effort)
    batch_size: int = 0  # sampling: seeds, or roots of walks
    pass_seeds: int = 0  # sampling: how many seeds a whole pass has, if one is measured
    string_ids: bool = False  # import: whether nodes have names and not numbers
    benchmark: str = ""  # training: the benchmark whose network, sampler and task are used

    @property
    def shape(self) -> str:
        return f"{self.heads}×{self.channels}"

    def describe(self) -> dict[str, Any]:
        """As JSON would give it back; two cases are the same if these are."""
        own = asdict(self)
        own["graph"] = self.graph.describe()
        own["against"] = self.against.describe() if self.against else None
        own["contenders"] = list(self.contenders)
        for name in ADDED_LATER:
            if not own[name]:
                del own[name]
        return own


@dataclass(frozen=True)
class Sizes:
    """What the full and the quick run differ in."""

    arxiv: PowerLaw
    even: Uniform
    dense: Uniform
    even_dense: Uniform
    hub_degree: int
    batches: dict[str, Recipe]
    shapes: tuple[tuple[int, int], ...]
    products: Products
    sampled: tuple[int, int, int]  # seeds per batch; per batch of products and per pass over it
    roots: int
    tables: Uniform
    training: dict[str, Recipe]  # by the name of the benchmark
    compiled: tuple[str, ...]  # the cases in which PyG's layer is compiled, too
    huge_pages: tuple[bool, ...]
    effort: Effort


TRAINING_EFFORT = Effort(seconds=300.0, fewest=24, most=48)
FULL = Sizes(
    arxiv=PowerLaw(),
    even=Uniform(),
    dense=Uniform(20_000, 12_000_000),
    even_dense=Uniform(169_343, 12_000_000),
    hub_degree=1_000_000,
    batches={
        "molecules": Molecules(),
        "dictionary-10": Dictionaries(k=10),
        "dictionary-20": Dictionaries(k=20),
    },
    shapes=SHAPES,
    products=Products(),
    sampled=(1024, 256, 196_615),  # protocol.md, 4.4
    roots=20_000,  # protocol.md, 4.2
    tables=Uniform(1_000_000, 5_000_000),
    training={"ogbn-products": Products(), "ogbn-proteins": Products(132_534, 79_122_504)},
    compiled=("*",),
    huge_pages=(False, True),
    effort=Effort(),
)

QUICK = Sizes(
    arxiv=PowerLaw(10_000, 150_000),
    even=Uniform(20_000, 300_000),
    dense=Uniform(2_000, 600_000),
    even_dense=Uniform(20_000, 600_000),
    hub_degree=100_000,
    batches={"molecules": Molecules(300), "dictionary-10": Dictionaries(128)},
    shapes=((8, 32), (8, 8)),
    products=Products(40_000, 2_000_000),
    sampled=(256, 64, 4_000),
    roots=1_000,
    tables=Uniform(20_000, 100_000),
    training={},
    compiled=("gatv2-8x8",),
    huge_pages=(False,),
    effort=Effort(seconds=1.0, fewest=3, most=5, first_step=100.0),
)


def make_cases(sizes: Sizes) -> list[Case]:
    """All cases, group by group, in the order in which they run and are reported."""
    effort = {"effort": sizes.effort}
    shaped = [{"heads": heads, "channels": channels, **effort} for heads, channels in sizes.shapes]
    few = [one for one in shaped if one["heads"] * one["channels"] in (256, 64)][:2]
    arxiv, first = sizes.arxiv, shaped[0]
    batched = [{"heads": heads, "channels": 128 // heads, **effort} for heads in (1, 8)]
    cases = [
        *(_case("gatv2", "layers", arxiv, one) for one in shaped),
        *(
            _case("floor", "floor", arxiv, one | {"huge_pages": huge}, "-huge" if huge else "")
            for huge in sizes.huge_pages
            for one in shaped
        ),
        _case("memory", "memory", arxiv, first),
        *(
            _case(name, "batches", graph, one | {"contenders": (*ALL, "dynagat, new graph")})
            for name, graph in sizes.batches.items()
            for one in batched
        ),
        *_degree_cases(sizes),
        _case("build", "build", arxiv, first),
        *(_case("threads", "threads", arxiv, one) for one in few),
        *(
            _case(mechanism, "mechanisms", arxiv, one | {"mechanism": mechanism})
            for mechanism in ("gat", "dpgat")
            for one in shaped
        ),
        _case("bfloat16", "bfloat16", arxiv, first),
        *(_case("capture", "capture", arxiv, one) for one in few),
        *_sampling_cases(sizes),
        *_import_cases(sizes),
        *_training_cases(sizes),
    ]
    compiled = [case.name for case in cases if "*" in sizes.compiled or case.name in sizes.compiled]
    return [replace(case, compiles=case.name in compiled) for case in cases]


def _case(name: str, group: str, graph: Recipe, settings: dict[str, Any], end: str = "") -> Case:
    shape = f"{settings['heads']}x{settings['channels']}"
    return Case(name=f"{name}-{shape}{end}", group=group, graph=graph, **settings)


def _degree_cases(sizes: Sizes) -> list[Case]:
    even, degree = sizes.even, sizes.hub_degree
    graphs: dict[str, tuple[Recipe, Recipe]] = {
        "dense": (sizes.dense, sizes.even_dense),
        "query-hub": (Hub(even.num_nodes, even.num_edges, degree, "query"), even),
        "key-hub": (Hub(even.num_nodes, even.num_edges, degree, "key"), even),
    }
    settings = {"heads": 8, "channels": 8, "effort": sizes.effort}
    return [
        _case(name, "degrees", graph, settings | {"against": against})
        for name, (graph, against) in graphs.items()
    ]


def _sampling_cases(sizes: Sizes) -> list[Case]:
    size, small, num_seeds = sizes.sampled
    cases = [
        Case(f"arxiv-{size}", "sampling", sizes.arxiv, batch_size=size),
        Case(f"products-{size}", "sampling", sizes.products, batch_size=size),
        Case(f"products-{small}", "sampling", sizes.products, batch_size=small,
             pass_seeds=num_seeds),
        Case(f"walks-{sizes.roots}", "walks", sizes.arxiv, batch_size=sizes.roots),
    ]  # fmt: skip
    return [replace(case, effort=sizes.effort) for case in cases]


def _import_cases(sizes: Sizes) -> list[Case]:
    given = {"group": "import", "graph": sizes.tables, "effort": sizes.effort}
    return [
        Case(name="import-numbers", **given),
        Case(name="import-names", **given, string_ids=True),
    ]


def _training_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "training", "contenders": ("dynagat",), "effort": TRAINING_EFFORT}
    return [
        Case(name=f"training-{name}", graph=graph, benchmark=name, **settings)
        for name, graph in sizes.training.items()
    ]
