"""The reference as a live endpoint of the Open Inference Protocol.

The endpoint receives the raw input wherever it accepts one, so that its own preprocessing is
compared: by `predict` where the endpoint is edgeserve's, as an element of a BYTES input where the
model has one. Else it receives the tensors that the packaged processing makes, and reports say so.

Decisions arrive as JSON of a record, or of any value that a callable may return. The client in
`edgeserve.oip` sends the requests; its errors get their codes here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
import numpy as np

from edgeserve import oip
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import ValidateError
from edgeserve.installation import install_command
from edgeserve.oip import client
from edgeserve.oip.client import ClientError, EndpointReply, EndpointRequest, HttpClient
from edgeserve.oip.metadata import (
    EndpointMetadata,
    EndpointSession,
    ModelAddress,
    TensorMetadata,
    error_text,
    fetch_metadata,
    parse_address,
)
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode
from edgeserve.types.tensors import Signature, TensorSpec

#: Environment variable with the endpoint's API key, which is stored in no file.
KEY_VARIABLE = "EDGESERVE_REFERENCE_KEY"
#: Seconds for one answer: a model may have to be loaded first.
_TIMEOUT_S = 120.0
#: Requests in flight at a time: the endpoint may be serving users meanwhile.
_CONCURRENCY = 4
#: Longest reply that is read, bytes.
_MAX_BODY = 1 << 30

#: How an input reaches the endpoint, and the report's words for it.
InputMode = Literal["predict", "bytes", "tensors"]
_SENT: dict[InputMode, str] = {
    "predict": "it was sent raw inputs",
    "bytes": "it was sent raw inputs, as BYTES",
    "tensors": "it was sent tensors",
}

#: By kind of a client's error, and of those raised here: code, expectation (where the error names
#: none) and hint.
_ERRORS = {
    "address": (
        "EDGE-VALIDATE-002",
        "http(s)://host[:port][/v2/models/NAME[/versions/VERSION]]",
        f"give the REST address of the endpoint; an API key belongs in {KEY_VARIABLE}",
    ),
    "connection": (
        "EDGE-VALIDATE-040",
        "a reply over HTTP",
        "check that the endpoint is up: curl URL/v2",
    ),
    "timeout": (
        "EDGE-VALIDATE-041",
        "a reply within {timeout:g} seconds, each time it is asked",
        "see the endpoint's log; name an endpoint that has the model loaded",
    ),
    "protocol": (
        "EDGE-VALIDATE-042",
        "a reply of the Open Inference Protocol",
        "name an endpoint of the Open Inference Protocol v2, or write a function that asks your"
        " server: --reference module:callable",
    ),
    "model": (
        "EDGE-VALIDATE-043",
        "a model",
        "name one that is loaded there: --reference URL/v2/models/NAME",
    ),
    "incompatible": (
        "EDGE-VALIDATE-044",
        "the converted model's inputs and outputs",
        "name the endpoint of the model that was converted, or write a function that asks it and"
        " returns the answer under the model's own names",
    ),
    "binary": (
        "EDGE-VALIDATE-044",
        "an endpoint that lists the extension binary_tensor_data, for raw bytes",
        "enable binary tensor data on the server, or write a function that asks it (in base64, for"
        " example) and name that as the reference",
    ),
    "refused": (
        "EDGE-VALIDATE-045",
        "an answer",
        f"for status 401 or 403 set {KEY_VARIABLE} to a key that the endpoint accepts as a Bearer"
        " token; else see its log, or leave out inputs that it cannot answer",
    ),
    "other-model": (
        "EDGE-VALIDATE-047",
        "one model",
        "run the command again once the endpoint serves a single model",
    ),
}


@contextmanager
def _coded(thing: str, timeout: float = _TIMEOUT_S) -> Iterator[None]:
    """Give errors of the client their codes, and name the thing that they are about."""
    try:
        yield
    except (ClientError, oip.BadMessage) as error:
        kind, wanted, got = "protocol", "", str(error)[:200]
        if isinstance(error, client.OutputMismatch):
            kind, wanted, got = "incompatible", error.wanted, error.got
        elif isinstance(error, ClientError):
            kind, wanted, got = error.kind, error.wanted, error.got
        code, usual, hint = _ERRORS.get(kind, _ERRORS["connection"])
        raise ValidateError(
            code,
            re.sub(r"//[^/]*@", "//...@", thing),  # a password
            wanted=wanted or usual.format(timeout=timeout),
            got=got,
            hint=hint,
        ) from error


def check_address(reference: str) -> ModelAddress:
    """Split a reference's URL.

    Raises:
        ValidateError: EDGE-VALIDATE-002, it is not the address of such an endpoint.
    """
    with _coded(f"reference {reference}"):
        return parse_address(reference)


def _connect(url: str, timeout: float) -> EndpointSession:
    """A session with the server.

    Raises:
        ValidateError: EDGE-VALIDATE-046 httpx2 is missing, -048 a key that no header can hold.
    """
    try:
        key = client.bearer_header(os.environ.get(KEY_VARIABLE, ""))
        return EndpointSession(HttpClient(key, _MAX_BODY), url, timeout)
    except ModuleNotFoundError as error:
        raise ValidateError(
            "EDGE-VALIDATE-046",
            f"reference {url}",
            wanted="the package httpx2",
            got="it is not installed",
            hint=install_command("fallback"),
        ) from error
    except ValueError as error:
        raise ValidateError(
            "EDGE-VALIDATE-048",
            f"reference {url}",
            wanted=f"a key of printable ASCII in {KEY_VARIABLE}",
            got="one with other characters",
            hint="set the variable to the key alone",
        ) from error


def endpoint_key(reference: str, timeout: float = _TIMEOUT_S) -> bytes:
    """A cache key for the answers of an endpoint: the metadata of its model.

    Raises:
        ValidateError: the endpoint cannot be asked.
    """
    address = check_address(reference)
    with _connect(address.server, timeout) as session, _coded(f"reference {reference}", timeout):
        return fetch_metadata(session, address).cache_key


class EndpointReference:
    """An endpoint, asked about one model. A context manager.

    Args:
        reference: Its URL.
        signature: The source's.
        medium: The raw input of the packaged processing.
        timeout: Seconds that one answer may take.

    Attributes:
        input_mode: How inputs reach the endpoint.
        metadata: Of the model.

    Raises:
        ValidateError: EDGE-VALIDATE-002 no address, -040 to -045 the endpoint cannot be asked,
            -044 its model has other inputs or outputs.
    """

    def __init__(
        self, reference: str, signature: Signature, medium: str, timeout: float = _TIMEOUT_S
    ) -> None:
        self.reference = reference
        self._signature = signature
        address = check_address(reference)
        self._session = _connect(address.server, timeout)
        try:
            with _coded(f"reference {reference}", timeout):
                self.metadata = fetch_metadata(self._session, address)
                self.input_mode = _input_mode(self.metadata, medium)
                if self.input_mode == "tensors":
                    self._check_ports()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EndpointReference:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    @property
    def takes_raw(self) -> bool:
        """Raw inputs are sent: the endpoint prepares them itself."""
        return self.input_mode != "tensors"

    @property
    def description(self) -> str:
        """Which model answered and what it was sent, for the report."""
        return f"{self.metadata.description}; {_SENT[self.input_mode]}"

    def ask(
        self, raws: Sequence[RawInput], feeds: Sequence[Feed], things: Sequence[str]
    ) -> list[object]:
        """Answers to inputs, in order: each a decision, or named outputs.

        Raises:
            ValidateError: EDGE-VALIDATE-040 to -042 there is no answer, -044 one without the
                model's outputs, -045 it refuses an input, -047 another model answers.
        """
        with ThreadPoolExecutor(_CONCURRENCY) as pool:
            return list(pool.map(self._ask_one, raws, feeds, things))

    def _ask_one(self, raw: RawInput, feed: Feed, thing: str) -> object:
        with _coded(f"reference {self.reference} on {thing}", self._session.timeout):
            if self.input_mode == "tensors":
                names = [spec.name for spec in self._signature.inputs]
                response = self._infer([oip.Tensor(name, feed[name]) for name in names])
                return client.named_outputs(response, self._signature, convert=True)
            if isinstance(raw, dict):
                got = "named tensors, and the endpoint prepares raw inputs itself"
                raise ClientError("incompatible", got, "a raw input")
            data = raw.encode("utf-8") if isinstance(raw, str) else raw
            if self.input_mode == "predict":
                return self._predict(data)
            return self._decision(self._infer([_bytes_tensor(self.metadata.inputs[0], data)]))

    def _predict(self, data: bytes) -> object:
        reply = self._post(client.predict_request(self.metadata.path, data))
        answer = client.read_predict_reply(reply)
        self._check_model(answer.model_id)
        return answer.decision

    def _infer(self, tensors: Sequence[oip.Tensor]) -> oip.InferResponse:
        try:
            request = client.infer_request(self.metadata.path, tensors, self.metadata.binary)
        except (oip.BadMessage, UnicodeDecodeError) as error:
            if self.input_mode == "bytes":
                got = "one that accepts BYTES only as text in JSON, which cannot hold this input"
                raise ClientError("binary", got) from error
            wanted = "tensors that JSON can hold"
            raise ClientError("incompatible", str(error)[:100], wanted) from error
        response = client.read_infer_reply(self._post(request))
        self._check_model(response.parameters.get("model_id"))
        return response

    def _post(self, request: EndpointRequest) -> EndpointReply:
        reply = self._session.post(request)
        if reply.status != 200:
            raise ClientError("refused", f"status {reply.status} {error_text(reply)}".strip())
        return reply

    def _check_model(self, model_id: Any) -> None:
        known = self.metadata.model_id
        if isinstance(model_id, str) and model_id and known not in ("", model_id):
            raise ClientError("other-model", model_id, f"model_id {known}")

    def _decision(self, response: oip.InferResponse) -> object:
        """Outputs of the model's names, or one text: JSON of a decision, or a bare label."""
        names = {tensor.name for tensor in response.outputs}
        wanted = [spec.name for spec in self._signature.outputs]
        if set(wanted) <= names:
            return client.named_outputs(response, self._signature, convert=True)
        arrays = [tensor.array for tensor in response.outputs]
        if len(arrays) != 1 or arrays[0].dtype.kind != "O" or arrays[0].size != 1:
            expected = f"outputs {wanted}, or one BYTES output"
            raise ClientError("incompatible", f"{sorted(names)}", expected)
        return decode_bytes_output(bytes(arrays[0].reshape(-1)[0]))

    def _check_ports(self) -> None:
        for kind, specs, ports in (
            ("input", self._signature.inputs, self.metadata.inputs),
            ("output", self._signature.outputs, self.metadata.outputs),
        ):
            by_name = {port.name: port for port in ports}
            for spec in specs:
                port = by_name.pop(spec.name, None)
                if port is None or not _fits(spec, port, exact=kind == "input"):
                    got = f"{sorted(p.name for p in ports)}"
                    if port is not None:
                        got = f"{port.datatype} {list(port.shape)}"
                    wanted = f"{kind} {spec.name!r}, {spec.dtype} {list(spec.shape)}"
                    raise ClientError("incompatible", got, wanted)
            if by_name and kind == "input":
                wanted = f"inputs {[s.name for s in specs]}"
                raise ClientError("incompatible", f"{sorted(by_name)} as well", wanted)


def _input_mode(metadata: EndpointMetadata, medium: str) -> InputMode:
    if medium == "tensors":
        return "tensors"
    if metadata.medium == medium:
        return "predict"
    sizes = {size for port in metadata.inputs for size in port.shape}
    if [port.datatype for port in metadata.inputs] == ["BYTES"] and sizes <= {-1, 1}:
        return "bytes"
    return "tensors"


def _fits(spec: TensorSpec, port: TensorMetadata, *, exact: bool) -> bool:
    """Whether a tensor of the signature can be the endpoint's; outputs may be of another width."""
    held = oip.DATATYPES.get(port.datatype, "string")
    if held == "string" or len(port.shape) != len(spec.shape):
        return False
    if held != spec.dtype and (exact or np.dtype(held).kind != np.dtype(spec.dtype).kind):
        return False
    pairs = zip(spec.shape, port.shape, strict=True)
    return all(size in (-1, own) or not isinstance(own, int) for own, size in pairs)


def _bytes_tensor(port: TensorMetadata, data: bytes) -> oip.Tensor:
    array = np.empty((1,) * max(1, len(port.shape)), object)
    array.reshape(-1)[0] = data
    return oip.Tensor(port.name, array)


def decode_bytes_output(answer: bytes) -> object:
    """The content of a BYTES output: JSON of a decision or a label, else the text, a label."""
    try:
        plain = msgspec.json.decode(answer)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return answer.decode("utf-8", "replace")
    if isinstance(plain, dict) and "record" in plain:
        try:
            return decode(answer, AnyRecord)
        except (msgspec.MsgspecError, ValueError):
            return plain
    return plain
