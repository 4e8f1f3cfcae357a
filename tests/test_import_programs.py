"""Importing programs: the split has no leak, the bytes are always the same, bad input is named."""

import gzip
import json
import os

import pytest
from typer.testing import CliRunner

from dynagat.benchmarks.varmisuse.stream import fill, join
from dynagat.cli import app
from dynagat.data.arrays import FolderError
from dynagat.data.programs.great import great_record, import_great
from dynagat.data.programs.layout import CHUNK, MAX_CANDIDATES, PARTS, read_info
from dynagat.data.programs.python_files import import_python
from dynagat.data.programs.python_source import MAX_BYTES
from dynagat.data.programs.records import read_record
from dynagat.data.programs.sources import (
    find_sources,
    parts_of,
    python_projects,
    without_duplicates,
)
from dynagat.data.programs.stored import open_programs
from dynagat.data.programs.summary import describe_programs, diameter, read_chunk

FUNCTION = "def f{n}(a, b):\n    c = a + b\n    if c > {n}:\n        return a\n    return b + c\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAGAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def projects(tmp_path):
    """Five projects of twelve files, which share one."""
    folders = []
    for project in range(5):
        folder = tmp_path / f"project{project}"
        (folder / "inner").mkdir(parents=True)
        for n in range(12):
            path = folder / ("inner" if n % 2 else "") / f"file{n}.py"
            path.write_text(FUNCTION.format(n=n if n == 0 else 100 * project + n))
        folders.append(folder)
    return folders


def records_of(folder, part):
    return [r for path in sorted((folder / part).iterdir()) for r in read_chunk(path)]


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_no_file_or_project_is_in_a_part_where_it_must_not_be(projects, tmp_path):
    info = import_python(projects, folder=tmp_path / "out", workers=1).info
    files = {p: {r["filename"] for r in records_of(tmp_path / "out", p)} for p in PARTS}
    assert all(files.values())
    assert sum(map(len, files.values())) == len(set.union(*files.values())) == 5 * 12 - 4
    assert info.settings["duplicates"] == 4
    owners = {part: {name.split("/")[0] for name in names} for part, names in files.items()}
    assert not owners["test-unseen"] & (owners["train"] | owners["valid"] | owners["test-seen"])
    assert owners == {part: set(info.parts[part].projects) for part in PARTS}


def test_the_projects_of_test_unseen_can_be_named(projects, tmp_path):
    info = import_python(projects, folder=tmp_path / "out", unseen=["project3"], workers=1).info
    assert info.parts["test-unseen"].projects == ("project3",)
    with pytest.raises(ValueError, match="no project 'other'; the projects are project0, project1"):
        import_python(projects, folder=tmp_path / "new", unseen=["other"], workers=1)


def test_the_bytes_do_not_depend_on_the_workers_but_on_the_seed(projects, tmp_path):
    def imported(name, **options):
        import_python(projects, folder=tmp_path / name / "out", max_graphs=60, **options)
        return content(tmp_path / name / "out")

    one = imported("one", workers=1)
    assert imported("two", workers=2) == one
    assert imported("three", workers=1, seed=1) != one


def test_the_limits_hold_and_chunks_are_full(projects, tmp_path):
    info = import_python(projects, folder=tmp_path / "a", slots_per_file=4, workers=1).info
    count = info.parts["train"].graphs
    chunks = [len(list(read_chunk(p))) for p in sorted((tmp_path / "a" / "train").iterdir())]
    assert chunks == [CHUNK] * (count // CHUNK) + [count % CHUNK][: count % CHUNK]
    per_file = [r["filename"] for r in records_of(tmp_path / "a", "train")]
    assert max(per_file.count(name) for name in per_file) == 4
    info = import_python(projects, folder=tmp_path / "b", max_graphs=10, workers=1).info
    assert [info.parts[part].graphs for part in PARTS] == [10, 2, 2, 2]


def test_records_have_the_keys_of_the_original(projects, tmp_path):
    import_python(projects[:1], folder=tmp_path / "out", workers=1)
    record = records_of(tmp_path / "out", "train")[0]
    assert set(record) == {
        "filename", "slotTokenIdx", "SlotDummyNode", "SymbolCandidates", "ContextGraph"
    }  # fmt: skip
    assert set(record["ContextGraph"]) == {"Edges", "NodeLabels", "NodeTypes"}


def test_bad_files_are_counted_and_named(projects, tmp_path):
    bad = {
        "syntax.py": b"def f(:",
        "binary.py": os.urandom(1000),
        "nul.py": b"a = 1\0",
        "latin.py": "ä = 1".encode("latin-1"),
        "plain.py": b"print('no variables')",
        "large.py": b"x = 1\n" * 900_000,  # 5.4 MB
        "deep.py": b"x = " + b"-" * 50_000 + b"1",
    }
    for name, data in bad.items():
        (projects[0] / name).write_bytes(data)
    report = import_python(projects, folder=tmp_path / "out", workers=1)
    reasons = {name: reason for reason, names in report.named.items() for name in names}
    assert {name.split("/")[1]: reason for name, reason in reasons.items()} == {
        "syntax.py": "not valid Python",
        "binary.py": "not UTF-8",
        "nul.py": "not valid Python",
        "latin.py": "not UTF-8",
        "plain.py": "without a use of a variable that another could replace",
        "large.py": f"larger than {MAX_BYTES:,} bytes",
        "deep.py": "nested too deeply",
    }
    assert sum(report.info.skipped.values()) == len(bad)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "PATH must hold Python files"),
        ({"a.bin": b"\0\1", "b.so": b"\x7fELF"}, "PATH must hold Python files"),
        ({"a.py": b"print(1)"}, "no program graph could be made from 1 files: 1 without a use"),
    ],
)
def test_a_folder_without_programs_is_refused(content, message, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    for name, data in content.items():
        (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        import_python([folder], folder=tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


def test_a_single_project_has_no_unseen_part(projects, tmp_path):
    info = import_python(projects[:1], folder=tmp_path / "out", workers=1).info
    assert info.parts["test-unseen"].graphs == 0
    assert info.parts["train"].graphs > 0


def test_by_default_the_standard_library_is_a_project_and_so_is_each_package(tmp_path, monkeypatch):
    names = ["lib/ast.py", "lib/json/decoder.py", "lib/site-packages/a.py", "lib/.hidden/b.py"]
    names += ["pure/single.py", "pure/native.so", "pure/one.dist-info/RECORD", "pure/one/sub/c.py"]
    names += ["plat/two/d.py", "plat/two/__pycache__/e.py"]
    names += [
        "pure/one/_vendor/two/d.py",
        "plat/two/sub/externals/f.py",
        "plat/two/third_party/g.py",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    places = {"stdlib": "lib", "purelib": "pure", "platlib": "plat"}
    paths = {key: str(tmp_path / name) for key, name in places.items()}
    monkeypatch.setattr("sysconfig.get_paths", lambda: paths)
    assert [(each.project, each.name) for each in find_sources(python_projects([]))] == [
        ("one", "one/sub/c.py"),
        ("python", "lib/ast.py"),
        ("python", "lib/json/decoder.py"),
        ("single", "single.py"),
        ("two", "two/d.py"),
    ]
    paths["platlib"] = paths["purelib"]  # as on most machines
    assert list(python_projects([])) == ["python", "one", "one.dist-info", "single"]


def test_the_split_does_not_depend_on_the_other_files(projects):
    sources, _ = without_duplicates(find_sources({p.name: p for p in projects}))
    parts = parts_of(sources, 0, ["project4"])
    fewer = [each for each in sources if each.name.endswith(("1.py", "4.py"))]
    assert all(parts[each] == part for each, part in parts_of(fewer, 0, ["project4"]).items())


def test_a_description_has_the_statistics_of_the_paper(projects, tmp_path):
    import_python(projects, folder=tmp_path / "out", workers=1)
    facts = {each.part: each for each in describe_programs(tmp_path / "out").parts}
    assert tuple(facts) == PARTS
    records = records_of(tmp_path / "out", "valid")
    graphs = [record["ContextGraph"] for record in records]
    assert facts["valid"].graphs == len(graphs)
    nodes = sum(len(graph["NodeLabels"]) for graph in graphs)
    edges = sum(len(pairs) for graph in graphs for pairs in graph["Edges"].values())
    assert facts["valid"].mean_nodes == nodes / len(graphs)
    assert facts["valid"].mean_edges == edges / len(graphs)
    assert facts["valid"].mean_diameter == sum(map(diameter, records)) / len(records)


def test_the_diameter_of_a_path_is_its_length():
    labels = {str(n): "a" for n in range(6)}
    edges = {"Child": [[0, 1], [2, 1]], "NextToken": [[2, 3], [4, 3], [4, 5]]}
    graph = {"NodeLabels": labels, "Edges": edges}
    assert diameter({"ContextGraph": graph, "SlotDummyNode": 2}) == 5


def test_damaged_programs_are_named(projects, tmp_path):
    folder = tmp_path / "out"
    import_python(projects, folder=folder, workers=1)
    chunk = folder / "valid" / "chunk-00000.jsonl.gz"
    chunk.write_bytes(chunk.read_bytes()[:-20])
    with pytest.raises(FolderError, match=r"chunk-00000\.jsonl\.gz is missing, was cut short"):
        describe_programs(folder)
    with pytest.raises(FolderError, match="was cut short or altered"):
        list(read_chunk(chunk))
    (folder / "programs.json").write_text("{")
    with pytest.raises(FolderError, match=r"programs\.json was cut short"):
        read_info(folder)


def data(*words, code=0):
    done = CliRunner().invoke(app, ["data", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def test_the_command_imports_lists_describes_and_removes(projects):
    done = data("import-python", *projects, "--name", "mine", "--graphs", 20, "--workers", 1)
    assert done.stdout.startswith("mine: train 20, valid ")
    rows = [json.loads(line) for line in data("list", "--json").stdout.splitlines()]
    (mine,) = [row for row in rows if row["name"] == "mine"]
    assert "program graphs (python)" in mine["what"]
    assert mine["nodes"] > mine["edges"] / 4 > 0
    assert "mean diameter" in data("describe", "mine").stdout
    facts = json.loads(data("describe", "mine", "--json").stdout)
    assert facts["parts"][0]["graphs"] == 20
    again = data("import-python", *projects, "--name", "mine", code=2)
    assert "exists already" in again.stderr
    data("import-python", *projects, "--name", "mine", "--workers", 1, "--replace")
    assert data("remove", "mine").stdout == "removed mine\n"
    assert "there is no stored graph" in data("remove", "mine", code=2).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import-python", "nowhere", "--name", "a"], "nowhere does not exist"),
        (["import-python", "--name", "a/b"], "a graph's name must consist of letters"),
        (["import-python", "--name", "a", "--slots-per-file", "0"], "slots_per_file must be at"),
        (["import-python", "--name", "a", "--graphs", "0"], "max_graphs must be at least 1"),
        (["import-great", "nowhere.gz", "--name", "a"], "nowhere.gz: No such file"),
        (["import-great", "/", "--name", "a"], "dynagat: /: Is a directory"),
    ],
)
def test_bad_arguments_are_one_sentence(words, message):
    (line,) = data(*words, code=2).stderr.splitlines()
    assert message in line


def great(**changes):
    """def f(a, b): c = a; return b(c), with a instead of c as the misuse."""
    tokens = ["def f(", "a", ",", "b", ")", ":", "c", "=", "a", "return", "b", "(", "a", ")"]
    edges = [[n, n + 1, 9, "enum_NEXT_SYNTAX"] for n in range(len(tokens) - 1)]
    edges += [[8, 1, 3, "enum_LAST_WRITE"], [12, 1, 3, "enum_LAST_WRITE"]]
    edges += [[10, 3, 3, "enum_LAST_WRITE"], [6, 8, 4, "enum_COMPUTED_FROM"]]
    edges += [[12, 8, 2, "enum_LAST_READ"], [12, 8, 10, "enum_LAST_LEXICAL_USE"]]
    edges += [[0, 9, 1, "enum_CFG_NEXT"]]
    record = {"has_bug": True, "source_tokens": tokens, "edges": edges, "error_location": 12}
    record |= {"repair_targets": [6], "repair_candidates": [1, 8, 12, 3, 10, 6]}
    path = {"datasetProvenance": {"filepath": "me/mine/a.py"}}
    return {**record, "provenances": [path], **changes}


def test_a_function_of_great_becomes_a_record():
    record = great_record(great(), "a.py", "0")
    assert [(c["SymbolName"], c["IsCorrect"]) for c in record["SymbolCandidates"]] == [
        ("b", False), ("a", False), ("c", True)
    ]  # fmt: skip
    graph = record["ContextGraph"]
    node = {label: int(n) for n, label in reversed(graph["NodeLabels"].items()) if int(n) > 3}
    late_a, late_b = node["="] + 1, node["return"] + 1
    assert graph["NodeLabels"]["0"] == "<SLOT>"
    assert [1, late_b] in graph["Edges"]["LastUse"]
    assert [2, late_a] in graph["Edges"]["LastUse"]
    assert [3, node["c"]] in graph["Edges"]["LastWrite"]
    assert {kind for kind, pairs in graph["Edges"].items() for p in pairs if 0 in p} == {
        "NextToken"
    }


def great_file(tmp_path, lines, name="great.jsonl.gz"):
    path = tmp_path / name
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def test_functions_without_a_slot_are_counted(tmp_path):
    records = [
        great(), great(repair_targets=[]), great(edges=[[0, 99, 9, "enum_NEXT_SYNTAX"]]),
        great(edges=[[0.5, 1, 9, "enum_NEXT_SYNTAX"]]), great(edges=[[0, 1]]), great(edges=[3]),
        great(error_location=-1), great(error_location=99), great(repair_candidates=[1, 3, -9]),
        great(repair_targets=[-8]), great(has_bug=False, repair_candidates=[]),
        great(source_tokens=None), great(source_tokens=["a", 1]), great(provenances=[{}]),
        great(provenances=[{"datasetProvenance": {"filepath": 3}}]),
    ]  # fmt: skip
    path = great_file(tmp_path, [json.dumps(record) for record in records])
    info = import_great(path, "great").info
    assert sum(part.graphs for part in info.parts.values()) == 3
    assert info.skipped == {
        "without a correct candidate": 1,
        "with an edge to a token that is not there": 2,
        "with an edge that is no list of four entries": 2,
        "with an error_location that is not there": 2,
        "with a repair candidate that is not there": 1,
        "with a repair target that is not there": 1,
        "without a use of a variable": 1,
        "with a token that is no text": 1,
        "not a GREAT record": 1,
    }


def test_a_damaged_file_of_great_is_named(tmp_path):
    path = great_file(tmp_path, [json.dumps(great())] * 500)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"great.jsonl.gz was cut short or altered after line \d+"):
        import_great(path, "great")
    path = great_file(tmp_path, [json.dumps(great()), "[1, 2"])
    with pytest.raises(ValueError, match=r"line 2 of .*great.jsonl.gz can't be read"):
        import_great(path, "great")
    path = great_file(tmp_path, [json.dumps(great()), "[" * 100_000])
    with pytest.raises(ValueError, match=r"line 2 of .*great.jsonl.gz can't be read"):
        import_great(path, "great")


@pytest.mark.data
def test_all_functions_of_the_sample_of_great_become_batches(tmp_path):
    """`read_record` checks the nodes, edges and candidates of each."""
    sample = f"{os.environ['DYNAGAT_DATA']}/varmisuse/great_dev_sample.jsonl.gz"
    info = import_great(sample, "great").info
    stored = sum(part.graphs for part in info.parts.values())
    assert stored + sum(info.skipped.values()) == 2_246
    assert stored > 2_000
    unseen, train = (set(info.parts[part].projects) for part in ("test-unseen", "train"))
    assert unseen
    assert not unseen & train
    programs = open_programs("great")
    for part in PARTS:
        texts = [r for path in programs.chunks(part) for r in read_chunk(path)]
        graphs = [read_record(record, programs.language) for record in texts]
        assert all(2 <= len(graph.candidates) <= MAX_CANDIDATES for graph in graphs)
        edges = [len(p) for r in texts for p in r["ContextGraph"]["Edges"].values()]
        assert (len(graphs), sum(edges)) == (info.parts[part].graphs, info.parts[part].edges)
        batches = [join(some) for some in fill(graphs, 20_000)]
        nodes = sum(graph.num_nodes for graph in graphs)
        assert sum(batch.graph.num_queries for batch in batches) == nodes
        both = 2 * sum(len(graph.key) for graph in graphs) + nodes  # directions, and self-loops
        assert sum(len(batch.graph.key_index) for batch in batches) == both
