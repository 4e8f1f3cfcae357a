"""Graphs with features, targets and splits: read from tables and files, kept in a store.

Names are imported on first use, since some of them need pyarrow, scipy or PyG.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynagat.data.catalog import load
    from dynagat.data.link_split import split_links
    from dynagat.data.link_table import read_links
    from dynagat.data.molecule_table import read_molecules
    from dynagat.data.programs.great import import_great
    from dynagat.data.programs.python_files import import_python
    from dynagat.data.pyg import from_pyg
    from dynagat.data.statistics import describe
    from dynagat.data.store import GraphData, open_graph
    from dynagat.data.tables import Columns, TableError, read_tables, write_tables

__all__ = ["Columns", "GraphData", "TableError", "describe", "from_pyg", "load", "open_graph"]
__all__ += [
    "import_great",
    "import_python",
    "read_links",
    "read_molecules",
    "read_tables",
    "split_links",
    "write_tables",
]

_HOMES = {"GraphData": "store", "describe": "statistics", "from_pyg": "pyg", "load": "catalog"}
_HOMES |= {"open_graph": "store", "read_molecules": "molecule_table"}
_HOMES |= {"import_great": "programs.great", "import_python": "programs.python_files"}
_HOMES |= {"read_links": "link_table", "split_links": "link_split"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'tables')}"), name)
