"""What one request asks of a model, done in a worker's thread: read, run, write.

Reading a JSON of numbers or decoding a photo takes milliseconds: none of it is done in the event
loop, where every other request would wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgeserve import oip
from edgeserve.errors import ServeError
from edgeserve.processing import Raw
from edgeserve.serve.figures import Times
from edgeserve.serve.hosted import Hosted
from edgeserve.serve.trouble import Refused, refused
from edgeserve.types.base import encode
from edgeserve.types.records import Tensors

__all__ = [
    "Done",
    "RunBatch",
    "answer_of",
    "feed_of",
    "infer",
    "not_protocol",
    "predict",
    "raw_answers",
]

Arrays = dict[str, np.ndarray]
#: How a feed is run: by the worker itself, or together with those of others.
RunBatch = Callable[[Arrays], Arrays]

#: An input of this name and of datatype BYTES holds raw inputs, one an element.
RAW = "raw"
#: The output that answers it: JSON of one record an element.
DECISION = "decision"


@dataclass(frozen=True)
class Done:
    """A request's answer.

    Attributes:
        body: Of the response.
        head: Length of its JSON, where binary tensors follow.
        times: Where the time went; ``queued`` is not known here.
        samples: Samples answered.
        shared: Requests that shared its run.
    """

    body: bytes
    head: int | None
    times: Times
    samples: int
    shared: int = 1


def infer(hosted: Hosted, body: bytes, head: int | None, run: RunBatch | None = None) -> Done:
    """Answer an inference request of the protocol.

    Raises:
        Refused: EDGE-SERVE-010, the body is no such request.
        EdgeError: the model's own: EDGE-INPUT-... for what does not fit its signature.
    """
    start = time.perf_counter()
    try:
        # Raw inputs have a name of their own, and their size has its limit in that of the body.
        request = oip.read_request(body, head, {RAW: 1 << 16} | hosted.most)
    except oip.BadMessage as error:
        raise not_protocol(error) from error
    answer, times, samples = answer_of(hosted, request, start, run)
    binary = {name: request.binary for name in (tensor.name for tensor in answer.outputs)}
    binary |= {wanted.name: wanted.binary for wanted in request.wanted}
    written = time.perf_counter()
    try:
        made, length = oip.write_answer(answer, binary)
    except oip.BadMessage as error:
        raise not_protocol(error) from error
    after = times.after + time.perf_counter() - written
    return Done(made, length, replace(times, after=after), samples)


def answer_of(
    hosted: Hosted, request: oip.Request, start: float, run: RunBatch | None = None
) -> tuple[oip.Answer, Times, int]:
    """The answer to a request that is read already (REST and gRPC alike)."""
    if request.parameters.get("sequence_id"):
        raise refused(400, _not_offered("parameter sequence_id", "models here keep no state"))
    if [tensor.name for tensor in request.inputs] == [RAW] and RAW not in hosted.most:
        outputs, times, samples = _raw(hosted, request.inputs[0], start)
    else:
        feed = feed_of(hosted, request)
        began = time.perf_counter()
        found = run(feed) if run else _run(hosted, feed)
        ended = time.perf_counter()
        outputs = [oip.Tensor(name, array) for name, array in found.items()]
        times = Times(before=began - start, ran=ended - began)
        samples = _samples(hosted, feed)
    parameters = {"model_id": hosted.model_id}
    chosen = _chosen(outputs, request)
    return oip.Answer(hosted.name, hosted.version, chosen, request.id, parameters), times, samples


def predict(hosted: Hosted, raw: bytes) -> Done:
    """Answer one raw input (a photo, a text, a sound) with the task's record, as JSON.

    Raises:
        EdgeError: EDGE-INPUT-..., the bytes are no such input.
    """
    start = time.perf_counter()
    records, times = raw_answers(hosted, [raw])
    written = time.perf_counter()
    whole = {
        "model_name": hosted.name,
        "model_version": hosted.version,
        "model_id": hosted.model_id,
        "answer": _jsonable(records[0]),
        "ran_on": hosted.ran_on,
    }
    body = encode(whole)
    ended = time.perf_counter()
    times = Times(
        before=times.before + written - start - times.total,
        ran=times.ran,
        after=times.after + ended - written,
    )
    return Done(body, None, times, 1)


def raw_answers(hosted: Hosted, raws: list[Raw]) -> tuple[list[Any], Times]:
    """Records of raw inputs, in order, and where the time went."""
    if hosted.medium == "tensors":
        raise refused(
            400,
            ServeError(
                "EDGE-SERVE-019",
                f"model {hosted.name}",
                wanted="named tensors",
                got="a raw input, and the bundle holds no processing for one",
                hint=f"POST /v2/models/{hosted.name}/infer takes its tensors",
            ),
        )
    found: list[Any] = []
    before = ran = after = 0.0
    with hosted.wrapper() as wrapper:
        for raw in raws:
            at = time.perf_counter()
            feed = wrapper.engine.feed(raw)
            fed = time.perf_counter()
            outputs = wrapper.engine.run(feed)
            answered = time.perf_counter()
            found.append(wrapper.engine.finish(outputs, feed)[0])
            before, ran = before + fed - at, ran + answered - fed
            after += time.perf_counter() - answered
    return found, Times(before=before, ran=ran, after=after)


def _raw(hosted: Hosted, tensor: oip.Tensor, start: float) -> tuple[list[oip.Tensor], Times, int]:
    raws = list(tensor.array.reshape(-1)) if tensor.array.dtype.kind == "O" else []
    if not raws:
        raise refused(400, _not_offered("input raw", "it holds no BYTES elements"))
    records, times = raw_answers(hosted, raws)
    said = np.empty(len(records), object)
    said[:] = [encode(_jsonable(record)) for record in records]
    before = max(0.0, time.perf_counter() - start - times.ran - times.after)
    outputs = [oip.Tensor(DECISION, said)]
    return outputs, Times(before=before, ran=times.ran, after=times.after), len(raws)


def _jsonable(record: object) -> object:
    """A record as it is; named tensors as lists."""
    return dict(record) if isinstance(record, Tensors) else record


def feed_of(hosted: Hosted, request: oip.Request) -> Arrays:
    """The feed that a request holds, of the signature's dtypes and shapes.

    Raises:
        EdgeError: EDGE-INPUT-..., it does not fit the signature.
    """
    given = {tensor.name: tensor.array for tensor in request.inputs}
    with hosted.wrapper() as wrapper:
        return wrapper.engine.check(given)


def _run(hosted: Hosted, feed: Arrays) -> Arrays:
    with hosted.wrapper() as wrapper:
        return wrapper.engine.run(feed)


def _samples(hosted: Hosted, feed: Arrays) -> int:
    first = next(iter(feed.values()))
    return len(first) if hosted.manifest.signature.batch_dim and first.ndim else 1


def _chosen(outputs: list[oip.Tensor], request: oip.Request) -> tuple[oip.Tensor, ...]:
    if not request.wanted:
        return tuple(outputs)
    by_name = {tensor.name: tensor for tensor in outputs}
    for wanted in request.wanted:
        if wanted.name not in by_name:
            told = f"the model has no such output but {', '.join(by_name)}"
            raise refused(400, _not_offered(f"output {wanted.name[:60]!r}", told))
    return tuple(by_name[wanted.name] for wanted in request.wanted)


def _not_offered(thing: str, got: str) -> ServeError:
    return ServeError(
        "EDGE-SERVE-011",
        thing,
        got=got,
        hint="the model's metadata names its inputs and outputs, docs/serve.md what is offered",
    )


def not_protocol(error: oip.BadMessage) -> Refused:
    """What the sender of a message is told that is none of the protocol."""
    told = ServeError(
        "EDGE-SERVE-010",
        "request",
        wanted="a message of the Open Inference Protocol",
        got=str(error),
        hint="docs/serve.md shows one; clients of the protocol write them for you",
    )
    return refused(400, told)
