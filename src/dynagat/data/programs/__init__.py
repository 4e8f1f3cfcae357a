"""Programs as graphs: which variable belongs into a slot (VarMisuse).

A set of programs is a folder in the graph store, in the layout of the original data set:

    NAME/programs.json                          name, language and numbers of records
    NAME/{train,valid,test-seen,test-unseen}/chunk-00000.jsonl.gz ...

A chunk has up to 100 records, each a line of JSON with the keys of the original (records.py).
"""
