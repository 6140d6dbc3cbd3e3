"""`Service`: what the endpoint does, whichever way it is asked: REST and gRPC share it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from edgeserve import __version__, oip
from edgeserve.errors import InputError
from edgeserve.serve import inference
from edgeserve.serve.admission import JobResult, LoopLag
from edgeserve.serve.inference import DynamicBatcher
from edgeserve.serve.inflight import InflightBytes
from edgeserve.serve.loaded_model import LoadedModel
from edgeserve.serve.options import MB, ServeOptions
from edgeserve.serve.repository import Repository
from edgeserve.serve.request_errors import RequestRejected, rejected, rejection_of
from edgeserve.serve.telemetry import Log, Metrics, RequestTimes, Traces
from edgeserve.types.tensors import TensorSpec

T = TypeVar("T")

EXTENSIONS = (
    "binary_tensor_data",
    "statistics",
    "model_repository",
    "model_repository(unload_dependents)",
)


class Service:
    """Answers questions about models, and questions to them.

    Attributes:
        draining: Set once the endpoint is on its way out.
        inflight: The bytes that requests make it hold, whichever way they came.
    """

    def __init__(
        self, options: ServeOptions, repository: Repository, metrics: Metrics, log: Log
    ) -> None:
        self.options, self.repository, self.metrics, self.log = options, repository, metrics, log
        self.draining = False
        self.inflight = InflightBytes(options.inflight_mb * MB)
        self.lag = LoopLag()
        self.traces = Traces()
        self._batcher = DynamicBatcher(options.batch, options.batch_delay_ms / 1e3)

    @property
    def ready(self) -> bool:
        """Whether requests should be sent here."""
        return not self.draining and self.repository.ready

    def model_ready(self, name: str, version: str | None = None) -> bool:
        """Whether this model can be asked (RequestRejected: EDGE-SERVE-017)."""
        place = self.repository.place(name, version)
        loadable = place.hosted is not None or (self.options.lazy and place.wanted)
        return not self.draining and loadable

    def metadata(self) -> dict[str, Any]:
        """Of the server."""
        return {"name": "edgeserve", "version": __version__, "extensions": list(EXTENSIONS)}

    async def model_metadata(self, name: str, version: str | None = None) -> dict[str, Any]:
        """Of a model: what the source's signature says, and the model's identity."""
        async with self.repository.use(name, version) as (hosted, _):
            sign = hosted.manifest.signature
            return {
                "name": hosted.name,
                "versions": [hosted.version],
                "platform": f"{hosted.ran_on.runtime.name}_{hosted.ran_on.format}",
                "inputs": [_spec(spec) for spec in sign.inputs],
                "outputs": [_spec(spec) for spec in sign.outputs],
                "parameters": {
                    "model_id": hosted.model_id,
                    "task": hosted.manifest.task,
                    "medium": hosted.medium,
                    "precision": hosted.ran_on.precision,
                    "proof": hosted.ran_on.proof,
                },
            }

    async def model_config(self, name: str) -> dict[str, Any]:
        """As Triton's clients ask for it."""
        async with self.repository.use(name) as (hosted, _):
            sign = hosted.manifest.signature
            high = sign.dims[sign.batch_dim][1] if sign.batch_dim else 0
            return {
                "name": hosted.name,
                "platform": hosted.ran_on.runtime.name,
                "backend": hosted.ran_on.format,
                "max_batch_size": high,
                "input": [_config(s, bool(high)) for s in sign.inputs],
                "output": [_config(s, bool(high)) for s in sign.outputs],
            }

    def statistics(self, name: str | None = None, version: str | None = None) -> dict[str, Any]:
        """Of one model, or of all that are loaded."""
        place = self.repository.place(name, version) if name else None
        shown = self.repository.loaded() if place is None else [h for h in (place.hosted,) if h]
        return {"model_stats": [h.figures.snapshot(h.name, h.version) for h in shown]}

    async def load(self, name: str, parameters: object = None) -> None:
        """Load or reload (RequestRejected: EDGE-SERVE-024 not allowed, -025 a configuration)."""
        self._controlled()
        if parameters:
            wanted, got = "a load without parameters", "a configuration or files from outside"
            raise rejected("EDGE-SERVE-025", f"model {name}", wanted, got)
        await self.repository.load(name)

    async def unload(self, name: str) -> None:
        """Evict (RequestRejected: EDGE-SERVE-024 not allowed)."""
        self._controlled()
        await self.repository.unload(name)

    def _controlled(self) -> None:
        if not self.options.controllable:
            got = "not allowed on this endpoint"
            raise rejected("EDGE-SERVE-024", "load and unload", "", got)

    def precheck(self, name: str, deadline: float) -> None:
        """Reject before the body is read a request that would be rejected after."""
        place = self.repository.places.get(name)
        if place and place.hosted:
            self.lag.watch()
            place.hosted.admission.admit(deadline - self.lag.seconds)

    async def infer(
        self,
        request_id: str,
        name: str,
        version: str | None,
        body: bytes | bytearray,
        head: int | None,
        deadline: float,
    ) -> tuple[inference.InferenceResult, LoadedModel, float]:
        """Answer an inference request in the protocol's bytes."""
        async with self.repository.use(name, version) as (hosted, cold):
            if self._batcher.applies(hosted):
                running = self._batcher.infer(hosted, body, head, self.inflight, deadline)
            else:
                running = hosted.admission.run(
                    lambda: inference.infer(hosted, body, head, self.inflight), deadline
                )
            ran = await self._run(request_id, hosted, running)
            return self._counted(ran, hosted), hosted, cold

    async def predict(
        self,
        request_id: str,
        name: str,
        version: str | None,
        body: bytes | bytearray,
        deadline: float,
    ) -> tuple[inference.InferenceResult, LoadedModel, float]:
        """Answer one raw input."""
        async with self.repository.use(name, version) as (hosted, cold):
            running = hosted.admission.run(
                lambda: inference.predict(hosted, body, self.inflight), deadline
            )
            ran = await self._run(request_id, hosted, running)
            return self._counted(ran, hosted), hosted, cold

    async def ask(
        self,
        request_id: str,
        name: str,
        version: str | None,
        read: Callable[[LoadedModel], oip.InferRequest],
        write: Callable[[oip.InferResponse], T],
        deadline: float,
    ) -> tuple[T, LoadedModel, float]:
        """Answer a request of another protocol; the thread converts it and its answer."""
        async with self.repository.use(name, version) as (hosted, cold):

            def job() -> tuple[T, inference.InferenceResult]:
                start = time.perf_counter()
                answer, times, samples = inference.answer_request(hosted, read(hosted), start)
                written = time.perf_counter()
                made = write(answer)
                after = times.after + time.perf_counter() - written
                times = dataclasses.replace(times, after=after)
                return made, inference.InferenceResult(b"", None, times, samples)

            ran = await self._run(request_id, hosted, hosted.admission.run(job, deadline))
            made, done = ran.result
            self._counted(JobResult(done, ran.queued, ran.worked), hosted)
            return made, hosted, cold

    async def _run(
        self, request_id: str, hosted: LoadedModel, running: Awaitable[JobResult[T]]
    ) -> JobResult[T]:
        """Await a job of a model; a failure is counted, logged and told as far as it may be."""
        began = time.monotonic()
        try:
            return await running
        except Exception as error:
            hosted.figures.fail(time.monotonic() - began)
            if not isinstance(error, (RequestRejected, InputError)):
                self.log.fault(request_id, hosted.name, error)
            if isinstance(error, RequestRejected):
                raise
            raise rejection_of(error, hosted.name) from error

    def _counted(
        self, ran: JobResult[inference.InferenceResult], hosted: LoadedModel
    ) -> inference.InferenceResult:
        times: RequestTimes = dataclasses.replace(ran.result.times, queued=ran.queued)
        hosted.figures.add(times, ran.result.samples, ran.result.shared)
        self.metrics.answered(hosted.name, times)
        attributes = {"edgeserve.model": hosted.name, "edgeserve.model_id": hosted.model_id}
        self.traces.parts(times, **attributes)
        self.metrics.batch.labels(hosted.name).observe(ran.result.shared)
        return dataclasses.replace(ran.result, times=times)


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "datatype": oip.datatype_of(spec.dtype),
        "shape": [-1 if isinstance(size, str) else size for size in spec.shape],
    }


def _config(spec: TensorSpec, batched: bool) -> dict[str, Any]:
    shape = spec.shape[1:] if batched else spec.shape
    return {
        "name": spec.name,
        "data_type": f"TYPE_{oip.datatype_of(spec.dtype).replace('BYTES', 'STRING')}",
        "dims": [-1 if isinstance(size, str) else size for size in shape],
    }
