"""Programs: records, labels, chunks and the original data set, on real and made records."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from bench.synthetic_programs import ProgramRecipe
from typer.testing import CliRunner

from dynagat.cli import app
from dynagat.data.programs import chunks
from dynagat.data.programs.chunks import (
    FIELDS,
    compact_path,
    make_compact,
    read_chunk,
    read_evidence,
)
from dynagat.data.programs.labels import LENGTH, decode, encode, split_label
from dynagat.data.programs.layout import PARTS, pack
from dynagat.data.programs.original import import_original, project_files
from dynagat.data.programs.records import (
    EDGE_TYPES,
    NOWHERE,
    RELATIONS,
    ProgramError,
    read_record,
)
from dynagat.data.programs.stored import SEEN, UNSEEN, open_programs

REAL = Path(os.environ.get("DYNAGAT_DATA", "")) / "varmisuse" / "varmisuse_one_real_graph.json"
SMALL = ProgramRecipe(tokens=12, inner=10, names=8, candidates=3)


def edges_of(graph, name):
    of_type = graph.kind == EDGE_TYPES.index(name)
    return sorted(zip(graph.key[of_type].tolist(), graph.query[of_type].tolist(), strict=True))


def texts_of(graph):
    return [decode(graph.codes[label]) for label in graph.label]


def tiny(**changes):
    """x = y(<SLOT>, y): the candidates are x and y."""
    words = {"0": "<SLOT>", "1": "x", "2": "y", "3": "(", "4": "y", "5": "Call", "6": "maxNode_2"}
    record = {
        "filename": "a.cs",
        "slotTokenIdx": 3,
        "SlotDummyNode": 0,
        "SymbolCandidates": [
            {"SymbolDummyNode": 2, "SymbolName": "y", "IsCorrect": False},
            {"SymbolDummyNode": 1, "SymbolName": "x", "IsCorrect": True},
        ],
        "ContextGraph": {
            "Edges": {"NextToken": [[4, 3], [3, 0]], "Child": [[5, 0]], "LastUse": []},
            "NodeLabels": words,
            "NodeTypes": {},
        },
    }
    return record | changes


# Labels


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        ("maxNodes_2", ("max", "nodes", "2")),
        ("HTTPServer2go", ("http", "server", "2", "go")),
        ("__init__", ("init",)),
        ("self.x", ("self", "x")),
        ('"a text"', ("a", "text")),
        ("x_x", ("x",)),
        ("<SLOT>", ("<slot>",)),
        ("+=", ()),
        ("été", ("été",)),
    ],
)
def test_identifiers_are_cut_into_their_distinct_parts(label, parts):
    assert split_label(label) == parts


def test_labels_are_19_characters_in_lower_case_and_unknown_ones_have_code_1():
    assert list(encode("aB é{}")) == [2, 3, 1, 1, 68, 69] + [0] * 13
    assert decode(np.frombuffer(encode("MaximumNumberOfNodes"), np.uint8)) == "maximumnumberofnode"
    assert len(encode("İ" * LENGTH)) == LENGTH  # its lower case has two characters


# Records


@pytest.mark.data
def test_the_real_record_is_read_whole():
    record = json.loads(REAL.read_text())[0]
    graph = read_record(record, "csharp")
    context = record["ContextGraph"]
    assert texts_of(graph)[:36] == [
        context["NodeLabels"][str(node)].lower()[:LENGTH] for node in range(36)
    ]
    for name, pairs in context["Edges"].items():
        assert edges_of(graph, name) == sorted(map(tuple, pairs))
    assert (graph.slot.tolist(), graph.candidates.tolist()) == ([0], [1, 2, 3])
    parts = texts_of(graph)[36:]
    assert len(set(parts)) == len(parts)
    assert {"equality", "comparer", "obj", "b"} <= set(parts)
    assert not {"new", "readonly"} & set(parts)  # keywords
    assert {key for key, query in edges_of(graph, "UsesSubtoken") if parts[query - 36] == "y"} == {
        2, 7, 10,
    }  # fmt: skip
    assert graph.distance.tolist() == [NOWHERE, 2, NOWHERE]
    assert graph.uses.tolist() == [1, 2, 1]


def test_the_right_candidate_is_first_and_at_most_five_are_kept():
    graph = read_record(tiny(), "csharp")
    assert graph.candidates.tolist() == [1, 2]
    assert graph.uses.tolist() == [0, 1]
    assert graph.distance.tolist() == [NOWHERE, 2]
    many = [{"SymbolDummyNode": n, "SymbolName": "z", "IsCorrect": n == 6} for n in range(7)]
    assert read_record(tiny(SymbolCandidates=many), "csharp").candidates.tolist() == [6, 0, 1, 2, 3]


def test_keywords_of_the_language_have_no_parts():
    record = tiny()
    record["ContextGraph"]["NodeLabels"]["5"] = "lambda"
    with_parts = {
        language: texts_of(read_record(record, language)) for language in ("csharp", "python")
    }
    assert "lambda" in with_parts["csharp"][7:]
    assert "lambda" not in with_parts["python"][7:]


def test_there_are_23_relations():
    assert len(RELATIONS) == len(set(RELATIONS)) == 23


def changed(**changes):
    record = tiny()
    record["ContextGraph"] |= changes
    return record


def without(name):
    record = tiny()
    del record[name]
    return record


def candidates(*correct):
    return [{"SymbolDummyNode": 1, "SymbolName": "x", "IsCorrect": each} for each in correct]


BAD = {
    "must have ContextGraph": without("ContextGraph"),
    "must have SlotDummyNode": without("SlotDummyNode"),
    "0 of 2 are": tiny(SymbolCandidates=candidates(False, False)),
    "2 of 2 are": tiny(SymbolCandidates=candidates(True, True)),
    "0 of 0 are": tiny(SymbolCandidates=[]),
    "a node below 7, but is 9": tiny(SlotDummyNode=9),
    "of type int, but is of type bool": tiny(SlotDummyNode=True),
    "edge 1 of Child must join nodes below 7, not 7": changed(Edges={"Child": [[0, 1], [7, 0]]}),
    "must be pairs of node ids": changed(Edges={"Child": [[0, 1], [2]]}),
    "edges Child must be pairs": changed(Edges={"Child": [[0.5, 1]]}),
    "the types Child": changed(Edges={"Sibling": [[0, 1]]}),
    "the ids 0 to 1, but lacks 0": changed(NodeLabels={"1": "x", "2": "y"}),
    "label of node 0 must be a text": changed(NodeLabels={"0": None}),
    "a record must be a JSON object": ["tiny"],
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_bad_record_is_one_sentence(sentence):
    with pytest.raises(ProgramError) as caught:
        read_record(BAD[sentence], "csharp")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


# Chunks


def compressed(record):
    return pack(record).data


def write(folder, records):
    """Chunks of 100 records, in their order."""
    folder.mkdir()
    lines = list(map(compressed, records))
    for start in range(0, len(lines), 100):
        path = folder / f"chunk-{start // 100:05}.jsonl.gz"
        path.write_bytes(b"".join(lines[start : start + 100]))
    return sorted(folder.glob("*.jsonl.gz"))


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS)


def test_a_chunk_has_100_records_and_its_compact_copy_the_same_graphs(tmp_path, monkeypatch):
    records = list(SMALL.records(205))
    paths = write(tmp_path / "train", records)
    assert [gzip.decompress(path.read_bytes()).count(b"\n") for path in paths] == [100, 100, 5]
    expected = [read_record(record, "csharp") for record in records]
    first = [graph for path in paths for graph in read_chunk(path, "csharp")]
    monkeypatch.setattr(chunks, "read_record", None)  # from now on, the text is not parsed
    again = [graph for path in paths for graph in read_chunk(path, "csharp")]
    for graphs in (first, again):
        assert len(graphs) == 205
        assert all(map(same, graphs, expected))
    evidence = [each for path in paths for each in read_evidence(path, "csharp")]
    for each, graph in zip(evidence, expected, strict=True):
        assert np.array_equal(each["distance"], graph.distance)


@pytest.mark.parametrize("damage", ["other text", "cut", "empty", "other language"])
def test_a_compact_copy_that_does_not_fit_is_made_again(damage, tmp_path):
    (path,) = write(tmp_path / "train", [changed(NodeLabels=words("while")), tiny()])
    read_chunk(path, "csharp")
    copy = compact_path(path)
    language = "csharp"
    if damage == "other text":
        path.write_bytes(compressed(tiny()))
    elif damage == "cut":
        copy.write_bytes(copy.read_bytes()[:-99])
    elif damage == "empty":
        copy.write_bytes(b"")
    else:
        language = "python"  # where checked is no keyword
        path.write_bytes(compressed(changed(NodeLabels=words("checked"))))
        read_chunk(path, "csharp")
    expected = list(chunks.read_lines(path, language))
    found = read_chunk(path, language)
    assert len(found) == len(expected)
    assert all(map(same, found, expected))


def words(last):
    return tiny()["ContextGraph"]["NodeLabels"] | {"5": last}


def test_processes_make_the_same_copies(tmp_path, monkeypatch):
    paths = write(tmp_path / "train", SMALL.records(120))
    monkeypatch.setattr(chunks, "FEW", 1)
    make_compact(paths, "csharp", workers=2)
    graphs = [graph for path in paths for graph in read_chunk(path, "csharp")]
    assert all(map(same, graphs, (read_record(each, "csharp") for each in SMALL.records(120))))


DEEP, LONG = "[" * 100_000, "9" * 5_000  # more than the parser of JSON takes


def test_a_bad_line_is_named_with_its_file(tmp_path):
    path = tmp_path / "chunk-00000.jsonl.gz"
    for text, sentence in (
        (f"{json.dumps(tiny())}\n{{\n", "line 2: must be JSON"),
        (f"{json.dumps(tiny())}\n{json.dumps(tiny(SlotDummyNode=9))}\n", "line 2: SlotDummyNode"),
        ("\n" + DEEP, "line 2: must be JSON"),
        ("\n" + LONG, "line 2: must be JSON"),
    ):
        path.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(ProgramError, match=sentence) as caught:
            read_chunk(path, "csharp")
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [compressed(tiny())[:-20], b"", b"not gzip", gzip.compress(b"\xff\xfe"), b"\x1f\x8b\x08" * 9],
    ids=["cut short", "empty", "not gzip", "not text", "only headers"],
)
def test_a_damaged_file_is_one_sentence(content, tmp_path):
    path = tmp_path / "chunk-00000.jsonl.gz"
    path.write_bytes(content)
    if not content:
        assert read_chunk(path, "csharp") == []
        return
    with pytest.raises(ProgramError, match=r"chunk-00000\.jsonl\.gz must be"):
        read_chunk(path, "csharp")


def test_a_set_of_programs_says_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    with pytest.raises(ProgramError, match="there is no set of programs 'made'"):
        open_programs("made")
    import_original(original(tmp_path), "made")
    programs = open_programs("made")
    for path in programs.chunks(UNSEEN):
        path.unlink()
    with pytest.raises(ProgramError, match="must have chunks"):
        programs.chunks(UNSEEN)
    listed = programs.folder / "programs.json"
    listed.write_text(listed.read_text().replace("csharp", "cobol"))
    with pytest.raises(ProgramError, match="must be csharp or python, not 'cobol'"):
        open_programs("made")
    listed.write_text("[]")
    with pytest.raises(ValueError, match="can't be read"):
        open_programs(str(programs.folder))


# The original data set


def original(tmp_path):
    """Two projects to train on, one that is for tests only."""
    for project, count in (("akka", 6), ("roslyn", 3), ("lean", 4)):
        for fold in ("train", "valid", "test"):
            folder = tmp_path / "graph-dataset" / project / f"graphs-{fold}"
            folder.mkdir(parents=True)
            records = [record | {"filename": f"{project}/{fold}/{n}.cs"}
                       for n, record in enumerate(SMALL.records(count))]  # fmt: skip
            (folder / "some.0.gz").write_bytes(gzip.compress(json.dumps(records).encode()))
    return tmp_path / "graph-dataset"


def names_in(programs, part):
    return {
        json.loads(line)["filename"]
        for path in programs.chunks(part)
        for line in gzip.decompress(path.read_bytes()).splitlines()
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_the_original_layout_becomes_chunks(workers, tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    report = import_original(original(tmp_path), "made", workers=workers)
    assert report.info.skipped == {}
    counts = {part: each.graphs for part, each in report.info.parts.items()}
    assert counts == {"train": 9, "valid": 9, SEEN: 9, UNSEEN: 4}
    programs = open_programs("made")
    for part in PARTS:
        fold, projects = part.partition("-")[0], ["akka", "roslyn"]
        if part == UNSEEN:
            projects = ["lean"]
        found = names_in(programs, part)
        assert {tuple(name.split("/")[:2]) for name in found} == {(p, fold) for p in projects}
        assert len(found) == counts[part]
    (path,) = programs.chunks(UNSEEN)
    assert len(read_chunk(path, programs.language)) == 4


def test_bad_records_and_files_of_the_original_are_counted_and_named(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path))
    folder = original(tmp_path)
    train = folder / "akka" / "graphs-train"
    records = [tiny(), tiny(SlotDummyNode=9), "nothing", tiny()]
    text = json.dumps(records)
    (train / "bad.gz").write_bytes(gzip.compress(text[:-3].encode()))  # ends in the last record
    (train / "cut.gz").write_bytes(gzip.compress(text.encode())[:-30])
    (train / "binary.gz").write_bytes(bytes(range(256)))
    (train / "deep.gz").write_bytes(gzip.compress(f"[{json.dumps(tiny())},\n{DEEP}".encode()))
    (train / "long.gz").write_bytes(gzip.compress(f"[\n{LONG}, 1]".encode()))
    command = ["data", "import-programs", str(folder), "--name", "made", "--workers", "1"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "made: train 11, valid 9, test-seen 9, test-unseen 4" in done.output
    for sentence in ("2 skipped: bad record", "bad.gz, record 2: SlotDummyNode",
                     "bad.gz, record 3: a record must", "5 skipped: damaged file",
                     "bad.gz, line 1: must be JSON", "cut.gz must be a whole gzip file",
                     "binary.gz must be a whole gzip file", "long.gz, line 2: must be JSON",
                     "deep.gz, line 2: must be JSON"):  # fmt: skip
        assert sentence in done.output
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
    assert "exists already" in again.output
    assert CliRunner().invoke(app, [*command, "--replace"]).exit_code == 0


def test_a_folder_without_projects_is_refused(tmp_path):
    with pytest.raises(ProgramError, match="must have files PROJECT/graphs-train"):
        project_files(tmp_path)
