"""Kinds of prediction, one file each: of nodes, of whole graphs, of links, of candidates.

Each kind has a problem, a frozen value; the settings of a task on it; and a `Prediction`, which
draws training batches from the problem, gives their loss, and scores a network.
"""
