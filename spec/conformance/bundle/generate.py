"""Write the bundle cases, or check that what lies here is what this writes.

python spec/conformance/bundle/generate.py [--check] [--hash]

``--hash`` also hashes 4 GiB of zeros, to check two constants. Standard library only: the expected
codes stand beside the cases by hand, the expected members come from Python's zipfile.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from bundlecases.case import Case, numbered  # noqa: E402
from bundlecases.content import Json, dump  # noqa: E402
from bundlecases.fields import fields  # noqa: E402
from bundlecases.functions import functions  # noqa: E402
from bundlecases.good import BIG, BIG_CRC, BIG_SHA256, big_members, good  # noqa: E402
from bundlecases.manifests import manifests  # noqa: E402
from bundlecases.parts import parts_of  # noqa: E402
from bundlecases.places import places  # noqa: E402
from bundlecases.rawzip import join  # noqa: E402
from bundlecases.texts import texts  # noqa: E402

__all__ = ["cases", "main"]

#: Cases that are a base. Others are told as changes to the one that their name starts with.
_BASES = ("colour", "folder", "functions", "text")


def cases() -> list[Case]:
    """All cases: good ones first."""
    return numbered([*good(), *fields(), *places(), *manifests(), *texts(), *functions()])


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` compare; exit code 1 when something differs."""
    if "--hash" in arguments and _zeros() != (BIG_SHA256, BIG_CRC):
        print("sha256 and CRC-32 of 4 GiB of zeros are", *_zeros())
        return 1
    files = _files()
    if "--check" in arguments:
        stale = [name for name, data in files.items() if _on_disk(name) != data]
        print(f"{len(stale)} of {len(files)} files differ", *stale)
        return 1 if stale else 0
    for name, data in files.items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_bytes(data)
    print(f"wrote {len(files)} files")
    return 0


def _zeros() -> tuple[str, int]:
    """sha256 and CRC-32 of the big member."""
    chunk, digest, crc = bytes(1 << 24), hashlib.sha256(), 0
    for _ in range(BIG // len(chunk)):
        digest.update(chunk)
        crc = zlib.crc32(chunk, crc)
    return digest.hexdigest(), crc


def _on_disk(name: str) -> bytes:
    path = HERE / name
    return path.read_bytes() if path.exists() else b""


def _files() -> dict[str, bytes]:
    """Every generated file: bases, and the list of cases."""
    found = cases()
    bases = {case.name: join(case.pieces) for case in found if case.name in _BASES}
    listed = [_listed(case, bases) for case in found]
    lines = ",\n".join(dump(case).decode() for case in listed)
    text = f'{{"format": 1, "bases": {json.dumps(sorted(bases))}, "cases": [\n{lines}\n]}}\n'
    return {"cases.json": text.encode()} | {f"bases/{n}.edge": data for n, data in bases.items()}


def _listed(case: Case, bases: dict[str, bytes]) -> Json:
    base = next((name for name in _BASES if case.name.split("-")[0] == name), "colour")
    out: dict[str, Any] = {"id": case.name, "what": case.what, "base": base}
    out["parts"] = parts_of(case.pieces, bases[base])
    if case.big:
        out["big"] = True
    if case.error:
        out["error"] = case.error
    if case.read:
        out["read"] = case.read
    return out if case.error else out | {"opens": _opens(case)}


def _opens(case: Case) -> Json:
    """What a reader must find in a good file."""
    if case.big:
        return {"members": [_member(m.name.decode(), m.size, None) for m in big_members()]}
    whole = join(case.pieces)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        bad = archive.testzip()
        assert bad is None, bad
        members = [_member(i.filename, i.file_size, archive.read(i)) for i in archive.infolist()]
        identity = archive.read("identity.json")
    return {"sha256": _sha256(whole), "model_id": _sha256(identity), "members": members}


def _member(name: str, size: int, data: bytes | None) -> Json:
    found: Json = {"name": name, "size": size}
    return found if data is None else found | {"sha256": _sha256(data)}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
