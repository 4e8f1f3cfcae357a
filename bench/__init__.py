"""bench: how fast and how small dynagat's layers are beside PyG's, PyG's compiled and DGL's.

    python -m bench             measure everything docs/performance.md shows, then write that page
    python -m bench --quick     the same on small graphs, in under two minutes
    python -m bench --demo      one layer of ours beside PyG's

What a killed run has measured is kept, and the next one goes on from there. DGL takes part where
it imports; one that is in nobody's way is had by
`pip install --no-deps --target DIR dgl==1.1.3` and `PYTHONPATH=DIR`.

A case is a frozen value (`cases`), what it runs on is a recipe (`graphs`), a contender is a
function (`contenders`); `measure` turns a case into records, and all pages come from records.
Shapes are written as in dynagat: N nodes, E edges, H heads, C channels per head.
"""
