"""The reference as a live endpoint of the Open Inference Protocol.

It is given the raw input wherever it takes one, so that its own preprocessing is compared: by
`predict` where the endpoint is edgeserve's, as an element of a BYTES input where the model has one.
Else it is given the tensors that the packaged processing makes, and reports say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
import numpy as np

from edgeserve import oip
from edgeserve.data import Feed
from edgeserve.data.reading import RawInput
from edgeserve.errors import ValidateError
from edgeserve.types.base import decode
from edgeserve.types.tensors import Signature, TensorSpec
from edgeserve.validate.card import Card, Port, address_of, refusal, take_card
from edgeserve.validate.heard import from_words, record_said
from edgeserve.validate.wire import Reply, Wire

__all__ = ["Endpoint", "endpoint_key"]

#: Seconds for one answer: a model may have to be loaded first.
_TIMEOUT = 120.0
#: Requests under way at a time: it may be serving users meanwhile.
_AT_ONCE = 4

#: How an input gets there.
Way = Literal["predict", "bytes", "tensors"]


class _Decision(msgspec.Struct, frozen=True):
    model_id: str
    answer: msgspec.Raw


def endpoint_key(reference: str, timeout: float = _TIMEOUT) -> bytes:
    """What stands for the code of a reference that is asked over a network.

    Raises:
        ValidateError: the endpoint cannot be asked.
    """
    address = address_of(reference)
    with Wire(address.server, timeout) as wire:
        return take_card(wire, address).key


class Endpoint:
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
        address = address_of(reference)
        self._wire = Wire(address.server, timeout)
        try:
            self.card = take_card(self._wire, address)
            self.way = _way(self.card, medium)
            if self.way == "tensors":
                self._check_ports()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Endpoint:
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
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._one, raws, feeds, things))

    def _one(self, raw: RawInput, feed: Feed, thing: str) -> object:
        called = f"reference {self.reference} on {thing}"
        if self.way == "tensors":
            tensors = [oip.Tensor(spec.name, feed[spec.name]) for spec in self._signature.inputs]
            return self._outputs(self._infer(tensors, called), called)
        if isinstance(raw, dict):
            raise _unfit(
                called, "a raw input", "named tensors, and the endpoint prepares raw inputs itself"
            )
        data = raw.encode("utf-8") if isinstance(raw, str) else raw
        if self.way == "predict":
            return self._predict(data, called)
        return self._understood(self._infer([_element(self.card.inputs[0], data)], called), called)

    def _predict(self, data: bytes, called: str) -> object:
        kind = {"content-type": "application/octet-stream"}
        reply = self._post("predict", data, kind, called)
        try:
            said = decode(reply.body, _Decision)
            answer = record_said(bytes(said.answer))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
            raise _no_message(called, f"no decision ({str(error)[:100]})") from error
        self._check_same(said.model_id, called)
        return answer

    def _infer(self, tensors: Sequence[oip.Tensor], called: str) -> oip.Answer:
        try:
            body, head = oip.write_request(tensors, binary=self.card.binary)
        except (oip.BadMessage, UnicodeDecodeError) as error:
            if self.way == "bytes":
                raise _no_binary(called) from error
            raise _unfit(called, "tensors that JSON can hold", str(error)[:100]) from error
        headers = {"content-type": "application/json"}
        if head is not None:
            headers = {
                "content-type": "application/octet-stream",
                "inference-header-content-length": str(head),
            }
        reply = self._post("infer", body, headers, called)
        length = reply.headers.get("inference-header-content-length")
        try:
            answer = oip.read_answer(reply.body, int(length) if length else None)
        except ValueError as error:  # BadMessage is one
            raise _no_message(called, str(error)[:200]) from error
        self._check_same(answer.parameters.get("model_id"), called)
        return answer

    def _post(self, verb: str, body: bytes, headers: Mapping[str, str], called: str) -> Reply:
        reply = self._wire.post(f"{self.card.path}/{verb}", body, headers)
        if reply.status != 200:
            raise ValidateError(
                "EDGE-VALIDATE-045",
                called,
                wanted="an answer",
                got=f"status {reply.status} {refusal(reply)}".strip(),
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

    def _understood(self, answer: oip.Answer, called: str) -> object:
        """Outputs of the model's names, or words: JSON of a decision, or a bare label."""
        names = {tensor.name for tensor in answer.outputs}
        if {spec.name for spec in self._signature.outputs} <= names:
            return self._outputs(answer, called)
        words = [t.array for t in answer.outputs if t.array.dtype.kind == "O" and t.array.size == 1]
        if len(answer.outputs) != 1 or not words:
            wanted = [spec.name for spec in self._signature.outputs]
            raise _unfit(called, f"outputs {wanted}, or one BYTES output", f"{sorted(names)}")
        return from_words(bytes(words[0].reshape(-1)[0]))

    def _outputs(self, answer: oip.Answer, called: str) -> Feed:
        given = {tensor.name: tensor.array for tensor in answer.outputs}
        found = {}
        for spec in self._signature.outputs:
            array = given.get(spec.name)
            if array is None or array.dtype.kind != np.dtype(spec.dtype).kind:
                got = "none" if array is None else f"{array.dtype} {list(array.shape)}"
                raise _unfit(called, f"output {spec.name!r} as {spec.dtype}", got)
            if array.ndim != len(spec.shape):  # whether [4] is [1, 4] or [4, 1] is a guess
                wanted = f"output {spec.name!r} as {spec.dtype} {list(spec.shape)}"
                raise _unfit(called, wanted, f"{array.dtype} {list(array.shape)}")
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
                    raise _unfit(called, wanted, got)
            if by_name and kind == "input":
                raise _unfit(
                    called, f"inputs {[s.name for s in specs]}", f"{sorted(by_name)} as well"
                )


def _way(card: Card, medium: str) -> Way:
    if medium == "tensors":
        return "tensors"
    if card.medium == medium:
        return "predict"
    sizes = {size for port in card.inputs for size in port.shape}
    if [port.datatype for port in card.inputs] == ["BYTES"] and sizes <= {-1, 1}:
        return "bytes"
    return "tensors"


def _fits(spec: TensorSpec, port: Port, *, exact: bool) -> bool:
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


def _shown(port: Port) -> str:
    return f"{port.datatype} {list(port.shape)}"


def _element(port: Port, data: bytes) -> oip.Tensor:
    array = np.empty((1,) * max(1, len(port.shape)), object)
    array.reshape(-1)[0] = data
    return oip.Tensor(port.name, array)


def _unfit(called: str, wanted: str, got: str) -> ValidateError:
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


def _no_message(called: str, got: str) -> ValidateError:
    return ValidateError(
        "EDGE-VALIDATE-042",
        called,
        wanted="an answer of the Open Inference Protocol",
        got=got,
        hint="see what answers at that address: curl URL/v2",
    )
