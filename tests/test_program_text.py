"""The text of programs on the inspect page: lines, colours, and no script of a program runs."""

import json

import pytest
import torch

from dynagat.analysis.attentive import how_attentive
from dynagat.benchmarks.varmisuse.network import ProgramStack
from dynagat.benchmarks.varmisuse.stream import join
from dynagat.data.programs.python_graph import Program
from dynagat.data.programs.records import RELATIONS, read_record
from dynagat.data.programs.snippets import Snippet
from dynagat.report.microscope import write_microscope
from dynagat.report.microscope.programs import attention_in_text

SOURCE = '''
class Box:
    @cached
    def area(self, width, height=2):
        """Of
        all."""
        try:
            if width > 0:
                x = width if height else -1
            elif width[0]:
                pass
            else:
                for each in width: print(f(each, "</script><img src=x onerror=alert(1)>"))
        except (KeyError, IndexError) as error:
            raise
        finally:
            print(height)
        return width * height
'''
LINES = """
class Box:
  @ cached
  def area(self, width, height = 2):
    <docstring>
    try:
      if width > 0:
        x = width if height else -1
      elif width[0]:
        pass
      else:
        for each in width:
          print(f(each, <hostile>))
    except (KeyError, IndexError) as error:
      raise
    finally:
      print(height)
    return <SLOT> * height
"""


def record_of(source, line=None, distance=99):
    program = Program.of(source)
    uses = [use for use in program.uses if line is None or use.token.line == line]
    record = program.record(uses[0], "box/<b>.py", distance)
    assert record is not None
    return record


@pytest.fixture(scope="module")
def record():
    return record_of(SOURCE, line=18)


def grouped(snippet):
    """The words of each line."""
    groups = []
    for word in snippet.words:
        if word.indent is not None:
            groups.append([])
        groups[-1].append(word)
    return groups


def test_lines_begin_where_statements_begin(record):
    def text_of(word):
        marks = {'"""': "<docstring>", '"</': "<hostile>"}
        return next(
            (mark for start, mark in marks.items() if word.text.startswith(start)), word.text
        )

    groups = grouped(Snippet.of(record))
    found = [(2 * group[0].indent, "".join(map(text_of, group))) for group in groups]
    lines = LINES.strip("\n").split("\n")
    assert found == [(len(line) - len(line.lstrip()), "".join(line.split())) for line in lines]


def test_the_slot_has_its_place_and_gaps_are_marked(record):
    snippet = Snippet.of(record)
    (place,) = [n for n, word in enumerate(snippet.words) if word.node == snippet.slot]
    assert [word.text for word in snippet.words[place - 1 : place + 2]] == ["return", "<SLOT>", "*"]
    assert snippet.candidates[0] == ("width", snippet.candidates[0][1])
    assert sum(word.is_after_gap for word in snippet.words) == 1
    near = Snippet.of(record_of(SOURCE, line=18, distance=2))
    assert sum(word.is_after_gap for word in near.words) > 1
    nodes = [word.node for word in near.words if word.node != near.slot]
    assert nodes == sorted(nodes)  # the order of the text


@pytest.fixture(scope="module")
def subject(record):
    """The attention of a network on two programs, and their snippets by the first node."""
    torch.manual_seed(0)
    network = ProgramStack(dim=8, heads=2, layers=2).build(None, "gatv2")
    records = [record_of("def f(a, b):\n    return a\n"), record]
    graphs = [read_record(each, "python") for each in records]
    result = how_attentive(network, join(graphs).inputs, relations=RELATIONS)
    return result, {0: Snippet.of(records[0]), graphs[0].num_nodes: Snippet.of(record)}


def test_each_query_distributes_its_attention_over_its_keys(subject):
    result, programs = subject
    data = attention_in_text(programs, result.layers, None)
    assert json.loads(json.dumps(data))["programs"][0]["words"] == data["programs"][0]["words"]
    small, large = data["programs"]
    assert [query["title"] for query in small["queries"]] == [
        "the slot", "candidate a (right)", "candidate b"
    ]  # fmt: skip
    for program in (small, large):
        for layer in program["attention"]:
            for keys in layer:
                for head in range(2):
                    total = sum(key["weights"][head] for key in keys)
                    assert total == pytest.approx(1, abs=2e-3)
                assert sum(key["uniform"] for key in keys) == pytest.approx(1, abs=2e-3)
    texts = {word.node: word.text for word in programs[0].words}
    names = small["labels"] | texts
    slot = {
        names[key["node"]]: [RELATIONS[kind] for kind, _ in key["edges"]]
        for key in small["attention"][0][0]
    }
    assert slot == {
        "<SLOT>": ["self-loop"],
        "return": ["NextToken"],
        "Name (syntax)": ["Child"],
        "f": ["ReturnsTo, reversed"],
        next(name for name in slot if "part of names" in name): ["UsesSubtoken, reversed"],
    }


def page_of(subject, path):
    result, programs = subject
    return write_microscope(result, path, programs=programs)


def test_the_page_shows_the_slot_in_its_program_and_runs_no_script_of_it(
    subject, tmp_path, look_at
):
    view = look_at(page_of(subject, tmp_path / "page.html"))
    listing = view.locator("#listing")
    assert listing.locator(".slot").inner_text() == "<SLOT>"
    assert "def f(a, b):" in listing.inner_text()
    view.select_option("#pick-program", "1")
    assert "</script><img src=x onerror=alert(1)>" in listing.inner_text()
    assert view.locator("#listing img").count() == 0
    assert view.locator("#pick-program option").nth(1).inner_text() == "2: box/<b>.py"
    assert "for each in width:" in listing.inner_text()
    slot = listing.locator(".slot")
    assert slot.evaluate("each => each.getBoundingClientRect().top") > 0
    words = listing.locator(".key").evaluate_all("all => all.map((each) => each.textContent)")
    assert words == ["return", "<SLOT>", "*"]
    assert "NextToken" in listing.locator(".key").first.get_attribute("title")
    view.select_option("#pick-query", "1")
    words = listing.locator(".key").evaluate_all("all => all.map((each) => each.textContent)")
    assert set(words) == {"width"}


def test_head_and_layer_change_the_colours(subject, tmp_path, look_at):
    view = look_at(page_of(subject, tmp_path / "page.html"), width=390)
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    result, programs = subject
    data = attention_in_text(programs, result.layers, None)["programs"][0]
    for layer in (0, 1):
        for head in (0, 1):
            view.select_option("#pick-program-layer", str(layer))
            view.select_option("#pick-program-head", str(head))
            shades = view.locator("#listing .key").evaluate_all(
                "all => all.map((each) => [...each.classList].at(-1))"
            )
            keys = {key["node"]: f"s{key['shades'][head]}" for key in data["attention"][layer][0]}
            order = [word.node for word in programs[0].words if word.node in keys]
            assert shades == [keys[node] for node in order]
            assert f"head {head} of layers.{layer}" in view.locator("#program-words").inner_text()
