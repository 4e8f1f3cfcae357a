"""The catalogue of known datasets: sizes, source, and how to read them.

Amazon's graphs have no official split. amazon-photo_split.npz and amazon-computer_split.npz are
used if the folder has them; else the nodes are split 60/20/20 at random with seed 0. The graph's
about["split"] says which.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dynagat.data.arrays import FolderError
from dynagat.data.download import Progress, Remote, check_zip, download, unzip
from dynagat.data.minesweeper import minesweeper
from dynagat.data.molecules import NUM_FEATURES
from dynagat.data.npz import read_npz
from dynagat.data.ogb import SETS, check_counts, read_ogb
from dynagat.data.planetoid import PARTS, read_planetoid
from dynagat.data.qm9 import COMPACT, TARGETS, read_qm9
from dynagat.data.store import GraphData, open_graph, raw_folders, stored_names
from dynagat.files import locked

Read = Callable[["Entry", Path, bool], GraphData]


@dataclass(frozen=True)
class Entry:
    """A dataset: the number of nodes of all types, of stored edges, and the sizes of its split."""

    name: str
    what: str
    nodes: int
    edges: int
    features: int
    classes: int  # or labels; 0 for link prediction
    split: tuple[int, int, int]
    source: str
    folder: str  # name of the folder of its files
    signs: tuple[str, ...]  # a folder with one of these files holds it; (): it is computed
    read: Read
    remotes: tuple[Remote, ...] = ()

    def raw(self) -> Path | None:
        """The folder of its files, or None if they are missing."""
        if not self.signs:
            return raw_folders(self.folder)[-1]
        for folder in raw_folders(self.folder):
            if any((folder / sign).is_file() for sign in self.signs):
                return folder
        return None

    @property
    def how(self) -> str:
        """How to get its files."""
        places = " or ".join(str(folder) for folder in raw_folders(self.folder))
        return f"`dynagat data get {self.name}` downloads it; or put its files into {places}"


def find_entry(name: str) -> Entry:
    if name not in CATALOG:
        known = ", ".join(CATALOG)
        raise ValueError(f"the catalogue has no {name!r}; it has {known}")
    return CATALOG[name]


def missing(name: str) -> str | None:
    """How to get a graph that is neither stored nor can be read from its files; else None."""
    if name in stored_names():
        return None
    entry = CATALOG.get(name)
    if entry is None:
        return f"there is no graph {name!r}; `dynagat data list` has the names"
    return entry.how if entry.raw() is None else None


def load(name: str) -> GraphData:
    """Open a stored graph, or store one of the catalogue whose files exist and open it."""
    if name in stored_names():
        return open_graph(name)
    if name not in CATALOG:
        known = ", ".join(dict.fromkeys([*stored_names(), *CATALOG]))
        raise ValueError(
            f"there is no graph {name!r} in the store or the catalogue; known: {known}"
        )
    entry = CATALOG[name]
    folder = entry.raw()
    if folder is None:
        raise FolderError(f"{name} is not here; {entry.how}")
    try:
        return entry.read(entry, folder, False)
    except FolderError:
        if name in stored_names():  # another process has stored it meanwhile
            return open_graph(name)
        raise


def get(name: str, *, replace: bool = False, tell: Progress | None = None) -> GraphData:
    """Download a dataset unless its files exist, read it and store it.

    `replace` downloads and stores it again. `tell` is called with the progress of the download.
    """
    entry = find_entry(name)
    if not replace and (name in stored_names() or entry.raw() is not None):
        return load(name)
    folder = raw_folders(entry.folder)[-1]
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock_file = folder.with_name(f".{folder.name}.lock")
    lock_file.touch()
    with locked(lock_file):
        if replace or entry.raw() is None:  # another process may have downloaded it meanwhile
            _fetch(entry, folder, tell)
    return entry.read(entry, folder, replace) if replace else load(name)


def _fetch(entry: Entry, folder: Path, progress: Progress | None) -> None:
    remotes = [_current(entry, each) for each in entry.remotes]
    if not remotes:  # it is computed
        return
    if not remotes[0].url.endswith(".zip"):
        for remote in remotes:
            download(remote, folder, progress)
        return
    (remote,) = remotes
    inside = folder.with_name(f"{folder.name}.download")
    path = download(remote, inside, progress, lambda part: check_zip(part, entry.signs))
    unzip(path, folder)
    path.unlink()


def _current(entry: Entry, remote: Remote) -> Remote:
    """The address in the ogb package, if that is installed, since it may be newer than ours.

    Only its table is read: importing the package would access the network.
    """
    spec = importlib.util.find_spec("ogb") if entry.name in SETS else None
    for package in (spec.submodule_search_locations or []) if spec else []:
        task = "linkproppred" if SETS[entry.name].is_links else "nodeproppred"
        with open(Path(package) / task / "master.csv", newline="") as file:
            table = {row[0]: row for row in csv.reader(file)}
        if entry.name in table[""]:
            return Remote(table["url"][table[""].index(entry.name)], remote.sha256)
    return remote


def _read_planetoid(entry: Entry, folder: Path, replace_: bool) -> GraphData:
    data = read_planetoid(folder, entry.name)
    check_counts((data.num_nodes, data.num_edges), (entry.nodes, entry.edges), folder)
    return data.save(replace=replace_)


def _read_amazon(entry: Entry, folder: Path, replace_: bool) -> GraphData:
    split = folder / f"{entry.name.removesuffix('s')}_split.npz"
    has_split = split.is_file()
    data = read_npz(folder / entry.signs[0], entry.name, split=split if has_split else None)
    data = data.without_loops()
    check_counts((data.num_nodes, data.num_edges), (entry.nodes, entry.edges), folder)
    parts = data.split if has_split else _random_split(data.num_nodes, entry.split)
    about = {**data.about, "split": split.name if has_split else "60/20/20, drawn with seed 0"}
    return replace(data, split=parts, about=about).save(replace=replace_)


def _random_split(count: int, sizes: tuple[int, int, int]) -> dict[str, np.ndarray]:
    order = np.random.default_rng(0).permutation(count)
    train, valid, test = np.split(order, np.cumsum(sizes)[:-1])
    return {"train": train, "valid": valid, "test": test}


def _read_ogb(entry: Entry, folder: Path, replace_: bool) -> GraphData:
    return read_ogb(folder, entry.name, replace=replace_, expected=(entry.nodes, entry.edges))


PLANETOID_SUMS = {  # checksums of the files, in the order of PARTS
    "pubmed": (
        "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    ),
    "cora": (
        "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    ),
    "citeseer": (
        "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    ),
}


def _planetoid(name: str, nodes: int, edges: int, features: int, classes: int, train: int) -> Entry:
    base = f"https://github.com/kimiyoung/planetoid/raw/master/data/ind.{name}"
    sums = zip(PARTS, PLANETOID_SUMS[name], strict=True)
    return Entry(
        name=name,
        what=f"citations, {name.capitalize()}",
        nodes=nodes,
        edges=2 * edges,
        features=features,
        classes=classes,
        split=(train, 500, 1000),
        source="github.com/kimiyoung/planetoid",
        folder=name,
        signs=(f"ind.{name}.{PARTS[-1]}",),  # the last file that is downloaded
        read=_read_planetoid,
        remotes=tuple(Remote(f"{base}.{part}", sha256) for part, sha256 in sums),
    )


def _amazon(
    name: str, nodes: int, edges: int, features: int, classes: int, split: tuple[int, int, int]
) -> Entry:
    file_name = f"amazon_electronics_{name.removeprefix('amazon-')}.npz"
    url = f"https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{file_name}"
    return Entry(
        name=name,
        what="products bought together",
        nodes=nodes,
        edges=edges,
        features=features,
        classes=classes,
        split=split,
        source="github.com/shchur/gnn-benchmark",
        folder="amazon",
        signs=(file_name,),
        read=_read_amazon,
        remotes=(Remote(url),),
    )


def _ogb(
    name: str,
    what: str,
    nodes: int,
    edges: int,
    features: int,
    classes: int,
    split: tuple[int, int, int],
) -> Entry:
    ogb_set = SETS[name]
    task = "linkproppred" if ogb_set.is_links else "nodeproppred"
    url = f"http://snap.stanford.edu/ogb/data/{task}/{ogb_set.download}.zip"
    raw = ("edge.csv.gz", "triplet-type-list.csv.gz", "data.npz", "edge_index_dict.npz")
    signs = (*(f"raw/{sign}" for sign in raw), "adj_full.npz", "ogbl_ddi.npz")
    return Entry(
        name=name,
        what=what,
        nodes=nodes,
        edges=edges,
        features=features,
        classes=classes,
        split=split,
        source="ogb.stanford.edu",
        folder=name,
        signs=signs,
        read=_read_ogb,
        remotes=(Remote(url),),
    )


MINESWEEPER = Entry(
    name="minesweeper",
    what="cells of a grid, 80 to 20 mines",
    nodes=10_000,
    edges=78_804,
    features=10,
    classes=2,
    split=(5_000, 2_500, 2_500),
    source="computed",
    folder="minesweeper",
    signs=(),
    read=lambda entry, folder, replace_: minesweeper().save(replace=replace_),
)


def _read_qm9(entry: Entry, folder: Path, replace_: bool) -> GraphData:
    return read_qm9(folder, entry.name).save(replace=replace_)


_MOLECULES = "https://github.com/microsoft/tf-gnn-samples/raw/master/data/qm9"
QM9 = Entry(
    name="qm9",
    what="130,000 molecules, 13 properties",
    nodes=2_353_382,
    edges=2_434_574,
    features=NUM_FEATURES,
    classes=len(TARGETS),
    split=(110_484, 10_000, 10_000),
    source="github.com/microsoft/tf-gnn-samples",
    folder="qm9",
    signs=(COMPACT, "test.jsonl.gz"),  # the last file that is downloaded
    read=_read_qm9,
    remotes=(
        Remote(f"{_MOLECULES}/train.jsonl.gz"),
        Remote(
            f"{_MOLECULES}/valid.jsonl.gz",
            "011b6f00034f06530fe9a07e0c7e33fb3ab81bddbcdefb59c7de44f6b07498e9",
        ),
        Remote(
            f"{_MOLECULES}/test.jsonl.gz",
            "b34d2b43c9ad294ae30fac0d687e7a2cab320d81f88e10197d26df865d8fe5fc",
        ),
    ),
)


# Published sizes, cited in docs/reproduction.md; both directions where both are stored.
CATALOG = {
    entry.name: entry
    for entry in [
        _planetoid("pubmed", 19_717, 44_324, 500, 3, 60),
        _planetoid("cora", 2_708, 5_278, 1_433, 7, 140),
        _planetoid("citeseer", 3_327, 4_552, 3_703, 6, 120),
        _amazon("amazon-photo", 7_650, 238_162, 745, 8, (4_590, 1_530, 1_530)),
        _amazon("amazon-computers", 13_752, 491_722, 767, 10, (8_251, 2_750, 2_751)),
        _ogb("ogbn-arxiv", "papers that cite each other", 169_343, 1_166_243, 128, 40,
             (90_941, 29_799, 48_603)),
        _ogb("ogbn-mag", "papers, authors, fields and institutions", 1_939_743, 21_111_007, 128,
             349, (629_571, 64_879, 41_939)),
        _ogb("ogbn-products", "products bought together", 2_449_029, 123_718_280, 100, 47,
             (196_615, 39_323, 2_213_091)),
        _ogb("ogbn-proteins", "proteins that interact", 132_534, 79_122_504, 0, 112,
             (86_619, 21_236, 24_679)),
        _ogb("ogbl-collab", "authors who write together", 235_868, 2_358_104, 128, 0,
             (1_179_052, 60_084, 46_329)),
        _ogb("ogbl-citation2", "papers and their references", 2_927_963, 30_387_995, 128, 0,
             (30_387_995, 86_596, 86_596)),
        _ogb("ogbl-ddi", "drugs that interact", 4_267, 2_135_822, 0, 0,
             (1_067_911, 133_489, 133_489)),
        QM9,
        MINESWEEPER,
    ]
}  # fmt: skip
