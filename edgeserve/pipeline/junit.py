"""``--junit FILE``: the gate's checks as JUnit XML, so that CI shows them as tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from edgeserve.errors import UsageError
from edgeserve.files import write_atomic
from edgeserve.pipeline.outcome import Change
from edgeserve.types.manifest import Manifest
from edgeserve.types.reports import Report

__all__ = ["check_writable", "write_junit"]


def check_writable(path: Path) -> None:
    """See, before any work, that the file could be written.

    Raises:
        UsageError: EDGE-USAGE-005, it is a folder, or lies where nothing may be written.
    """
    folder = next(p for p in path.absolute().parents if p.exists())
    if path.is_dir():
        got = "a folder"
    elif not folder.is_dir():
        got = f"a path below {folder}, which is no folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        got = f"{folder} may not be written to"
    else:
        return
    raise UsageError(
        "EDGE-USAGE-005",
        f"--junit {path}",
        wanted="a file that can be written",
        got=got,
        hint="name a file, such as reports/junit.xml",
    )


def write_junit(
    path: Path, manifest: Manifest, reports: dict[str, Report], changes: Sequence[Change] = ()
) -> None:
    """Write one test suite an artifact and one test case a check, the verdict being the last.

    What ``--against`` found is a suite of its own, one case an artifact.

    Raises:
        FilesError: the file cannot be written.
    """
    root = ElementTree.Element("testsuites", name=f"edgeserve {manifest.name}")
    for name, report in sorted(reports.items()):
        _suite(root, name, report)
    if changes:
        _changes(root, changes)
    ElementTree.indent(root)
    write_atomic(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _suite(root: ElementTree.Element, name: str, report: Report) -> None:
    broken = [check for check in report.checks if not check.ok]
    failed = report.judgement.verdict == "fail"
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=name,
        tests=str(len(report.checks) + 1),
        failures=str(len(broken) + failed),
        time=f"{float(report.seconds):.3f}",
    )
    for check in report.checks:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=check.name)
        if not check.ok:
            ElementTree.SubElement(case, "failure", message=check.detail)
    verdict = ElementTree.SubElement(suite, "testcase", classname=name, name="verdict")
    said = "; ".join(f"{r.code} {r.message}" for r in report.judgement.reasons)
    if failed:
        ElementTree.SubElement(verdict, "failure", message=said)
    ElementTree.SubElement(
        verdict, "system-out"
    ).text = f"{report.judgement.verdict} {said}".strip()


def _changes(root: ElementTree.Element, changes: Sequence[Change]) -> None:
    worse = sum(change.worse for change in changes)
    suite = ElementTree.SubElement(
        root, "testsuite", name="against", tests=str(len(changes)), failures=str(worse), time="0"
    )
    for change in changes:
        case = ElementTree.SubElement(suite, "testcase", classname="against", name=change.name)
        if change.worse:
            ElementTree.SubElement(case, "failure", message=change.words)
        else:
            ElementTree.SubElement(case, "system-out").text = change.words
