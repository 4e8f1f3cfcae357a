"""assumptions: how a graph's files were read, in sentences, so that nothing is assumed silently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynagat.data.store import SPLITS, GraphData

MAX_LISTED = 8  # columns
MAX_NAMED = 5  # rows that were left out


def assumptions(data: GraphData) -> tuple[str, ...]:
    """What was assumed about tables or an .npz file; empty for published data sets."""
    tables, columns = data.about.get("tables"), data.about.get("columns")
    if "links" in data.about:
        return tuple(_of_links(data, data.about["links"], columns))
    if tables is not None and columns is not None:
        return (*_of_nodes(data, tables, columns), _of_edges(tables))
    if "molecules" in data.about:
        return tuple(_of_molecules(data, data.about["molecules"]))
    if "directed" in data.about:
        return (_direction(data.about["directed"], "column", "row"),)
    return ()


def _of_nodes(
    data: GraphData, tables: Mapping[str, Any], columns: Mapping[str, Any]
) -> Iterator[str]:
    yield f"Column {tables['id']!r} holds the ids of the nodes."
    if data.task:
        target = _listed([tables["target"]] if isinstance(tables["target"], str)
                         else tables["target"])  # fmt: skip
        yield f"Target: {target}, for {data.task['kind']} (--task sets another)."
    features = [each["name"] for each in columns["columns"]]
    yield f"Features: {_listed(features) or 'none'} (--ignore leaves a column out)."
    if left_out := columns["left_out"]:
        reasons = _listed([f"{name} ({why})" for name, why in left_out.items()], quote=False)
        yield f"Left out: {reasons}."
    labelled = tables.get("nodes", 0) - tables.get("unlabelled", 0)
    yield from _of_split(tables, data, labelled)


def _of_molecules(data: GraphData, table: Mapping[str, Any]) -> Iterator[str]:
    yield f"Column {table['smiles']!r} holds the molecules; hydrogens are atoms like others."
    if skipped := table["skipped"]:
        first = ", ".join(table["first_skipped"]) + (", …" if skipped > MAX_NAMED else "")
        yield f"Left out: {skipped:,} of {table['rows']:,} rows without a usable SMILES: {first}."
    if "target" in table:
        kind = data.task["kind"]
        yield f"Target: {table['target']!r}, for {kind} (--task sets another)."
    if table.get("unlabelled"):
        yield f"Left out: {table['unlabelled']:,} of {table['rows']:,} rows without a target."
    labelled = table["rows"] - skipped - table.get("unlabelled", 0)
    yield from _of_split(table, data, labelled)


def _of_links(
    data: GraphData, links: Mapping[str, Any], columns: Mapping[str, Any] | None
) -> Iterator[str]:
    if "key" in links:
        yield f"Columns {links['key']!r} and {links['query']!r} hold the two nodes of a link."
    merged = f"{links['repeated']:,} of {links['rows']:,} rows repeat a link"
    yield f"{links['links']:,} links, in no direction: {merged}, {_self_pairs(links)}."
    if columns is not None:
        features = _listed([each["name"] for each in columns["columns"]])
        yield f"Features: {features or 'none'} (--ignore leaves a column out)."
    if links.get("time"):
        sizes = " and ".join(f"{len(data.split[f'{part}/edge']):,}" for part in ("valid", "test"))
        yield f"Split by {links['time']!r}: the latest {sizes} links are for valid and test."
    elif links.get("split") or "shares" in links:
        yield from _of_split(links, data, 0)
    if links["unseen"]:
        count = links["unseen"]
        nodes, them = ("1 node has", "it") if count == 1 else (f"{count:,} nodes have", "them")
        what = f"{nodes} links in valid or test, but none in train"
        first = _first(links, "first_unseen")
        yield f"{what}{first}: no neighbour tells the network about {them}."


def _self_pairs(links: Mapping[str, Any]) -> str:
    first = _first(links, "first_self_pair")
    return f"and {links['self_pairs']:,} that pair a node with itself are left out{first}"


def _first(links: Mapping[str, Any], name: str) -> str:
    """The first of what was counted; graphs that were stored earlier do not know it."""
    return f" (the first: {links[name]})" if links.get(name) else ""


def _of_split(table: Mapping[str, Any], data: GraphData, labelled: int) -> Iterator[str]:
    """`labelled` rows have a target; those with an empty cell in the split's column are in no part.
    Of links there are none: each has to be in a part."""
    if table.get("split"):
        unused = labelled - sum(len(data.split.get(part, ())) for part in SPLITS)
        rows = "1 row with a target is" if unused == 1 else f"{unused:,} rows with a target are"
        left_out = f"; {rows} in no part" if unused > 0 else ""
        yield f"Column {table['split']!r} holds the split{left_out}."
    elif "shares" in table:
        shares = "/".join(f"{share:.0%}".rstrip("%") for share in table["shares"])
        yield f"Split: {shares} % at random, with seed {table['seed']} (--split names a column)."


def _of_edges(tables: Mapping[str, Any]) -> str:
    return _direction(tables["directed"], f"column {tables['query']!r}", repr(tables["key"]))


def _direction(directed: bool, query: str, key: str) -> str:
    if directed:
        return f"Edges are directed: the node in {query} attends to that in {key}."
    return "Each edge is used in both directions (--directed keeps its direction)."


def _listed(names: Sequence[str], *, quote: bool = True) -> str:
    shown = [repr(name) if quote else name for name in names[:MAX_LISTED]]
    more = [f"and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
    return ", ".join([*shown, *more])
