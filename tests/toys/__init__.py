"""A toy benchmark for each kind of prediction, one file each, on generated data."""
