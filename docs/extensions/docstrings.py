"""Extension of griffe, the parser of mkdocstrings: docstrings of this project as Markdown.

A comment after a field of a class is shown in the class's list of attributes:

    num_edges: int  # number of edges before self-loops were merged

and a `*` that stands for batch axes, as in [*, N, C], is not taken for emphasis.
"""

import io
import re
import tokenize
from typing import Any

from griffe import Class, Docstring, Extension, Object


class Docstrings(Extension):
    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        fields = [field for field in cls.attributes.values() if field.annotation]
        comments = {field.name: _comment(field.source) for field in fields if not field.docstring}
        lines = [f"    {name}: {comment}" for name, comment in comments.items() if comment]
        if lines and cls.docstring and not cls.name.startswith("_"):
            text = "\n".join([cls.docstring.value, "", "Attributes:", *lines])
            cls.docstring = Docstring(text, parser=cls.docstring.parser, parent=cls)

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(r"(\[|, )\*(?=[,\]])", r"\1\\*", obj.docstring.value)


def _comment(source: str) -> str:
    """The comment at the end of a statement, or an empty string."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    text = comments[-1].lstrip("# ") if comments else ""
    return "" if text.startswith(("type:", "noqa", "pyright:", "fmt:")) else text
