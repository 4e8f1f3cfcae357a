"""Graphs from tables of edges and nodes, in CSV or Parquet files."""

from dynagat.data.tables.columns import Columns
from dynagat.data.tables.csv_lines import TableError
from dynagat.data.tables.read import read_tables
from dynagat.data.tables.write import write_tables

__all__ = ["Columns", "TableError", "read_tables", "write_tables"]
