"""Small tables for tests: four nodes, three edges, and helpers to write and read them."""

from pathlib import Path

EDGES = "source,target\na,b\nb,c\nc,d\n"
NODES = (
    "id,age,colour,label,split\na,1,red,x,train\nb,3,blue,y,train\nc,5,red,x,valid\nd,7,,y,test\n"
)


def write(
    folder: Path, edges: str | bytes = EDGES, nodes: str | bytes = NODES
) -> tuple[Path, Path]:
    """Write e.csv and n.csv, and return their paths."""
    paths = folder / "e.csv", folder / "n.csv"
    for path, text in zip(paths, (edges, nodes), strict=True):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return paths


def pairs(data) -> list[tuple[str, str]]:
    """The edges as (key, query) names, sorted."""
    names, edges = data.nodes["node"].arrays["id"], data.sole_edges
    ends = zip(edges.key_index.tolist(), edges.query_index.tolist(), strict=True)
    return sorted((str(names[key]), str(names[query])) for key, query in ends)
