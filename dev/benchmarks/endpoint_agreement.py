"""Figure: the Wrapper on the device and the endpoint in the cloud, on the same raw photos.

    python -m dev.benchmarks.endpoint_agreement demo-out/tagger demo-out/photos [--inputs 2128]

Of the workspace one bundle a precision is packaged, which the Wrapper opens in this process and the
command serves in another. Each photo of ``data.jsonl``, and each mirrored and packed again, goes as
bytes to both: over HTTP to ``predict``, and for a client that knows only the protocol every eighth
also as a BYTES input. Decisions that differ are counted; there should be none.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from dev.benchmarks.serve import server
from edgeserve import Wrapper, oip
from edgeserve.package import package
from edgeserve.types.options import PackageOptions

_QUALITY = 85


def raws(photos: Path, most: int) -> Iterator[bytes]:
    """Photos as they lie there, then each as another: at most so many."""
    lines = (photos / "data.jsonl").read_text().splitlines()
    paths = [photos / json.loads(line)["input"] for line in lines]
    for i in range(most):
        data = paths[i % len(paths)].read_bytes()
        if i >= len(paths):
            out = io.BytesIO()
            picture = ImageOps.mirror(Image.open(io.BytesIO(data)).convert("RGB"))
            picture.save(out, "JPEG", quality=_QUALITY + i // len(paths))
            data = out.getvalue()
        yield data


def compare(bundle: str, photos: Path, most: int) -> dict[str, Any]:
    """Answer every photo on both sides."""
    found = {"inputs": 0, "flips": 0, "protocol": 0, "model_ids": set(), "max_abs": 0.0}
    with (
        Wrapper(bundle, threads=1) as device,
        server(bundle, "--workers", "1", "--threads", "1", "--deadline-ms", "60000") as (_, port),
    ):
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        name = device.manifest.name
        for i, raw in enumerate(raws(photos, most)):
            here = device.predict(raw)
            there = _ask(link, f"/v2/models/{name}/predict", raw)
            found["inputs"] += 1
            found["model_ids"] |= {device.manifest.model_id, there["model_id"]}
            _count(found, here, there["answer"])
            if i % 8 == 0:
                found["protocol"] += 1
                _count(found, here, _by_protocol(link, name, raw))
        link.close()
    return found


def _count(found: dict[str, Any], here: Any, there: dict[str, Any]) -> None:
    """Another label, or another order of those below it, is a flip."""
    order = [label for label, _ in here.top]
    same = here.index == there["index"] and order == [label for label, _ in there["top"]]
    found["flips"] += not same
    off = [abs(a - b) for (_, a), (_, b) in zip(here.top, there["top"], strict=True)]
    found["max_abs"] = max(found["max_abs"], *off)


def _ask(link: http.client.HTTPConnection, path: str, body: bytes, **headers: str) -> Any:
    link.request("POST", path, body, {k.replace("_", "-"): v for k, v in headers.items()})
    reply = link.getresponse()
    said = reply.read()
    assert reply.status == 200, said[:300]
    return json.loads(said) if reply.headers["content-type"] == "application/json" else said


def _by_protocol(link: http.client.HTTPConnection, name: str, raw: bytes) -> dict[str, Any]:
    """The same photo as one element of BYTES, its decision as JSON in an output."""
    element = np.empty(1, object)
    element[0] = raw
    body, head = oip.write_request([oip.Tensor("raw", element)])
    # Without parameters the answer is all JSON.
    text = json.loads(body[:head]) | {"parameters": {}}
    start = json.dumps(text).encode()
    said = _ask(
        link,
        f"/v2/models/{name}/infer",
        start + body[head:],
        inference_header_content_length=str(len(start)),
    )
    answer: dict[str, Any] = json.loads(said["outputs"][0]["data"][0])
    return answer


def main() -> int:
    """Print the figures; 1 if a decision differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", nargs="?", default="demo-out/tagger")
    parser.add_argument("photos", type=Path, nargs="?", default=Path("demo-out/photos"))
    parser.add_argument("--inputs", type=int, default=2128)
    parser.add_argument("--artifacts", nargs="+", default=["onnx-fp32", "onnx-w8a8"])
    given = parser.parse_args()
    flips = 0
    with tempfile.TemporaryDirectory() as folder:
        for artifact in given.artifacts:
            out = str(Path(folder, f"{artifact}.edge"))
            wanted = PackageOptions(out=given.workspace, bundle=out, only=(artifact,))
            package(wanted)
            found = compare(out, given.photos, given.inputs)
            flips += found["flips"]
            print(
                f"{artifact}: {found['inputs']} photos by predict, {found['protocol']} of them by "
                f"infer too: {found['flips']} decisions differ, scores by {found['max_abs']:.1e} "
                f"at most, {len(found['model_ids'])} model_id",
                flush=True,
            )
    return 1 if flips else 0


if __name__ == "__main__":
    sys.exit(main())
