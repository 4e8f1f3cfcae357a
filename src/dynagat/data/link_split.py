"""split_links: the edges of a graph as links for training, validation and test.

A link is a pair of different nodes, in either direction. Each link is in one part only. Messages
are passed on training links alone, in both directions. For validation and test, as many pairs that
are no links in any part are drawn uniformly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dynagat.data.checks import check_ends, index_dtype
from dynagat.data.store import SPLITS, Edges, GraphData
from dynagat.data.tables.split import check_shares

SHARES = (0.8, 0.1, 0.1)  # of train, valid and test
LISTED = 1 << 22  # pairs of nodes that may be listed to find those that are not links
NEGATIVE_SEED = 0x4C494E4B  # of the pairs that are drawn; the seed of the split is added

Locate = Callable[[int], str]  # the position of row n, for error messages


@dataclass(frozen=True)
class LinkCounts:
    """What became of the rows."""

    rows: int
    self_pairs: int  # rows that were dropped: both nodes are the same
    repeated: int  # rows that were merged with an earlier one
    links: int
    unseen: int  # nodes of valid and test links that have no training link
    first_self_pair: str = ""  # where it is, and its node; empty if there is none
    first_unseen: str = ""


@dataclass(frozen=True, eq=False)
class Links:
    """Distinct links, in the order of their first rows."""

    code: np.ndarray  # [n] int64: smaller node · N + larger node
    row: np.ndarray  # [n]: the first row of each link
    link_of: np.ndarray  # [rows]: the link of each row, -1 if it is a self-pair
    num_nodes: int

    @classmethod
    def of(cls, pairs: np.ndarray, num_nodes: int) -> Links:
        """From rows [rows, 2]."""
        kept = np.flatnonzero(pairs[:, 0] != pairs[:, 1])
        code, first, inverse = np.unique(
            codes_of(pairs[kept], num_nodes), return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        link_of = np.full(len(pairs), -1, np.int64)
        link_of[kept] = place[inverse]
        return cls(code[order], kept[first[order]], link_of, num_nodes)

    def __len__(self) -> int:
        return len(self.code)

    @property
    def num_free(self) -> int:
        """The number of pairs of different nodes that are not links."""
        return self.num_nodes * (self.num_nodes - 1) // 2 - len(self)

    def pairs(self, chosen: np.ndarray) -> np.ndarray:
        """[n, 2] int64, the smaller node first."""
        return pairs_of(self.code[chosen], self.num_nodes)


def codes_of(pairs: np.ndarray, num_nodes: int) -> np.ndarray:
    """One number for each pair [n, 2], the same in both directions."""
    pairs = np.asarray(pairs, np.int64)
    return pairs.min(1) * num_nodes + pairs.max(1)


def pairs_of(codes: np.ndarray, num_nodes: int) -> np.ndarray:
    return np.stack(np.divmod(codes, num_nodes), axis=1)


def split_links(
    data: GraphData,
    *,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    time: np.ndarray | None = None,
    part: np.ndarray | None = None,
    source: str | None = None,
    locate: Locate | None = None,
) -> GraphData:
    """A graph whose task is to predict its links: at random, by time, or as given.

    Args:
        data: with one type of nodes and edges, in one direction or in both.
        shares: fractions of the links for training, validation and test.
        seed: of the random split and of the pairs that are not links.
        time: [E] numbers. The latest links are for test, those before for validation; a link is as
            old as its first edge, and links of the same time stay together.
        part: [E] of 0 (train), 1 (valid) and 2 (test); -1 leaves an edge out.
        source, locate: where the edges are from, and where edge n is, for error messages.
    """
    check_shares(shares)
    if time is not None and part is not None:
        raise ValueError("links are split by time or by parts that are given, but not by both")
    edges = data.sole_edges
    pairs = np.stack([np.asarray(edges.key_index), np.asarray(edges.query_index)], axis=1)
    source = source or f"graph {data.name}"
    check_ends(pairs, data.num_nodes, source)
    locate = locate or (lambda row: f"{source}, edge {row}")
    rows = np.arange(len(pairs)) if part is None else np.flatnonzero(part >= 0)
    links = Links.of(pairs[rows], data.num_nodes)

    def place(row: int) -> str:
        return locate(int(rows[row]))

    if part is not None:
        parts = _given(links, part[rows], place, source)
    elif time is not None:
        parts = _by_time(links, np.asarray(time, np.float64), shares, source)
    else:
        parts = _at_random(links, shares, seed, source)
    first = {"first_self_pair": _first_self_pair(data, links, pairs[rows], place),
             "first_unseen": _first_unseen(data, links, parts, place)}  # fmt: skip
    return _with_split(data, links, parts, seed, source, first)


def _first_self_pair(data: GraphData, links: Links, pairs: np.ndarray, locate: Locate) -> str:
    rows = np.flatnonzero(links.link_of < 0)
    return _place(data, int(rows[0]), int(pairs[rows[0], 0]), locate) if len(rows) else ""


def _first_unseen(data: GraphData, links: Links, part: np.ndarray, locate: Locate) -> str:
    is_seen = np.zeros(links.num_nodes, bool)
    is_seen[links.pairs(part == 0)] = True
    later = np.flatnonzero(part != 0)
    ends = links.pairs(later)
    unseen = np.argwhere(~is_seen[ends])
    if not len(unseen):
        return ""
    first, end = unseen[0]
    return _place(data, int(links.row[later[first]]), int(ends[first, end]), locate)


def _place(data: GraphData, row: int, node: int, locate: Locate) -> str:
    """ "edges.csv, line 7: 'n12'" """
    ids = data.nodes[data.node_type].arrays.get("id")
    return f"{locate(row)}: {str(node if ids is None else ids[node])!r}"


def _with_split(
    data: GraphData,
    links: Links,
    part: np.ndarray,
    seed: int,
    source: str,
    first: Mapping[str, str],
) -> GraphData:
    split = {f"{name}/edge": links.pairs(part == n) for n, name in enumerate(SPLITS)}
    sizes = [len(split["valid/edge"]), len(split["test/edge"])]
    negatives = draw_non_links(links, sum(sizes), seed, source)
    split["valid/edge_neg"], split["test/edge_neg"] = np.split(negatives, sizes[:1])
    train = split["train/edge"].astype(index_dtype(links.num_nodes))
    both = np.concatenate([train, train[:, ::-1]])
    both = both[np.lexsort((both[:, 0], both[:, 1]))]
    dropped = int((links.link_of < 0).sum())
    repeated = len(links.link_of) - dropped - len(links)
    unseen = num_unseen(split)
    counts = LinkCounts(len(links.link_of), dropped, repeated, len(links), unseen, **first)
    task = {"kind": "links", "node_type": data.node_type, "target": "link"}
    about = {**data.about, "task": task}
    about["links"] = {**about.get("links", {}), **asdict(counts), "seed": seed}
    arrays = {name: each for name, each in data.nodes[data.node_type].arrays.items() if name != "y"}
    nodes = {data.node_type: replace(data.nodes[data.node_type], arrays=arrays)}
    edges = {next(iter(data.edges)): Edges(both[:, 0].copy(), both[:, 1].copy())}
    return replace(data, nodes=nodes, edges=edges, split=split, about=about, folder=None)


def num_unseen(split: Mapping[str, Any]) -> int:
    """The number of nodes that have links in valid or test, but none in train."""
    later = np.union1d(np.asarray(split["valid/edge"]), np.asarray(split["test/edge"]))
    return len(np.setdiff1d(later, np.asarray(split["train/edge"])))


def _at_random(links: Links, shares: Sequence[float], seed: int, source: str) -> np.ndarray:
    """[n] the part of each link."""
    stops = _stops(len(links), shares)
    _check_filled(np.diff([0, *stops, len(links)]), len(links), source)
    part = np.empty(len(links), np.int8)
    order = np.random.default_rng(seed).permutation(len(links))
    part[order] = np.searchsorted(stops, np.arange(len(links)), side="right")
    return part


def _stops(count: int, shares: Sequence[float]) -> np.ndarray:
    """[2]: how many links come before valid, and before test."""
    return np.round(np.cumsum(shares)[:2] * count).astype(np.int64)


def _check_filled(sizes: np.ndarray, count: int, source: str) -> None:
    for part, size in zip(SPLITS, sizes, strict=True):
        if not size:
            raise ValueError(
                f"{source}: {count} {'link is' if count == 1 else 'links are'} too few to split: "
                f"none would be left for {part}"
            )


def _by_time(links: Links, time: np.ndarray, shares: Sequence[float], source: str) -> np.ndarray:
    """[n] the part of each link. Of the times at which a part can begin, the nearest are taken."""
    kept = links.link_of >= 0
    if not np.isfinite(time).all():
        raise ValueError(f"{source}: times must be finite numbers, but one is nan or infinite")
    first = np.full(len(links), np.inf)
    np.minimum.at(first, links.link_of[kept], time[kept])
    _check_filled(np.diff([0, *_stops(len(links), shares), len(links)]), len(links), source)
    values, sizes = np.unique(first, return_counts=True)
    if len(values) < len(SPLITS):
        raise ValueError(
            f"{source}: links must begin at {len(SPLITS)} or more different times to be split by "
            f"time, but begin at {len(values)}"
        )
    before = np.cumsum(sizes)[:-1]  # links before each time but the first
    valid_stop, test_stop = _stops(len(links), shares)
    test = 1 + int(np.abs(before[1:] - test_stop).argmin())
    valid = int(np.abs(before[:test] - valid_stop).argmin())
    return np.searchsorted(values[[valid + 1, test + 1]], first, side="right").astype(np.int8)


def _given(links: Links, part: np.ndarray, locate: Locate, source: str) -> np.ndarray:
    """[n] the part of each link; an error if a link is in two parts."""
    parts = part[links.row].astype(np.int8)
    kept = np.flatnonzero(links.link_of >= 0)
    wrong = kept[part[kept] != parts[links.link_of[kept]]]
    if len(wrong):
        row = int(wrong[0])
        first = int(links.row[links.link_of[row]])
        ours, theirs = SPLITS[part[row]], SPLITS[part[first]]
        raise ValueError(
            f"{locate(row)}: this link is in {ours}, but also in {theirs} ({locate(first)}); "
            "a link must be in one part only, in either direction"
        )
    for number, word in enumerate(SPLITS):
        if not (parts == number).any():
            raise ValueError(f"{source}: the split must have links in {word}, but has none")
    return parts


def draw_non_links(links: Links, count: int, seed: int, source: str) -> np.ndarray:
    """[count, 2] different pairs that are not links, in random order, the smaller node first."""
    if count > links.num_free:
        raise ValueError(
            f"{source}: {count:,} pairs that are not links are needed for valid and test, but only "
            f"{links.num_free:,} pairs are not linked"
        )
    generator = np.random.default_rng([NEGATIVE_SEED, seed])
    if links.num_nodes**2 <= LISTED:
        first, second = np.triu_indices(links.num_nodes, 1)
        free = np.setdiff1d(first * links.num_nodes + second, links.code, assume_unique=True)
        return pairs_of(generator.permutation(free)[:count], links.num_nodes)
    known, drawn = np.sort(links.code), np.empty(0, np.int64)
    while len(drawn) < count:
        pairs = generator.integers(links.num_nodes, size=(2 * (count - len(drawn)) + 16, 2))
        code = codes_of(pairs[pairs[:, 0] != pairs[:, 1]], links.num_nodes)
        drawn = np.concatenate([drawn, code[~is_in(code, known)]])
        _, first = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first)]
    return pairs_of(drawn[:count], links.num_nodes)


def is_in(codes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Whether each code is in a sorted array."""
    if not len(known):
        return np.zeros(len(codes), bool)
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return known[place] == codes


def all_links(data: GraphData) -> np.ndarray:
    """Sorted codes of the links of all parts."""
    pairs = [np.asarray(data.split[f"{part}/edge"]) for part in SPLITS]
    return np.unique(codes_of(np.concatenate(pairs), data.num_nodes))


def check_links(data: GraphData) -> None:
    """No link is in two parts, in either direction, nor among the messages if it is to be
    predicted; no pair is a self-pair; pairs that count as negatives are not links."""
    count, place = data.num_nodes, f"the split of {data.name}"
    codes = {}
    for name, array in data.split.items():
        pairs = np.asarray(array)
        if name.partition("/")[2] not in ("edge", "edge_neg"):
            continue
        check_ends(pairs, count, f"{place}: {name}")
        _refuse(pairs, pairs[:, 0] == pairs[:, 1], f"{place}: {name}", "a node and itself")
        codes[name] = codes_of(pairs, count)
    edges = data.sole_edges
    messages = np.stack([np.asarray(edges.key_index), np.asarray(edges.query_index)], axis=1)
    others = {"the messages": np.unique(codes_of(messages, count))}
    for part in SPLITS:
        name = f"{part}/edge"
        for other, known in others.items() if part != "train" else ():
            wrong = is_in(codes[name], known)
            _refuse(data.split[name], wrong, f"{place}: {name}", f"a link of {other}, too")
        others[name] = np.sort(codes[name])
    for name in (each for each in codes if each.endswith("_neg")):
        for other, known in others.items():
            wrong = is_in(codes[name], known)
            _refuse(data.split[name], wrong, f"{place}: {name}", f"a link of {other}")


def _refuse(pairs: Any, wrong: np.ndarray, place: str, what: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        first, second = np.asarray(pairs[row]).tolist()
        raise ValueError(f"{place}[{row}] is the pair {first}, {second}, which is {what}")
