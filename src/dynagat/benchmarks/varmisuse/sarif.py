"""sarif: a report of `check` in the format that editors and code hosts show (SARIF 2.1.0)."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dynagat.benchmarks.varmisuse.findings import CheckReport, Finding

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
RULE = "misused-variable"
ROOT = "SRCROOT"  # what relative paths start from


def sarif(report: CheckReport, root: Path | None = None) -> dict[str, Any]:
    """The log file as plain dicts and lists.

    Args:
        report: what `check` returns.
        root: the folder that relative paths of the report start from. Default: the current one.
    """
    folder = (root or Path.cwd()).resolve()
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": _driver(report)},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {ROOT: {"uri": f"{folder.as_uri().rstrip('/')}/"}},
                "invocations": [
                    {"executionSuccessful": True, "toolExecutionNotifications": _skipped(report)}
                ],
                "results": [_result(finding) for finding in report.findings],
            }
        ],
    }


def _driver(report: CheckReport) -> dict[str, Any]:
    rule = (
        "Another variable in scope is more probable here than the one that is used, according to "
        f"a graph network, with a probability of at least {report.threshold:g}."
    )
    return {
        "name": "dynagat",
        "semanticVersion": version("dynagat"),
        "rules": [
            {
                "id": RULE,
                "name": "MisusedVariable",
                "shortDescription": {"text": "This variable is perhaps the wrong one."},
                "fullDescription": {"text": rule},
                "defaultConfiguration": {"level": "warning"},
            }
        ],
        "properties": {
            "run": report.run,
            "model": report.model,
            "threshold": report.threshold,
            "files": report.files,
            "uses": report.uses,
            "leftOut": dict(report.left_out),
        },
    }


def _result(finding: Finding) -> dict[str, Any]:
    place = _place(finding.path)
    region = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.line,
        "endColumn": finding.column + len(finding.present),
    }
    text = (
        f"'{finding.present}' is perhaps the wrong variable: '{finding.suggested}' has the "
        f"probability {finding.suggested_probability:.4f}, '{finding.present}' has "
        f"{finding.present_probability:.4f}."
    )
    replacement = {"deletedRegion": region, "insertedContent": {"text": finding.suggested}}
    return {
        "ruleId": RULE,
        "ruleIndex": 0,
        "level": "warning",
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": place, "region": region}}],
        "rank": round(100 * finding.suggested_probability, 4),
        "fixes": [
            {
                "description": {"text": f"Use '{finding.suggested}'."},
                "artifactChanges": [{"artifactLocation": place, "replacements": [replacement]}],
            }
        ],
        "properties": {
            "present": finding.present,
            "suggested": finding.suggested,
            "presentProbability": finding.present_probability,
            "suggestedProbability": finding.suggested_probability,
        },
    }


def _skipped(report: CheckReport) -> list[dict[str, Any]]:
    return [
        {
            "level": "note",
            "message": {"text": f"Skipped: {reason}."},
            "locations": [{"physicalLocation": {"artifactLocation": _place(name)}}],
        }
        for reason, names in report.skipped.items()
        for name in names
    ]


def _place(path: str) -> dict[str, str]:
    """A URI, relative to ROOT if the path is relative."""
    if os.path.isabs(path):
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(Path(path).as_posix()), "uriBaseId": ROOT}
