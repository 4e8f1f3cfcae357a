"""Data sets: each a function that reads or makes a frozen value."""
