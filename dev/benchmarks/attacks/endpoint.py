"""The endpoint under attack: its models, its process, and whether it still answers right."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dev.benchmarks.attacks import frames
from dev.benchmarks.attacks.registry import Attack
from dev.benchmarks.attacks.watch import ROOT
from dev.benchmarks.serve import _free

_TESTS = ROOT / "tests"
#: The endpoint has a core of its own, and everybody else the other.
_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, OTHER_CORE = str(_CORES[0]), str(_CORES[-1])
_KEY = "0123456789abcdef0123456789abcdef"
_START_S = 60.0
#: Seconds within which a good request is to be answered after an attack.
_ANSWER_S = 10.0
_ANY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_ANY.check_hostname, _ANY.verify_mode = False, ssl.CERT_NONE


@dataclass(frozen=True)
class Served:
    """A workspace, the name of its model, and a request whose label is known.

    Attributes:
        label: That the model's oracle gives; empty: the answer before the attack is the measure.
    """

    root: str
    model: str
    body: bytes
    label: str = ""


class Models:
    """Workspaces of the tests' small models, made once.

    Args:
        folder: Where to write them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The tests' models are used, and import what tests share.
        sys.path.append(str(_TESTS / "support"))

    def __getitem__(self, name: str) -> Served:
        served: Served = getattr(self, name)
        return served

    @cached_property
    def _module(self) -> Any:
        from testkit.modules import load

        return load(_TESTS / "wrapper/conftest.py", "attacks_models")

    def _make(self, name: str) -> Any:
        folder = self._folder / name
        folder.mkdir(parents=True)
        return self._module.Make(folder, lambda workspace: None)

    @cached_property
    def photo(self) -> Served:
        """A classifier of pictures."""
        make = self._make("photo")
        picture = make.pictures[0]
        label = make.oracle(picture).label
        return Served(str(make.workspace()), "tagger", make.png(picture), label)

    @cached_property
    def text(self) -> Served:
        """An encoder of texts."""
        from testkit.modules import load

        module = load(_TESTS / "wrapper/text/textmodel.py", "attacks_textmodel")
        folder = self._folder / "text"
        folder.mkdir(parents=True)
        make = module.TextMake(folder)
        return Served(str(make.workspace()), "words", make.texts[0].encode())

    @cached_property
    def sound(self) -> Served:
        """A classifier of sounds: 400 samples at 8000 Hz times a matrix."""
        import numpy as np

        from dev.benchmarks.attacks.media import wav
        from edgeserve.processing.steps.softmax import Softmax
        from edgeserve.processing.steps.waveform import Waveform
        from edgeserve.types.processing import InputProcessing, Processing
        from edgeserve.types.tensors import Signature, TensorSpec

        wave = TensorSpec(name="image", dtype="float32", shape=("batch", 1, 400))
        logits = TensorSpec(name="logits", dtype="float32", shape=("batch", 3))
        sign = Signature(inputs=(wave,), outputs=(logits,), dims={"batch": (1, 8)})
        weights = np.random.default_rng(3).normal(size=(400, 3)).astype(np.float32)
        steps = InputProcessing(name="image", steps=(Waveform(rate=8000, length=400),))
        make = self._make("sound")
        make.signature, make.pictures = sign, []
        nodes = [
            self._module.helper.make_node("Flatten", ["image"], ["flat"]),
            self._module.helper.make_node("MatMul", ["flat", "w"], ["logits"]),
        ]
        made = make.made("onnx-fp32", make.model(nodes, sign, {"w": weights}))
        fields = {
            "task": "audio-classification",
            "labels": ("a", "b", "c"),
            "processing": Processing(inputs=(steps,), outputs=(Softmax(output="logits"),)),
        }
        return Served(str(make.workspace(made, golden=False, **fields)), "tagger", wav(size=800))


@dataclass
class Endpoint:
    """A running endpoint.

    Attributes:
        process: Of it.
        port: Of REST.
        grpc_port: Of gRPC.
        served: Its model.
        tls: Whether it speaks TLS.
        has_grpc: Whether gRPC answers for the model.
    """

    process: subprocess.Popen[bytes]
    port: int
    grpc_port: int
    served: Served
    tls: bool
    has_grpc: bool = True

    def warm_up(self) -> str:
        """Ask until every code path has its memory; the answer."""
        for _ in range(20):
            answer = self.answer()
            self._model_ready()
        return answer

    def answer(self) -> str:
        """The answer to the good request over REST; "" if it did not come in time or is wrong.

        A model with an oracle must give the oracle's label.
        """
        address = f"http{'s' * self.tls}://127.0.0.1:{self.port}"
        address += f"/v2/models/{self.served.model}/predict"
        asked = urllib.request.Request(address, self.served.body, {"X-API-Key": _KEY})
        with suppress(OSError, ValueError, KeyError):
            with urllib.request.urlopen(asked, timeout=_ANSWER_S, context=_ANY) as reply:
                found = json.loads(reply.read())["answer"]
            if not self.served.label or found["label"] == self.served.label:
                return json.dumps(found, sort_keys=True)
        return ""

    def well(self, before: str) -> bool:
        """Whether REST gives the same answer as before and gRPC says that the model is ready."""
        return self.answer() == before != "" and self._model_ready()

    def _model_ready(self) -> bool:
        """By bytes, so that no library retries; an endpoint without gRPC has nothing to say."""
        if not self.has_grpc:
            return True
        name = self.served.model.encode()
        data = frames.message(b"\x0a" + bytes([len(name)]) + name)
        block = frames.call("ModelReady") + frames.line(b"x-api-key", _KEY.encode())
        asked = frames.PREFACE + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
        asked += frames.frame(frames.DATA, frames.END_STREAM, 1, data)
        said = b""
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self.grpc_port), timeout=_ANSWER_S) as plain,
        ):
            link = _h2_over_tls(plain) if self.tls else plain
            link.sendall(asked)
            while frames.message(b"\x08\1") not in said:
                piece = link.recv(65536)
                if not piece:
                    return False
                said += piece
            return True
        return False


def _h2_over_tls(plain: socket.socket) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)


@contextmanager
def endpoint(
    models: Models, inflight_mb: int, body_mb: int, attack: Attack, folder: Path
) -> Iterator[Endpoint]:
    """The command `edgeserve serve` on a core of its own, with what the attack needs."""
    served, port, grpc_port = models[attack.bundle], _free(), _free()
    command = [sys.executable, "-P", "-m", "edgeserve", "serve", served.root]
    command += ["--port", str(port), "--grpc-port", str(grpc_port), "--drain-s", "0"]
    command += ["--threads", "1", "--workers", "1"]
    command += ["--inflight-mb", str(inflight_mb), "--body-mb", str(body_mb)]
    command += _keys(folder) if attack.keys else []
    command += _certificate(folder) if attack.tls else []
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([*pinned(attack.files), *command], stderr=log) as process,
    ):
        try:
            made = Endpoint(process, port, grpc_port, served, attack.tls)
            started(made)
            yield made
        finally:
            process.kill()


def pinned(files: int | None) -> list[str]:
    """What starts a command on the server's core, with so many descriptors."""
    words = ["taskset", "-c", SERVER_CORE]
    if os.geteuid() == 0:  # others on this machine shall not count as the endpoint's slowness
        words += ["nice", "-n", "-10"]
    return ["prlimit", f"--nofile={files}:{files}", *words] if files else words


def started(made: Endpoint) -> None:
    """Wait for the first connection.

    Raises:
        TimeoutError: There is none.
    """
    end = time.monotonic() + _START_S
    while time.monotonic() < end and made.process.poll() is None:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", made.port), timeout=1).close()
            return
        time.sleep(0.05)
    raise TimeoutError(f"the endpoint did not start: exit code {made.process.poll()}")


def _keys(folder: Path) -> list[str]:
    path = folder / "keys"
    path.write_text(f"owner {_KEY}\n")
    return ["--keys", str(path)]


def _certificate(folder: Path) -> list[str]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    if not key.exists():
        words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
        command = ["openssl", *words.split(), "-out", str(certificate), "-keyout", str(key)]
        subprocess.run(command, check=True, capture_output=True)
    return ["--tls-cert", str(certificate), "--tls-key", str(key)]
