"""CUDA, where an ONNX Runtime provider and a GPU are at hand: parity, and throughput by batch size.

    make gpu-check        (python -m dev.benchmarks.gpu_check [--delegate cuda] [--seconds 1])

Needs `pip install onnxruntime-gpu` in place of onnxruntime. Takes well under five minutes; where
there is no CUDA runtime it says so and ends with 0, and CUDA stays unproven.

Parity is of a network of convolutions, the same bundle on both sides, against the CPU: the largest
difference, and samples whose largest output is another one. Throughput is of the Wrapper's own run
at each batch size, and of the endpoint without batching and with it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

from dev.benchmarks.serve import SHAPE, Client, bundle, closed_loop, server
from edgeserve import Wrapper
from edgeserve.errors import EdgeError

_MOST = 64
_SIZES = (1, 2, 4, 8, 16, 32, 64)
#: The GPU's convolutions may round to ten bits (TF32), the CPU's do not: relative to the largest.
_TOLERANCE = 2e-3


def opened(root: str, delegate: str) -> Wrapper | str:
    """A Wrapper on this delegate and no other; or why there is none."""
    try:
        return Wrapper(root, delegate=delegate, strict=False)
    except EdgeError as error:
        return f"{error.code} {error.message}"


def parity(there: Wrapper, here: Wrapper) -> bool:
    """Print how far the two are apart; whether that is little enough."""
    rng = np.random.default_rng(5)
    worst, flips, samples = 0.0, 0, 0
    for size in (1, 3, 8, 64):
        x = {"x": rng.random((size, *SHAPE[1:]), np.float32)}
        one, other = (w.engine.run(x)["y"].reshape(size, -1) for w in (there, here))
        worst = max(worst, float(np.abs(one - other).max() / np.abs(other).max()))
        flips += int((one.argmax(1) != other.argmax(1)).sum())
        samples += size
    print(
        f"parity with the CPU: {samples} samples, relative difference {worst:.1e} at most "
        f"(wanted <= {_TOLERANCE:g}), {flips} decisions differ (wanted 0)"
    )
    return worst <= _TOLERANCE and not flips


def throughput(wrapper: Wrapper, title: str, seconds: float) -> None:
    """Print samples a second by batch size."""
    told = []
    for size in _SIZES:
        x = {"x": np.random.default_rng(1).random((size, *SHAPE[1:]), np.float32)}
        wrapper.engine.run(x)
        runs, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            wrapper.engine.run(x)
            runs += 1
        told.append(f"{size}: {runs * size / (time.perf_counter() - began):.0f}")
    print(f"{title}, samples a second by batch size: {', '.join(told)}", flush=True)


def endpoint(root: str, seconds: float) -> None:
    """Print answers a second of the endpoint, 32 callers at a time."""
    for batch in (1, 32):
        with server(root, "--batch", str(batch), "--deadline-ms", "60000") as (_, port):

            async def go(port: int = port) -> float:
                client = Client(port, Path(root).name)
                await closed_loop(client, 64, 32)
                answered, began = 0, time.perf_counter()
                while time.perf_counter() - began < 2 * seconds:
                    answered += len(await closed_loop(client, 128, 32))
                client.close()
                return answered / (time.perf_counter() - began)

            print(
                f"endpoint, --batch {batch}: {asyncio.run(go()):.0f} answers a second", flush=True
            )


def main() -> int:
    """Print the figures; 1 if the GPU answers otherwise than the CPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--delegate", default="cuda", help="another provider, to try the script")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = bundle(Path(folder), "convs", _MOST)
        there = opened(root, given.delegate)
        if isinstance(there, str):
            providers = ", ".join(onnxruntime.get_available_providers())
            print(f"not run: no CUDA runtime (onnxruntime has {providers}; {there})")
            return 0
        with there, Wrapper(root, delegate="cpu") as here:
            print(f"onnxruntime {onnxruntime.__version__}, ran on {there.ran_on.runtime.delegate}")
            same = parity(there, here)
            throughput(there, given.delegate, given.seconds)
            throughput(here, "cpu", given.seconds)
        endpoint(root, given.seconds)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
