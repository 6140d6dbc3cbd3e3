"""What one request asks of a model, done in a worker's thread.

Read, run (alone or in a batch with others), write.

Reading a JSON of numbers or decoding a photo takes milliseconds: none of it is done in the event
loop, where every other request would wait for it.

Dynamic batching, by which requests that came together go through the model together, is off
unless asked for: on a processor a batch gains at most a tenth and makes every answer wait for
the slowest. On a GPU it is what makes it pay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgeserve import oip
from edgeserve.processing import Raw
from edgeserve.serve.admission import JobResult
from edgeserve.serve.inflight import InflightBytes
from edgeserve.serve.loaded_model import LoadedModel
from edgeserve.serve.request_errors import RequestRejected, rejected
from edgeserve.serve.telemetry import RequestTimes
from edgeserve.types.base import encode
from edgeserve.types.records import Tensors

Arrays = dict[str, np.ndarray]
#: How a feed is run: by the worker itself, or together with those of others.
RunBatch = Callable[[Arrays], Arrays]

#: An input of this name and of datatype BYTES holds raw inputs, one an element.
RAW = "raw"
#: The output that answers it: JSON of one record an element.
DECISION = "decision"


@dataclass(frozen=True)
class InferenceResult:
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
    times: RequestTimes
    samples: int
    shared: int = 1


def infer(
    hosted: LoadedModel,
    body: bytes | bytearray,
    head: int | None,
    inflight: InflightBytes,
    run: RunBatch | None = None,
) -> InferenceResult:
    """Answer an inference request of the protocol.

    Raises:
        RequestRejected: EDGE-SERVE-010, the body is no such request; -028, what it becomes has no
            room.
        EdgeError: the model's own: EDGE-INPUT-... for what does not fit its signature.
    """
    start = time.perf_counter()
    try:
        # Raw inputs have a name of their own, and their size has its limit in that of the body.
        most = {RAW: 1 << 16} | hosted.most
        values = oip.count_values(body, head, most)
        copies = 2 if head is None else 1  # of a text: what is in it, and its tensors
        with inflight.holding(copies * len(body) + oip.VALUE_BYTES * values):
            request = oip.read_request(body, head, most, values)
            return _infer(hosted, request, start, run)
    except oip.BadMessage as error:
        raise protocol_error(error) from error


def _infer(
    hosted: LoadedModel, request: oip.InferRequest, start: float, run: RunBatch | None
) -> InferenceResult:
    answer, times, samples = answer_request(hosted, request, start, run)
    binary = {name: request.binary for name in (tensor.name for tensor in answer.outputs)}
    binary |= {wanted.name: wanted.binary for wanted in request.wanted}
    written = time.perf_counter()
    made, length = oip.write_response(answer, binary)
    after = times.after + time.perf_counter() - written
    return InferenceResult(made, length, replace(times, after=after), samples)


def answer_request(
    hosted: LoadedModel, request: oip.InferRequest, start: float, run: RunBatch | None = None
) -> tuple[oip.InferResponse, RequestTimes, int]:
    """The answer to a request that is read already (REST and gRPC alike)."""
    if request.parameters.get("sequence_id"):
        got = "models here keep no state"
        raise rejected("EDGE-SERVE-011", "parameter sequence_id", "", got)
    if [tensor.name for tensor in request.inputs] == [RAW] and RAW not in hosted.most:
        outputs, times, samples = _raw_outputs(hosted, request.inputs[0], start)
    else:
        feed = request_feed(hosted, request)
        began = time.perf_counter()
        found = run(feed) if run else _run(hosted, feed)
        ended = time.perf_counter()
        outputs = [oip.Tensor(name, array) for name, array in found.items()]
        times = RequestTimes(before=began - start, ran=ended - began)
        samples = _sample_count(hosted, feed)
    parameters = {"model_id": hosted.model_id}
    chosen = _requested_outputs(outputs, request)
    response = oip.InferResponse(hosted.name, hosted.version, chosen, request.id, parameters)
    return response, times, samples


def predict(
    hosted: LoadedModel, raw: bytes | bytearray, inflight: InflightBytes
) -> InferenceResult:
    """Answer one raw input (a photo, a text, a sound) with the task's record, as JSON.

    Raises:
        RequestRejected: EDGE-SERVE-028, no room for it.
        EdgeError: EDGE-INPUT-..., the bytes are no such input.
    """
    start = time.perf_counter()
    with inflight.holding(len(raw)):
        records, times = raw_answers(hosted, [bytes(raw)])
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
    before = times.before + written - start - times.total
    times = replace(times, before=before, after=times.after + ended - written)
    return InferenceResult(body, None, times, 1)


def raw_answers(hosted: LoadedModel, raws: list[Raw]) -> tuple[list[Any], RequestTimes]:
    """Records of raw inputs, in order, and where the time went."""
    if hosted.medium == "tensors":
        got = "a raw input, and the bundle holds no processing for one"
        hint = f"POST /v2/models/{hosted.name}/infer takes its tensors"
        raise rejected("EDGE-SERVE-019", f"model {hosted.name}", "named tensors", got, hint=hint)
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
    return found, RequestTimes(before=before, ran=ran, after=after)


def _raw_outputs(
    hosted: LoadedModel, tensor: oip.Tensor, start: float
) -> tuple[list[oip.Tensor], RequestTimes, int]:
    raws = list(tensor.array.reshape(-1)) if tensor.array.dtype.kind == "O" else []
    if not raws:
        raise rejected("EDGE-SERVE-011", "input raw", "", "it holds no BYTES elements")
    records, times = raw_answers(hosted, raws)
    records_json = np.empty(len(records), object)
    records_json[:] = [encode(_jsonable(record)) for record in records]
    before = max(0.0, time.perf_counter() - start - times.ran - times.after)
    return [oip.Tensor(DECISION, records_json)], replace(times, before=before), len(raws)


def _jsonable(record: object) -> object:
    """A record as it is; named tensors as lists."""
    return dict(record) if isinstance(record, Tensors) else record


def request_feed(hosted: LoadedModel, request: oip.InferRequest) -> Arrays:
    """The feed that a request holds, of the signature's dtypes and shapes.

    Raises:
        EdgeError: EDGE-INPUT-..., it does not fit the signature.
    """
    given = {tensor.name: tensor.array for tensor in request.inputs}
    with hosted.wrapper() as wrapper:
        return wrapper.engine.check(given)


def _run(hosted: LoadedModel, feed: Arrays) -> Arrays:
    with hosted.wrapper() as wrapper:
        return wrapper.engine.run(feed)


def _sample_count(hosted: LoadedModel, feed: Arrays) -> int:
    first = next(iter(feed.values()))
    return len(first) if hosted.manifest.signature.batch_dim and first.ndim else 1


def _requested_outputs(
    outputs: list[oip.Tensor], request: oip.InferRequest
) -> tuple[oip.Tensor, ...]:
    if not request.wanted:
        return tuple(outputs)
    by_name = {tensor.name: tensor for tensor in outputs}
    for wanted in request.wanted:
        if wanted.name not in by_name:
            got = f"the model has no such output but {', '.join(by_name)}"
            raise rejected("EDGE-SERVE-011", f"output {wanted.name[:60]!r}", "", got)
    return tuple(by_name[wanted.name] for wanted in request.wanted)


def protocol_error(error: oip.BadMessage) -> RequestRejected:
    """What the sender of a message is told that is none of the protocol."""
    wanted = "a message of the Open Inference Protocol"
    return rejected("EDGE-SERVE-010", "request", wanted, str(error))


_READERS = 64


@dataclass
class _BatchItem:
    """One request on its way: its feed, what it may be joined with, and where its answer goes."""

    feed: Arrays
    rows: int
    deadline: float
    answer: asyncio.Future[tuple[Arrays, float, float, int]]


@dataclass
class _OpenBatch:
    """A batch that still takes more."""

    items: list[_BatchItem] = field(default_factory=list)
    rows: int = 0


class DynamicBatcher:
    """Joins requests of one model and of like shapes.

    Args:
        most: Samples in a run at most; 1: no batching.
        delay: Seconds that the first of a batch waits for others.
    """

    def __init__(self, most: int, delay: float) -> None:
        self._most, self._delay = most, delay
        self._open: dict[tuple[object, ...], _OpenBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # A thread reads a request and waits for its batch: as many as may wait at a time.
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="edgeserve-read")

    def applies(self, hosted: LoadedModel) -> bool:
        """Whether requests of this model are joined at all."""
        sign = hosted.manifest.signature
        return self._most > 1 and sign.batch_dim is not None and sign.dims[sign.batch_dim][1] > 1

    async def infer(
        self,
        hosted: LoadedModel,
        body: bytes | bytearray,
        head: int | None,
        inflight: InflightBytes,
        deadline: float,
    ) -> JobResult[InferenceResult]:
        """Answer an inference request, its run shared with others.

        Raises:
            RequestRejected: as `edgeserve.serve.inference.infer`, and by the queue.
        """
        hosted.admission.admit(deadline)
        loop = asyncio.get_running_loop()
        came = time.monotonic()
        fed: Future[Arrays] = Future()
        ran: Future[tuple[Arrays, float, float, int]] = Future()

        def run(feed: Arrays) -> Arrays:
            """Called in a thread that reads the request; the batch runs in one of the queue's."""
            fed.set_result(feed)
            return ran.result()[0]

        job = loop.run_in_executor(self._readers, infer, hosted, body, head, inflight, run)
        waiting = asyncio.wrap_future(fed)
        both: set[asyncio.Future[Any]] = {job, waiting}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            return JobResult(await job, 0.0, time.monotonic() - came)  # it never came to a run
        try:
            found = await self._join(hosted, waiting.result(), deadline)
        except BaseException as error:
            ran.set_exception(error)
            await asyncio.wait({job})
            job.exception()
            raise
        ran.set_result(found)
        done: InferenceResult = await job
        _, queued, worked, shared = found
        times = replace(done.times, ran=worked)
        return JobResult(replace(done, times=times, shared=shared), queued, worked)

    async def _join(
        self, hosted: LoadedModel, feed: Arrays, deadline: float
    ) -> tuple[Arrays, float, float, int]:
        key = (id(hosted), *((name, x.shape[1:]) for name, x in feed.items()))
        rows = len(next(iter(feed.values())))
        item = _BatchItem(feed, rows, deadline, asyncio.get_running_loop().create_future())
        sign = hosted.manifest.signature
        limit = min(self._most, sign.dims[str(sign.batch_dim)][1])
        batch = self._open.get(key)
        if batch is not None and batch.rows + rows > limit:
            self._close(hosted, key)
            batch = None
        if batch is None:
            batch = self._open[key] = _OpenBatch()
            asyncio.get_running_loop().call_later(self._delay, self._due, hosted, key, batch)
        batch.items.append(item)
        batch.rows += rows
        if batch.rows >= limit:
            self._close(hosted, key)
        return await item.answer

    def _due(self, hosted: LoadedModel, key: tuple[object, ...], batch: _OpenBatch) -> None:
        if self._open.get(key) is batch:
            self._close(hosted, key)

    def _close(self, hosted: LoadedModel, key: tuple[object, ...]) -> None:
        batch = self._open.pop(key)
        task = asyncio.ensure_future(self._go(hosted, batch.items))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _go(self, hosted: LoadedModel, items: list[_BatchItem]) -> None:
        """Run a closed batch; whatever goes wrong goes wrong for each of its requests."""
        feed = {name: np.concatenate([item.feed[name] for item in items]) for name in items[0].feed}
        try:
            deadline = max(item.deadline for item in items)
            ran = await hosted.admission.run(lambda: _run(hosted, feed), deadline)
        except BaseException as error:
            for item in items:
                if not item.answer.done():
                    item.answer.set_exception(error)
            return
        start = 0
        for item in items:
            rows = slice(start, start + item.rows)
            start += item.rows
            piece = {name: y[rows] for name, y in ran.result.items()}
            if not item.answer.done():
                item.answer.set_result((piece, ran.queued, ran.worked, len(items)))
