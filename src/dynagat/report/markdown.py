"""write_markdown: a benchmark's report as a Markdown page, with its figures as files next to it."""

from __future__ import annotations

from pathlib import Path

from dynagat.files import write_text
from dynagat.report.findings import Findings
from dynagat.report.parts import Code, Facts, Figure, Part, Prose, Table


def write_markdown(findings: Findings, folder: Path) -> None:
    """folder/<name>.md and one SVG per figure; nothing if there are no records."""
    if not findings.records:
        return
    benchmark = findings.benchmark
    texts = [f"# {benchmark.title}", f"{benchmark.source}. Written by `dynagat report`."]
    for section in findings.sections:
        texts += [f"## {section.title}"] if section.title else []
        for part in section.parts:
            if isinstance(part, Figure):
                # The ink is dark: it needs a white background wherever the file is shown.
                svg = part.svg.replace("<svg ", '<svg style="background: white" ', 1)
                write_text(folder / f"{part.name}.svg", svg)
            texts.append(markdown(part))
    text = "\n\n".join(filter(None, texts))
    write_text(folder / f"{benchmark.name}.md", text + "\n")


def markdown(part: Part) -> str:
    """The Markdown of a part; empty for what only pages show."""
    if isinstance(part, Prose):
        if part.is_list:
            title = f"**{part.title}**\n\n" if part.title else ""
            return title + "\n".join(f"- {sentence}" for sentence in part.sentences)
        return "\n\n".join(part.sentences)
    if isinstance(part, Facts):
        return "\n".join(f"- {name}: {text}" for name, text in part.facts.items())
    if isinstance(part, Figure):
        return f"![{part.caption}]({part.name}.svg)\n\n{part.caption}"
    if isinstance(part, Code):
        body = "```sh\n" + "\n".join(part.lines) + "\n```"
        return _folded(part.title, body) if part.folded else f"{part.title}:\n\n{body}"
    if isinstance(part, Table):
        body = table(part) + (f"\n{part.legend}" if part.legend else "")
        return _folded(part.title, body) if part.folded else f"**{part.title}**\n\n{body.rstrip()}"
    return ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body.rstrip()}\n\n</details>"


def table(part: Table) -> str:
    rule = ["---" if index < part.text_columns else "---:" for index in range(len(part.columns))]
    rows = [part.columns, rule, *(line.cells for line in part.lines)]
    return "".join(f"{_line(row)}\n" for row in rows)


def _line(texts: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |"
