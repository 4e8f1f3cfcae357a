"""Cases: what is measured, as frozen values; at full size, and small for a quick run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench.first_call import SMALL_PAGES
from bench.graphs import (
    Dictionaries,
    Hub,
    Hubs,
    Molecules,
    PowerLaw,
    Products,
    Recipe,
    Uniform,
)
from bench.large_graph import LargeGraph
from bench.lessons import KARATE, MOLECULES, Dataset
from bench.synthetic_programs import Programs

# Groups that a quick run leaves out unless it is asked for them.
LONG = ("streamed", "capture", "import", "links", "programs", "larger-than-memory", "plan")
SHAPES = ((8, 32), (8, 8), (1, 64), (1, 256))  # H, C
# Fields of Case that older records lack: they are left out of a description at their default.
ADDED_LATER = ("batch_size", "pass_seeds", "string_ids", "benchmark", "dropout", "device")
ADDED_LATER += ("num_runs",)
ALL = ("pyg", "compiled", "dgl", "dynagat")


@dataclass(frozen=True)
class Effort:
    """How often a step is repeated: for about `seconds`, between `fewest` and `most` times.

    `first_step` is the time limit, in seconds, of a contender's first step, which may compile.
    """

    seconds: float = 8.0
    fewest: int = 3
    most: int = 11
    first_step: float = 300.0


@dataclass(frozen=True)
class Case:
    """One comparison: contenders take turns on the same graph with the same layer sizes."""

    name: str
    group: str  # the table of the report
    graph: Recipe
    mechanism: str = "gatv2"
    heads: int = 8
    channels: int = 32
    in_dim: int = 128
    input_grad: bool = False  # whether x has a gradient, too
    contenders: tuple[str, ...] = ALL
    against: Recipe | None = None  # degrees: the even graph to compare with
    huge_pages: bool = False  # floor: whether the tables are on huge pages
    compiles: bool = True  # whether "compiled" is measured
    effort: Effort = field(default_factory=Effort)
    batch_size: int = 0  # sampling: number of seeds, or of roots of walks
    pass_seeds: int = 0  # sampling: number of seeds of a whole epoch; 0: none is measured
    string_ids: bool = False  # import: whether node ids are strings, not numbers
    benchmark: str = ""  # training, links: the benchmark whose network, sampler and task are used
    dropout: float = 0.0  # first five minutes: of features and of attention weights
    device: str = ""  # gpu: where the layers are; "": the CPU
    num_runs: int = 0  # sweep

    def describe(self) -> dict[str, Any]:
        """As read back from JSON; equal descriptions mean the same case."""
        values = asdict(self)
        values["graph"] = self.graph.describe()
        values["against"] = self.against.describe() if self.against else None
        values["contenders"] = list(self.contenders)
        for name in ADDED_LATER:
            if not values[name]:
                del values[name]
        return values


@dataclass(frozen=True)
class Sizes:
    """The sizes in which the full run and the quick run differ."""

    large: tuple[PowerLaw, tuple[tuple[int, int], ...]]  # of the group "layers"; with its shapes
    arxiv: PowerLaw
    even: Uniform
    dense: Uniform
    even_dense: Uniform
    hub_degree: int
    num_hubs: int  # of the graph with several, each of a tenth of that degree
    first_five: tuple[Dataset, ...]
    locality: tuple[Dataset, ...]
    batches: dict[str, Recipe]
    shapes: tuple[tuple[int, int], ...]
    products: Products
    seeds: tuple[int, int, int]  # per batch; per smaller batch on products; per epoch on products
    roots: int
    tables: Uniform
    first_call: tuple[PowerLaw, ...]
    epoch: dict[str, Recipe]  # by the name of the benchmark
    training: dict[str, Recipe]  # the same
    ddp: dict[str, Recipe]  # the same
    links: dict[str, Recipe]  # the same
    programs: Programs
    large_graph: LargeGraph  # of the group "larger-than-memory"
    planned: Products  # a part of ogbn-products
    num_runs: int  # of the group "sweep"
    compiled: tuple[str, ...]  # names of the cases that measure compiled PyG; "*": all
    huge_pages: tuple[bool, ...]
    effort: Effort


FIRST_FIVE = (
    Dataset(KARATE, 34, 156),
    Dataset("cora", 2_708, 10_556),
    Dataset("citeseer", 3_327, 9_104),
    Dataset("pubmed", 19_717, 88_648),
    Dataset("amazon-photo", 7_650, 238_162),
    Dataset("amazon-computers", 13_752, 491_722),
    Dataset(MOLECULES, 1_293, 2_400),
)
TRAINING_EFFORT = Effort(seconds=300.0, fewest=24, most=48)
EPOCH_EFFORT = Effort(seconds=30.0, fewest=5, most=24)
SAMPLED_LINKS_EFFORT = Effort(fewest=100, most=100)
LINKS: dict[str, dict[str, Any]] = {  # by the name of the benchmark
    "ogbl-collab": {"group": "links", "heads": 8, "channels": 8},
    "ogbl-citation2": {"group": "sampled links", "heads": 8, "channels": 32},
}
FULL = Sizes(
    large=(PowerLaw(), SHAPES),
    arxiv=PowerLaw(),
    even=Uniform(),
    dense=Uniform(20_000, 12_000_000),
    even_dense=Uniform(169_343, 12_000_000),
    hub_degree=1_000_000,
    num_hubs=10,
    first_five=FIRST_FIVE,
    locality=(Dataset("ogbn-arxiv", 169_343, 1_166_243), FIRST_FIVE[4]),
    batches={
        "molecules": Molecules(),
        "dictionary-10": Dictionaries(k=10),
        "dictionary-20": Dictionaries(k=20),
    },
    shapes=SHAPES,
    products=Products(),
    seeds=(1024, 256, 196_615),  # the last two: batch size and training nodes of ogbn-products
    roots=20_000,  # per step of ogbn-arxiv, in the code of the paper
    tables=Uniform(1_000_000, 5_000_000),
    first_call=(PowerLaw(),),
    epoch={"ogbn-arxiv": PowerLaw()},
    training={"ogbn-products": Products(), "ogbn-proteins": Products(132_534, 79_122_504)},
    ddp={"ogbn-products": Products(500_000, 25_000_000)},
    links={
        "ogbl-collab": Products(235_868, 2_358_104),
        "ogbl-citation2": Products(2_927_963, 60_775_990),
    },
    programs=Programs(),
    large_graph=LargeGraph(),
    planned=Products(612_257, 30_929_570),
    num_runs=120,
    compiled=("*",),
    huge_pages=(False, True),
    effort=Effort(),
)

QUICK = Sizes(
    large=(PowerLaw(), ((8, 8),)),
    arxiv=PowerLaw(10_000, 150_000),
    even=Uniform(20_000, 300_000),
    dense=Uniform(2_000, 600_000),
    even_dense=Uniform(20_000, 600_000),
    hub_degree=100_000,
    num_hubs=10,
    first_five=tuple(data for data in FIRST_FIVE if data.name in ("cora", "pubmed")),
    locality=(),
    batches={"molecules": Molecules(300), "dictionary-10": Dictionaries(128)},
    shapes=((8, 32), (8, 8)),
    products=Products(40_000, 2_000_000),
    seeds=(256, 64, 4_000),
    roots=1_000,
    tables=Uniform(20_000, 100_000),
    first_call=(),
    epoch={},
    training={},
    ddp={},
    links={"ogbl-collab": Products(5_000, 50_000)},
    programs=Programs(4, tokens=200, inner=200, names=80),
    large_graph=LargeGraph(200_000, 1_000_000),
    planned=Products(40_000, 2_000_000),
    num_runs=0,
    compiled=("cora-gatv2-dropout",),
    huge_pages=(False,),
    effort=Effort(seconds=1.0, fewest=3, most=5, first_step=100.0),
)


def make_cases(sizes: Sizes) -> list[Case]:
    """All cases, group by group, in the order in which they run and are reported."""
    effort = {"effort": sizes.effort}
    shapes = [{"heads": heads, "channels": channels, **effort} for heads, channels in sizes.shapes]
    two = [shape for shape in shapes if shape["heads"] * shape["channels"] in (256, 64)][:2]
    wide = [shape for shape in shapes if shape["heads"] * shape["channels"] == 256]
    arxiv, first, (large, large_shapes) = sizes.arxiv, shapes[0], sizes.large
    batched = [{"heads": heads, "channels": 128 // heads, **effort} for heads in (1, 8)]
    cases = [
        *_first_cases(sizes),
        *_tiny_cases(sizes),
        *(
            _case("gatv2", "layers", large, {"heads": heads, "channels": channels, **effort})
            for heads, channels in large_shapes
        ),
        *(
            _case("floor", "floor", arxiv, shape | {"huge_pages": huge}, "-huge" if huge else "")
            for huge in sizes.huge_pages
            for shape in shapes
        ),
        *_first_call_cases(sizes),
        _case("memory", "memory", arxiv, first),
        _case("streamed", "streamed", arxiv, first | {"contenders": ("reference", "streamed")}),
        *(
            _case(name, "batches", graph, shape | {"contenders": (*ALL, "dynagat, new graph")})
            for name, graph in sizes.batches.items()
            for shape in batched
        ),
        *_degree_cases(sizes),
        _case("build", "build", arxiv, first),
        *(_case("threads", "threads", arxiv, shape) for shape in two),
        *(
            _case(mechanism, "mechanisms", arxiv, shape | {"mechanism": mechanism})
            for mechanism in ("gat", "dpgat")
            for shape in shapes
        ),
        *(_case("bfloat16", "bfloat16", arxiv, shape) for shape in wide),
        *(_case("capture", "capture", arxiv, shape) for shape in two),
        *(
            _case(f"{data.name}-locality", "locality", data, shape)
            for data in sizes.locality
            for shape in two
        ),
        *_sampling_cases(sizes),
        *_import_cases(sizes),
        *_epoch_cases(sizes),
        *_training_cases(sizes),
        *_ddp_cases(sizes),
        *_relational_cases(sizes),
        *_link_cases(sizes),
        *_program_cases(sizes),
        *_large_cases(sizes),
        *_plan_cases(sizes),
        *_sweep_cases(sizes),
    ]
    compiled = [case.name for case in cases if "*" in sizes.compiled or case.name in sizes.compiled]
    return [replace(case, compiles=case.name in compiled) for case in cases]


def _case(name: str, group: str, graph: Recipe, settings: dict[str, Any], end: str = "") -> Case:
    shape = f"{settings['heads']}x{settings['channels']}"
    return Case(name=f"{name}-{shape}{end}", group=group, graph=graph, **settings)


def _first_cases(sizes: Sizes) -> list[Case]:
    """Each real graph with both mechanisms, without and with dropout."""
    effort = replace(sizes.effort, seconds=sizes.effort.seconds / 2, fewest=5, most=15)
    contenders = (*ALL, "dynagat, F.dropout")
    return [
        Case(
            name=f"{data.name}-{mechanism}{'-dropout' if dropout else ''}",
            group="first-five",
            graph=data,
            mechanism=mechanism,
            channels=8,
            contenders=contenders if dropout else ALL,
            dropout=dropout,
            effort=effort,
        )
        for data in sizes.first_five
        for mechanism in ("gat", "gatv2")
        for dropout in (0.0, 0.6)
    ]


def _tiny_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "tiny", "graph": FIRST_FIVE[0], "channels": 8, "in_dim": 34}
    settings |= {"contenders": ("pyg", "dynagat"), "effort": sizes.effort}
    return [
        Case(name=f"tiny-{mechanism}", mechanism=mechanism, **settings)
        for mechanism in ("gatv2", "gat")
    ]


def _first_call_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "first-call", "contenders": ("dynagat", SMALL_PAGES)}
    effort = replace(sizes.effort, fewest=5)
    return [
        Case(name="first-call", graph=graph, effort=effort, **settings)
        for graph in sizes.first_call
    ]


def _degree_cases(sizes: Sizes) -> list[Case]:
    even, degree = sizes.even, sizes.hub_degree
    graphs: dict[str, tuple[Recipe, Recipe]] = {
        "dense": (sizes.dense, sizes.even_dense),
        "query-hub": (Hub(even.num_nodes, even.num_edges, degree, "query"), even),
        "key-hub": (Hub(even.num_nodes, even.num_edges, degree, "key"), even),
        "hubs": (Hubs(even.num_nodes, even.num_edges, sizes.num_hubs, degree // 10), even),
    }
    settings = {"heads": 8, "channels": 8, "effort": sizes.effort}
    return [
        _case(name, "degrees", graph, settings | {"against": against})
        for name, (graph, against) in graphs.items()
    ]


def _sampling_cases(sizes: Sizes) -> list[Case]:
    size, small, num_seeds = sizes.seeds
    cases = [
        Case(f"arxiv-{size}", "sampling", sizes.arxiv, batch_size=size),
        Case(f"products-{size}", "sampling", sizes.products, batch_size=size),
        Case(f"products-{small}", "sampling", sizes.products, batch_size=small,
             pass_seeds=num_seeds),
        Case(f"walks-{sizes.roots}", "walks", sizes.arxiv, batch_size=sizes.roots),
    ]  # fmt: skip
    return [replace(case, effort=sizes.effort) for case in cases]


def _import_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "import", "graph": sizes.tables, "effort": sizes.effort}
    return [
        Case(name="import-numbers", **settings),
        Case(name="import-names", **settings, string_ids=True),
    ]


def _epoch_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "epoch", "contenders": ("dynagat", "pyg"), "effort": EPOCH_EFFORT}
    return [
        Case(name=name, graph=graph, benchmark=name, **settings)
        for name, graph in sizes.epoch.items()
    ]


def _training_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "training", "contenders": ("dynagat",), "effort": TRAINING_EFFORT}
    return [
        Case(name=f"training-{name}", graph=graph, benchmark=name, **settings)
        for name, graph in sizes.training.items()
    ]


def _ddp_cases(sizes: Sizes) -> list[Case]:
    workers = ("one worker, one thread", "one worker, two threads", "two workers, one thread each")
    settings = {"group": "ddp", "contenders": workers, "effort": TRAINING_EFFORT}
    return [
        Case(name=f"ddp-{name}", graph=graph, benchmark=name, **settings)
        for name, graph in sizes.ddp.items()
    ]


def _relational_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "relational", "graph": sizes.batches["molecules"]}
    settings |= {"heads": 8, "channels": 16, "contenders": ("dynagat", "pyg"), "in_dim": 15}
    return [
        Case(name=f"qm9-{mechanism}", mechanism=mechanism, effort=sizes.effort, **settings)
        for mechanism in ("gatv2", "gat")
    ]


def _link_cases(sizes: Sizes) -> list[Case]:
    effort = replace(sizes.effort, seconds=8 * sizes.effort.seconds)
    efforts = {"ogbl-citation2": SAMPLED_LINKS_EFFORT}
    return [
        Case(
            name=f"{benchmark}-{mechanism}",
            graph=graph,
            mechanism=mechanism,
            benchmark=benchmark,
            contenders=("dynagat", "pyg"),
            effort=efforts.get(benchmark, effort),
            **LINKS[benchmark],
        )
        for benchmark, graph in sizes.links.items()
        for mechanism in ("gatv2", "gat")
    ]


def _program_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "programs", "graph": sizes.programs, "heads": 8, "channels": 12}
    settings |= {"contenders": ("dynagat", "pyg"), "in_dim": 64, "effort": sizes.effort}
    return [
        Case(name=f"varmisuse-{mechanism}", mechanism=mechanism, **settings)
        for mechanism in ("gatv2", "gat")
    ]


def _large_cases(sizes: Sizes) -> list[Case]:
    return [
        Case(
            name="larger-than-memory",
            group="larger-than-memory",
            graph=sizes.large_graph,
            contenders=("dynagat",),
            benchmark="ogbn-products",
            in_dim=sizes.large_graph.features,
            effort=replace(TRAINING_EFFORT, seconds=1.0),
        )
    ]


def _plan_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "plan", "graph": sizes.planned, "benchmark": "ogbn-products"}
    return [
        Case(name=f"plan-{mechanism}", mechanism=mechanism, contenders=("dynagat",), **settings)
        for mechanism in ("gatv2", "gat")
    ]


def _sweep_cases(sizes: Sizes) -> list[Case]:
    settings = {"group": "sweep", "graph": Dictionaries(32_000, k=5)}
    settings |= {"contenders": ("--workers 1", "--workers 2", "--ray, 2 CPUs")}
    settings |= {"benchmark": "dictionary-lookup", "num_runs": sizes.num_runs}
    return [Case(name="sweep", **settings)] if sizes.num_runs else []
