"""Last use and last write along all paths of a program: cases checked by hand.

An edge is written as line:column of its two ends, as program_edges.py says.
"""

import pytest

from dynagat.data.programs.python_graph import Program
from dynagat.data.programs.syntax import ProgramError
from tests.program_edges import edges

# source, LastUse, LastWrite
CASES = {
    # both branches reach what follows
    "branch": (
        """\
x = 1
if c():
    x = 2
else:
    print(x)
print(x)
""",
        "3:4>1:0 5:10>1:0 6:6>3:4 6:6>5:10",
        "3:4>1:0 5:10>1:0 6:6>1:0 6:6>3:4",
    ),
    # a loop: what follows in the text may come before
    "while": (
        """\
x = 1
while x > 0:
    x = x - 1
print(x)
""",
        "2:6>1:0 2:6>3:4 3:4>3:8 3:8>2:6 4:6>2:6",
        "2:6>1:0 2:6>3:4 3:4>1:0 3:4>3:4 3:8>1:0 3:8>3:4 4:6>1:0 4:6>3:4",
    ),
    # break skips the else of a loop
    "for-else": (
        """\
def f(items):
    for i in items:
        if i:
            break
        g(i)
    else:
        i = 0
    return i
""",
        "2:8>5:10 2:13>1:6 3:11>2:8 5:10>3:11 7:8>5:10 8:11>3:11 8:11>7:8",
        "2:8>2:8 2:13>1:6 3:11>2:8 5:10>2:8 7:8>2:8 8:11>2:8 8:11>7:8",
    ),
    # continue goes to the condition
    "continue": (
        """\
def f(n):
    while n:
        if g():
            n = 1
            continue
        n = 2
    return n
""",
        "2:10>1:6 2:10>4:12 2:10>6:8 4:12>2:10 6:8>2:10 7:11>2:10",
        "2:10>1:6 2:10>4:12 2:10>6:8 4:12>1:6 4:12>4:12 4:12>6:8 6:8>1:6 6:8>4:12 6:8>6:8"
        " 7:11>1:6 7:11>4:12 7:11>6:8",
    ),
    # an endless loop ends by break only
    "while-true": (
        """\
def f(n):
    while True:
        if n:
            break
        n = 2
    return n
""",
        "3:11>1:6 3:11>5:8 5:8>3:11 6:11>3:11",
        "3:11>1:6 3:11>5:8 5:8>1:6 5:8>5:8 6:11>1:6 6:11>5:8",
    ),
    # an exception may come before or after each statement
    "try": (
        """\
x = 0
try:
    x = f()
    x = g()
except E as e:
    print(x, e)
else:
    print(x)
print(x)
""",
        "3:4>1:0 4:4>3:4 6:10>1:0 6:10>3:4 6:10>4:4 6:13>5:12 8:10>4:4 9:6>6:10 9:6>8:10",
        "3:4>1:0 4:4>3:4 6:10>1:0 6:10>3:4 6:10>4:4 6:13>5:12 8:10>4:4 9:6>1:0 9:6>3:4 9:6>4:4",
    ),
    # finally sees every way out; nothing runs after return
    "finally": (
        """\
def f(x):
    try:
        x = 1
        return x
    finally:
        print(x)
    print(x)
""",
        "3:8>1:6 4:15>3:8 6:14>1:6 6:14>3:8 6:14>4:15",
        "3:8>1:6 4:15>3:8 6:14>1:6 6:14>3:8",
    ),
    # nothing runs after raise
    "raise": (
        """\
def f(x):
    if x:
        x = 1
        raise E
    return x
""",
        "2:7>1:6 3:8>2:7 5:11>2:7",
        "2:7>1:6 3:8>1:6 5:11>1:6",
    ),
    # each item of with sees those before
    "with": (
        """\
def f(p):
    with open(p) as h, g(h) as k:
        h = k
    return h
""",
        "2:14>1:6 2:25>2:20 3:8>2:25 3:12>2:31 4:11>3:8",
        "2:14>1:6 2:25>2:20 3:8>2:20 3:12>2:31 4:11>3:8",
    ),
    # a comprehension has its own variable, but its first iterable has not
    "comp": (
        """\
x = 1
y = [x for x in a(x) if x]
print(x)
""",
        "2:5>2:24 2:11>2:5 2:11>2:24 2:18>1:0 2:24>2:11 3:6>2:18",
        "2:5>2:11 2:11>2:11 2:18>1:0 2:24>2:11 3:6>1:0",
    ),
    # nested loops of a comprehension
    "comp2": (
        """\
def f(rows):
    return [c for r in rows for c in r if c]
""",
        "2:12>2:42 2:18>2:37 2:23>1:6 2:32>2:12 2:32>2:42 2:37>2:18 2:42>2:32",
        "2:12>2:32 2:18>2:18 2:23>1:6 2:32>2:32 2:37>2:18 2:42>2:32",
    ),
    # a nested function runs after the code around it
    "nested": (
        """\
def f(x):
    def g(y):
        return x + y
    x = 2
    return g
""",
        "3:15>4:4 3:19>2:10 4:4>1:6",
        "3:15>4:4 3:19>2:10 4:4>1:6",
    ),
    # a lambda runs where it is, and has no effect outside
    "lambda": (
        """\
def f(x):
    h = lambda y: x + y
    x = 2
    return h
""",
        "2:18>1:6 2:22>2:15 3:4>1:6 4:11>2:4",
        "2:18>1:6 2:22>2:15 3:4>1:6 4:11>2:4",
    ),
    # global names the variable of the module
    "global": (
        """\
n = 0
def f():
    global n
    n = n + 1
    return n
""",
        "4:4>4:8 4:8>1:0 5:11>4:4",
        "4:4>1:0 4:8>1:0 5:11>4:4",
    ),
    # nonlocal names that of the function around
    "nonlocal": (
        """\
def f():
    n = 0
    def g():
        nonlocal n
        n = n + 1
    g()
    return n
""",
        "5:8>5:12 5:12>7:11 7:11>2:4",
        "5:8>2:4 5:12>2:4 7:11>2:4",
    ),
    # also if it is bound after the function that uses it, and further out as well
    "nonlocal-later": (
        """\
def f(x):
    def g(n):
        def h():
            nonlocal x, y, n
            x = y + n
        [y := 1 for _ in n]
        x = n
        h()
        return x
    return g, x
""",
        "5:12>9:15 5:16>6:9 5:20>7:12 6:9>6:9 6:20>6:20 6:25>2:10 7:12>6:25 9:15>7:8 10:14>1:6",
        "5:12>7:8 5:16>6:9 5:20>2:10 6:9>6:9 6:20>6:20 6:25>2:10 7:12>2:10 9:15>7:8 10:14>1:6",
    ),
    # captures of patterns; a failed guard has bound them
    "match": (
        """\
def f(v):
    match v:
        case [a, *b] if a:
            return a, b
        case {'k': a, **rest}:
            return a, rest
        case a:
            pass
    return a
""",
        "2:10>1:6 3:24>3:14 4:19>3:24 4:22>3:18 5:19>3:24 6:19>5:19 6:22>5:24 7:13>3:24 9:11>7:13",
        "2:10>1:6 3:24>3:14 4:19>3:14 4:22>3:18 5:19>3:14 6:19>5:19 6:22>5:24 7:13>3:14 9:11>7:13",
    ),
    # a walrus in a comprehension writes outside of it
    "walrus": (
        """\
def f(v):
    if (n := v) and n:
        return n
    return [m := n for n in v], n, m
""",
        "2:13>1:6 2:20>2:8 3:15>2:8 3:15>2:20 4:12>4:12 4:17>4:23 4:23>4:17 4:28>2:13"
        " 4:32>2:8 4:32>2:20 4:35>4:12",
        "2:13>1:6 2:20>2:8 3:15>2:8 4:12>4:12 4:17>4:23 4:23>4:23 4:28>1:6 4:32>2:8 4:35>4:12",
    ),
    # an augmented assignment uses and writes with one token
    "aug": (
        """\
def f(x, y):
    x += y
    while y:
        x += x
    return x
""",
        "2:4>1:6 2:9>1:9 3:10>2:9 3:10>3:10 4:8>2:4 4:8>4:8 4:13>4:8 5:11>2:4 5:11>4:8",
        "2:4>1:6 2:9>1:9 3:10>1:9 4:8>2:4 4:8>4:8 4:13>2:4 4:13>4:8 5:11>2:4 5:11>4:8",
    ),
    # del ends writes
    "del": (
        """\
def f(x):
    del x
    if g():
        x = 1
    return x
""",
        "2:8>1:6 4:8>2:8 5:11>2:8 5:11>4:8",
        "2:8>1:6 5:11>4:8",
    ),
    # variables of a class are seen by its body only
    "class": (
        """\
x = 1
class A:
    y = x
    z = [y for _ in y]
    def f(self):
        return y
""",
        "3:8>1:0 4:15>4:15 4:20>3:4",
        "3:8>1:0 4:15>4:15 4:20>3:4",
    ),
    # short circuits
    "boolop": (
        """\
def f(a, b):
    c = a and (b := 1) or b
    return b
""",
        "2:8>1:6 2:15>1:9 2:26>1:9 2:26>2:15 3:11>1:9 3:11>2:15 3:11>2:26",
        "2:8>1:6 2:15>1:9 2:26>1:9 2:26>2:15 3:11>1:9 3:11>2:15",
    ),
    # a conditional expression
    "ifexp": (
        """\
def f(a, b):
    return (b := a) if a else b, b
""",
        "2:12>1:9 2:17>2:23 2:23>1:6 2:30>1:9 2:33>2:12 2:33>2:30",
        "2:12>1:9 2:17>1:6 2:23>1:6 2:30>1:9 2:33>1:9 2:33>2:12",
    ),
}


@pytest.mark.parametrize(("source", "last_use", "last_write"), CASES.values(), ids=list(CASES))
def test_the_last_use_and_the_last_write(source, last_use, last_write):
    assert edges(source, "LastUse") == " ".join(last_use.split())
    assert edges(source, "LastWrite") == " ".join(last_write.split())


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("LastLexicalUse", "x = 1\nwhile x:\n    x = x - 1\n", "2:6>1:0 3:4>2:6 3:8>3:4"),
        (
            "ComputedFrom",
            "a = b = 1\na, *c = a + b\nd = [a]\n",
            "2:0>2:8 2:0>2:12 2:4>2:8 2:4>2:12 3:0>3:5",
        ),
        ("ComputedFrom", "def f(a):\n    for i in a:\n        i += a\n", "2:8>2:13 3:8>3:13"),
        ("GuardedBy", "def f(a):\n    if a:\n        a\n    else:\n        a\n", "3:8>2:7"),
        (
            "GuardedByNegation",
            "def f(a):\n    if a > 1:\n        a\n    else:\n        a\n",
            "5:8>Compare",
        ),
        ("ReturnsTo", "def f(a):\n    yield a + 1\n    return a\n", "BinOp>1:4 3:11>1:4"),
        ("ReturnsTo", "k = lambda a: a\n", "1:14>1:4"),
        ("FormalArgName", "def f(a, b):\n    f(b, b=a)\n", "2:6>1:6 2:11>1:9"),
        ("FormalArgName", "def f(a):\n    print(a, end=a, **a)\n", "2:17>2:13"),
        ("FormalArgName", "def f(a, b, c):\n    f(a, *b, c)\n", "2:6>1:6"),
        ("FormalArgName", "class A:\n    def m(self, a):\n        self.m(a)\n", "3:15>2:16"),
        (
            "FormalArgName",
            "class A:\n @staticmethod\n def s(a): pass\n def m(self, a): self.s(a)\n",
            "4:24>3:7",
        ),
        ("FormalArgName", "class A:\n    def __init__(self, a): A(a + 1)\n", "BinOp>2:23"),
        ("FormalArgName", "def f(a): pass\nf = None\ndef g(a):\n    f(a)\n", ""),
    ],
)
def test_the_other_edges(kind, source, expected):
    assert edges(source, kind) == expected


def test_only_the_innermost_conditions_of_a_long_chain_guard_a_variable():
    tests = "".join(f"    elif a == {n}:\n        a\n" for n in range(100))
    source = f"def f(a):\n    if a:\n        a\n{tests}"
    last = [e for e in edges(source, "GuardedByNegation").split() if e.startswith("203:8>")]
    assert len(last) == 7  # and one condition that holds


def test_a_token_is_a_child_of_the_innermost_syntax_node():
    inner = (
        "FunctionDef>1:0 FunctionDef>1:4 FunctionDef>1:5 arg>1:6 FunctionDef>1:7 FunctionDef>1:8"
    )
    outer = "Module>FunctionDef FunctionDef>arguments FunctionDef>Return arguments>arg"
    inside = "Return>BinOp Return>1:10 BinOp>Name BinOp>Constant BinOp>1:19 Name>1:17 Constant>1:21"
    expected = set(f"{inner} {outer} {inside}".split())
    assert set(edges("def f(a): return a + 1\n", "Child").split()) == expected
    assert (
        edges("a = (1,\n  2) # b\n", "NextToken")
        == "1:0>1:2 1:2>1:4 1:4>1:5 1:5>1:6 1:6>2:2 2:2>2:3"
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_positions_are_in_characters_whatever_the_alphabet(newline):
    source = newline.join(["def f(Größe):", "    'ä'; return Größe", ""])
    assert edges(source, "LastUse") == "2:16>1:6"


def test_names_in_strings_annotations_and_imports_are_no_variables():
    source = "import os\ndef f(a: int): pass\nos.x = f('a')\nprint(os)\n"
    assert edges(source, "LastUse") == edges(source, "LastLexicalUse") == ""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:", "not valid Python"),
        ("print 'a'", "not valid Python"),
        ("a = '\0'\0", "not valid Python"),
        ("if a:\nb", "not valid Python"),
        ("x = " + "(" * 5000 + ")" * 5000, "not valid Python|nested too deeply"),
        ("x = " + "-" * 50_000 + "1", "nested too deeply"),
        ("a = 0\n" + "if f() and a: pass\n" * 3000, "too many branches"),
    ],
)
def test_a_text_that_is_no_program_is_refused(source, message):
    with pytest.raises(ProgramError, match=message):
        Program.of(source)
