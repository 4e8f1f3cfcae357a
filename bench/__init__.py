"""bench: speed and memory of dynagat's layers compared with PyG, compiled PyG and DGL.

    python -m bench             measure everything in docs/performance.md, then write that page
    python -m bench --quick     Cora, PubMed, one large graph; the rest on small graphs; two minutes
    python -m bench --demo      one dynagat layer compared with PyG's

An interrupted run keeps its results, and the next run continues from there. DGL is measured if it
can be imported; `pip install --no-deps --target DIR dgl==1.1.3` and `PYTHONPATH=DIR` provide it
without replacing the installed torch.

A case is a frozen value (`cases`), its graph is drawn by a recipe (`graphs`), a contender is a
function (`contenders`); `measure` turns a case into records, and all pages are computed from
records. Shapes are written as in dynagat: N nodes, E edges, H heads, C channels per head.
"""
