"""The reference as a live endpoint of the Open Inference Protocol.

It is given the raw input wherever it takes one, so that its own preprocessing is compared: by
`predict` where the endpoint is edgeserve's, as an element of a BYTES input where the model has
one. Else it is given the tensors that the packaged processing makes, and reports say so.

Its decisions arrive as JSON of a record, or of what a callable may return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
import numpy as np

from edgeserve import oip
from edgeserve.data import Feed
from edgeserve.data.reader import RawInput
from edgeserve.errors import ValidateError
from edgeserve.tasks.values import AnyRecord
from edgeserve.types.base import decode
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.reference.oip_client import (
    EndpointClient,
    EndpointMetadata,
    EndpointResponse,
    TensorMetadata,
    error_text,
    fetch_metadata,
    parse_address,
)

__all__ = ["EndpointReference", "decode_bytes_output", "decode_record", "endpoint_key"]


#: Seconds for one answer: a model may have to be loaded first.
_TIMEOUT = 120.0
#: Requests under way at a time: it may be serving users meanwhile.
_CONCURRENCY = 4

#: How an input gets there.
InputMode = Literal["predict", "bytes", "tensors"]


class _PredictResponse(msgspec.Struct, frozen=True):
    model_id: str
    answer: msgspec.Raw


def endpoint_key(reference: str, timeout: float = _TIMEOUT) -> bytes:
    """What stands for the code of a reference that is asked over a network.

    Raises:
        ValidateError: the endpoint cannot be asked.
    """
    address = parse_address(reference)
    with EndpointClient(address.server, timeout) as wire:
        return fetch_metadata(wire, address).key


class EndpointReference:
    """An endpoint, asked about one model. A context manager.

    Args:
        reference: Its URL.
        signature: The source's.
        medium: What the packaged processing takes.
        timeout: Seconds that one answer may take.

    Attributes:
        way: How inputs get there.
        card: What the endpoint says of the model.

    Raises:
        ValidateError: EDGE-VALIDATE-002 no address, -040 to -045 the endpoint cannot be asked,
            -044 its model takes or gives other tensors.
    """

    def __init__(
        self, reference: str, signature: Signature, medium: str, timeout: float = _TIMEOUT
    ) -> None:
        self.reference = reference
        self._signature = signature
        address = parse_address(reference)
        self._wire = EndpointClient(address.server, timeout)
        try:
            self.card = fetch_metadata(self._wire, address)
            self.way = _input_mode(self.card, medium)
            if self.way == "tensors":
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
        self._wire.close()

    @property
    def takes_raw(self) -> bool:
        """Raw inputs are sent: the endpoint prepares them itself."""
        return self.way != "tensors"

    @property
    def said(self) -> str:
        """Who answered and what it was sent, for the report."""
        sent = {
            "predict": "it was sent raw inputs",
            "bytes": "it was sent raw inputs, as BYTES",
            "tensors": "it was sent tensors",
        }[self.way]
        return f"{self.card.said}; {sent}"

    def ask(
        self, raws: Sequence[RawInput], feeds: Sequence[Feed], things: Sequence[str]
    ) -> list[object]:
        """What it answers to inputs, in order: a decision, or named outputs.

        Raises:
            ValidateError: EDGE-VALIDATE-040 to -042 there is no answer, -044 one without the
                model's outputs, -045 it refuses an input, -047 another model answers.
        """
        with ThreadPoolExecutor(_CONCURRENCY) as pool:
            return list(pool.map(self._one, raws, feeds, things))

    def _one(self, raw: RawInput, feed: Feed, thing: str) -> object:
        called = f"reference {self.reference} on {thing}"
        if self.way == "tensors":
            tensors = [oip.Tensor(spec.name, feed[spec.name]) for spec in self._signature.inputs]
            return self._outputs(self._infer(tensors, called), called)
        if isinstance(raw, dict):
            raise _incompatible(
                called, "a raw input", "named tensors, and the endpoint prepares raw inputs itself"
            )
        data = raw.encode("utf-8") if isinstance(raw, str) else raw
        if self.way == "predict":
            return self._predict(data, called)
        return self._understood(
            self._infer([_bytes_tensor(self.card.inputs[0], data)], called), called
        )

    def _predict(self, data: bytes, called: str) -> object:
        kind = {"content-type": "application/octet-stream"}
        reply = self._post("predict", data, kind, called)
        try:
            said = decode(reply.body, _PredictResponse)
            answer = decode_record(bytes(said.answer))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
            raise _protocol_error(called, f"no decision ({str(error)[:100]})") from error
        self._check_same(said.model_id, called)
        return answer

    def _infer(self, tensors: Sequence[oip.Tensor], called: str) -> oip.InferResponse:
        try:
            body, head = oip.write_request(tensors, binary=self.card.binary)
        except (oip.BadMessage, UnicodeDecodeError) as error:
            if self.way == "bytes":
                raise _no_binary(called) from error
            raise _incompatible(called, "tensors that JSON can hold", str(error)[:100]) from error
        headers = {"content-type": "application/json"}
        if head is not None:
            headers = {
                "content-type": "application/octet-stream",
                "inference-header-content-length": str(head),
            }
        reply = self._post("infer", body, headers, called)
        length = reply.headers.get("inference-header-content-length")
        try:
            answer = oip.read_response(reply.body, int(length) if length else None)
        except ValueError as error:  # BadMessage is one
            raise _protocol_error(called, str(error)[:200]) from error
        self._check_same(answer.parameters.get("model_id"), called)
        return answer

    def _post(
        self, verb: str, body: bytes, headers: Mapping[str, str], called: str
    ) -> EndpointResponse:
        reply = self._wire.post(f"{self.card.path}/{verb}", body, headers)
        if reply.status != 200:
            raise ValidateError(
                "EDGE-VALIDATE-045",
                called,
                wanted="an answer",
                got=f"status {reply.status} {error_text(reply)}".strip(),
                hint="see the endpoint's log, or leave out inputs that it cannot answer",
            )
        return reply

    def _check_same(self, model_id: Any, called: str) -> None:
        if isinstance(model_id, str) and model_id and self.card.model_id not in ("", model_id):
            raise ValidateError(
                "EDGE-VALIDATE-047",
                called,
                wanted=f"model_id {self.card.model_id}",
                got=model_id,
                hint="ask again when the endpoint serves one model throughout",
            )

    def _understood(self, answer: oip.InferResponse, called: str) -> object:
        """Outputs of the model's names, or words: JSON of a decision, or a bare label."""
        names = {tensor.name for tensor in answer.outputs}
        if {spec.name for spec in self._signature.outputs} <= names:
            return self._outputs(answer, called)
        words = [t.array for t in answer.outputs if t.array.dtype.kind == "O" and t.array.size == 1]
        if len(answer.outputs) != 1 or not words:
            wanted = [spec.name for spec in self._signature.outputs]
            raise _incompatible(
                called, f"outputs {wanted}, or one BYTES output", f"{sorted(names)}"
            )
        return decode_bytes_output(bytes(words[0].reshape(-1)[0]))

    def _outputs(self, answer: oip.InferResponse, called: str) -> Feed:
        given = {tensor.name: tensor.array for tensor in answer.outputs}
        found = {}
        for spec in self._signature.outputs:
            array = given.get(spec.name)
            if array is None or array.dtype.kind != np.dtype(spec.dtype).kind:
                got = "none" if array is None else f"{array.dtype} {list(array.shape)}"
                raise _incompatible(called, f"output {spec.name!r} as {spec.dtype}", got)
            if array.ndim != len(spec.shape):  # whether [4] is [1, 4] or [4, 1] is a guess
                wanted = f"output {spec.name!r} as {spec.dtype} {list(spec.shape)}"
                raise _incompatible(called, wanted, f"{array.dtype} {list(array.shape)}")
            found[spec.name] = array.astype(spec.dtype, copy=False)
        return found

    def _check_ports(self) -> None:
        called = f"model {self.card.model!r} of {self.reference}"
        for kind, specs, ports in (
            ("input", self._signature.inputs, self.card.inputs),
            ("output", self._signature.outputs, self.card.outputs),
        ):
            by_name = {port.name: port for port in ports}
            for spec in specs:
                port = by_name.pop(spec.name, None)
                if port is None or not _fits(spec, port, exact=kind == "input"):
                    got = _shown(port) if port else f"{sorted(p.name for p in ports)}"
                    wanted = f"{kind} {spec.name!r}, {spec.dtype} {list(spec.shape)}"
                    raise _incompatible(called, wanted, got)
            if by_name and kind == "input":
                raise _incompatible(
                    called, f"inputs {[s.name for s in specs]}", f"{sorted(by_name)} as well"
                )


def _input_mode(card: EndpointMetadata, medium: str) -> InputMode:
    if medium == "tensors":
        return "tensors"
    if card.medium == medium:
        return "predict"
    sizes = {size for port in card.inputs for size in port.shape}
    if [port.datatype for port in card.inputs] == ["BYTES"] and sizes <= {-1, 1}:
        return "bytes"
    return "tensors"


def _fits(spec: TensorSpec, port: TensorMetadata, *, exact: bool) -> bool:
    """Whether a tensor of ours can be the endpoint's; outputs may be of another width."""
    held = oip.DATATYPES.get(port.datatype, "string")
    if held == "string" or len(port.shape) != len(spec.shape):
        return False
    if held != spec.dtype and (exact or np.dtype(held).kind != np.dtype(spec.dtype).kind):
        return False
    pairs = zip(spec.shape, port.shape, strict=True)
    return all(
        theirs == -1 or not isinstance(size, int) or size == theirs for size, theirs in pairs
    )


def _shown(port: TensorMetadata) -> str:
    return f"{port.datatype} {list(port.shape)}"


def _bytes_tensor(port: TensorMetadata, data: bytes) -> oip.Tensor:
    array = np.empty((1,) * max(1, len(port.shape)), object)
    array.reshape(-1)[0] = data
    return oip.Tensor(port.name, array)


def _incompatible(called: str, wanted: str, got: str) -> ValidateError:
    return ValidateError(
        "EDGE-VALIDATE-044",
        called,
        wanted=wanted,
        got=got,
        hint="name the endpoint of the model that was converted, or write a function that asks it"
        " and returns the answer under the model's own names",
    )


def _no_binary(called: str) -> ValidateError:
    return ValidateError(
        "EDGE-VALIDATE-044",
        called,
        wanted="an endpoint that lists the extension binary_tensor_data, for raw bytes",
        got="one that takes BYTES as text in JSON alone, which cannot hold this input",
        hint="let the server speak binary tensor data, or write a function that asks it (base64,"
        " for example) and name that as the reference",
    )


def _protocol_error(called: str, got: str) -> ValidateError:
    return ValidateError(
        "EDGE-VALIDATE-042",
        called,
        wanted="an answer of the Open Inference Protocol",
        got=got,
        hint="see what answers at that address: curl URL/v2",
    )


def decode_record(answer: bytes) -> object:
    """A record in JSON, or (for the task without one) named arrays.

    Raises:
        ValueError: it is neither; so are msgspec's errors of JSON.
    """
    plain = msgspec.json.decode(answer)
    if isinstance(plain, dict) and "record" not in plain:
        return {name: np.asarray(value) for name, value in plain.items()}
    return decode(answer, AnyRecord)


def decode_bytes_output(answer: bytes) -> object:
    """What a BYTES output says: JSON of a decision or a label, else the text itself, a label."""
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
