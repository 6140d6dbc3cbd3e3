"""`Wrapper`: a model behind one call, on the artifact that is proven best on this very device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, overload

import msgspec
import numpy as np

from edgeserve import __version__, backends
from edgeserve.backends.session import first_line
from edgeserve.bundle import open_model
from edgeserve.bundle.manifest import check_wrapper
from edgeserve.errors import EdgeError, InputError, WrapperError
from edgeserve.files import Closing
from edgeserve.machine import coded, machine_error
from edgeserve.processing import Raw, Sound
from edgeserve.types.artifact import Artifact
from edgeserve.types.manifest import Manifest
from edgeserve.types.profile import Profile
from edgeserve.types.records import RanOn, Record, Tensors, unverified_origin, with_ran_on
from edgeserve.wrapper.certificate import Certificate, certify
from edgeserve.wrapper.engine import Engine, processor
from edgeserve.wrapper.plans import device_digest, parse_constraints, plan_tiers
from edgeserve.wrapper.prober import Prober
from edgeserve.wrapper.selector import Selection, select

if TYPE_CHECKING:
    from edgeserve.wrapper.fallback.policy import Fallback
    from edgeserve.wrapper.fallback.router import FallbackRouter


#: What `Wrapper.predict` gives for one input.
Answer = Record | Tensors
#: Named model tensors, as a caller gives them.
Named = Mapping[str, np.ndarray]


class Wrapper(Closing):
    """A model from a bundle or workspace, behind one call.

    Opening it picks the artifact, delegate and number of threads: of those that the gate passed
    (then the degraded ones, then the unproven) the fastest that answers the bundle's golden cases
    as the server does, on this device. What was found out is kept per user, so that only the first
    start pays for it. A Wrapper may be used from several threads at once.

    Attributes:
        manifest: What the bundle holds: signature, labels, task, version, ...
        ran_on: What answers here; every answer carries it too.
        threads: Threads that one run may use.
        trial_memory: Bytes that it took in a trial in a process of its own; 0: not known.
    """

    def __init__(
        self,
        bundle: str | Path,
        format: str | None = None,
        precision: str | None = None,
        delegate: str | None = None,
        strict: bool = False,
        threads: int | None = None,
        deadline: float | None = None,
        fallback: object = None,
        profile: Profile | str | None = None,
    ) -> None:
        """Open ``bundle`` and prove what will run.

        Args:
            bundle: A ``.edge`` file, or a workspace folder.
            format: Only this format (onnx, tflite, coreml, or another spelling of them).
            precision: Only this precision (fp32, fp16, w8, ...).
            delegate: Only this delegate ("cpu", "cuda", ...).
            strict: Raise rather than take a second choice, or one that cannot be proven here.
            threads: Exactly so many threads; None: what is fastest here.
            deadline: Seconds from a call to its answer, in place of the contract's; with a fallback
                only.
            fallback: A contract with an endpoint (`edgeserve.wrapper.fallback.Fallback`), an
                endpoint's URL, or the path of a contract's TOML file.
            profile: A device profile or its name: only what is worth trying on such a device.

        Raises:
            BundleError: the bundle breaks its rules, asks for a newer edgeserve, or its bytes do
                not match their hashes.
            ProcessingError: its task or one of its processing steps is not in this version, or
                needs a package that is not installed.
            WrapperError: EDGE-WRAPPER-001 nothing can be used here, -002 an argument is not in this
                version, -003 its value is wrong, -004 strict forbids what could be used.
            FallbackError: EDGE-FALLBACK-001 to -003, -005 or -006: the contract cannot be used.
            FilesError: EDGE-FILES-001 or -007, the machine failed: nothing of it is remembered.
        """
        contract = _policy(fallback, deadline)
        self._wish = parse_constraints(
            format=format,
            precision=precision,
            delegate=delegate,
            strict=strict,
            threads=threads,
            profile=profile,
            deadline=None if contract else deadline,
        )
        with contextlib.ExitStack() as stack, coded(str(bundle)):
            self._model = stack.enter_context(open_model(bundle))
            self.manifest = self._model.manifest
            check_wrapper(self.manifest, __version__)
            self._around = processor(self._model)
            attempts = Prober(self._model, around=self._around)
            stack.callback(attempts.close)
            candidates = plan_tiers(self.manifest, self._wish, backends.get, device_digest())
            engine, unavailable = None, None
            try:
                chosen = select(self.manifest, candidates, attempts, self._wish.strict)
            except EdgeError as error:
                stands_in = isinstance(error, WrapperError) or machine_error(error, "")
                if contract is None or not stands_in:
                    raise
                unavailable = ("proof-failed" if candidates.tiers else "missing", error)
                self.threads, self.trial_memory = 0, 0
                self.ran_on = unverified_origin(self.manifest.model_id)
            else:
                stack.callback(chosen.session.close)
                self.threads = chosen.session.threads
                self.trial_memory = attempts.memory(chosen.candidate)
                self.ran_on = _ran_on(chosen, self.manifest, attempts.trouble)
                engine = Engine(chosen.session, self._around, self.manifest.signature)
            self._make_router = partial(_router, contract, self, unavailable)
            self._router, self._pid = self._make_router(stack), os.getpid()
            self._closing = stack.pop_all()
        self._engine: Engine | None = engine
        self._closed = False

    def __reduce__(self) -> NoReturn:
        """Refuse ``copy`` and ``pickle``: closing a copy would close what both hold."""
        wanted, got = "one Wrapper a process, shared by its threads", "a copy or a pickle of one"
        hint = "open the bundle again, in the process that predicts"
        raise WrapperError("EDGE-WRAPPER-009", "Wrapper", wanted=wanted, got=got, hint=hint)

    def close(self) -> None:
        """Let go of the runtime and the bundle; closing twice is fine."""
        self._engine, self._closed = None, True
        self._closing.close()

    # A record is Any to type checkers: which one it is depends on the bundle's task, and a union
    # would make every `result.label` an error.
    @overload
    def predict(self, x: Named) -> Tensors: ...
    @overload
    def predict(self, x: list[Any] | tuple[Any, ...], rate: int | None = None) -> list[Any]: ...
    @overload
    def predict(self, x: Raw, rate: int | None = None) -> Any: ...
    def predict(self, x: Any, rate: int | None = None) -> Any:
        """Answer one input, or a list of them.

        Args:
            x: For a model of pictures an encoded picture as bytes, file object or path; a PIL
                image; an ndarray, HWC uint8 RGB. For one of texts a str, or bytes in UTF-8. For one
                of sounds a WAV as bytes, file object or path; an ndarray, mono float32 samples [n],
                with ``rate``. For any a dict of named model tensors of the signature's dtypes and
                shapes, batch axis included, which goes to the model as it is. A list holds any of
                the former, or dicts.
            rate: Samples a second of the arrays in ``x``; of nothing else.

        Returns:
            The task's result record for a raw input; `Tensors` (a dict of ndarrays) for a dict of
            tensors; for a list one of these per item, in order. Each carries ``ran_on``. Batches
            go through the model together as far as the signature's ranges allow, which may change
            scores in the last bits.

        Raises:
            InputError: the input cannot be read or does not fit; within a list it says which item.
            WrapperError: EDGE-WRAPPER-005 closed, -006 a list mixes raw inputs and dicts.
            FallbackError: EDGE-FALLBACK-007, neither the device nor an endpoint could answer. With
                a fallback, items of a list are answered one by one, each within the deadline.
            WrapperError: also EDGE-WRAPPER-008, whatever else stopped the call, such as a want of
                memory.
        """
        try:
            return self._answer(with_sample_rate(x, rate, self.medium))
        except EdgeError:
            raise
        except Exception as error:  # the border to the caller, who catches errors with a code
            raise _unexpected(error) from error

    def _answer(self, x: Any) -> Any:
        if self._pid != os.getpid() and not self._closed:  # connections and locks are the parent's
            self._router, self._pid = self._make_router(self._closing), os.getpid()
        if self._router is None or self._closed:
            return self._on_device(x)
        answer = self._router.answer
        return [answer(each) for each in x] if isinstance(x, list | tuple) else answer(x)

    def _on_device(self, x: Any) -> Any:
        """Answer what `predict` takes, here."""
        engine = self.engine
        if isinstance(x, Mapping):
            return self._stamp(Tensors(engine.named(x)))
        if isinstance(x, list | tuple):
            return self._batch(engine, x)
        return self._stamp(engine.one(x))

    @property
    def engine(self) -> Engine:
        """What `predict` is made of, for whoever times its parts or joins requests of many callers.

        Raises:
            WrapperError: EDGE-WRAPPER-005, the Wrapper is closed.
        """
        if self._engine is None:
            raise _closed_error()
        return self._engine

    @property
    def medium(self) -> str:
        """What a raw input is: "image", "text", "audio"; "tensors" where there is none."""
        return self._around.medium

    def verify(self) -> Certificate:
        """Run the golden proof now, on each artifact that can run here, and certify the result.

        Raises:
            WrapperError: EDGE-WRAPPER-005, the Wrapper is closed.
            BundleError: the bundle's bytes do not match their hashes.
        """
        if self._closed:
            raise _closed_error()
        return certify(self._model, self._around, self._wish.threads)

    def _batch(self, engine: Engine, items: Sequence[Any]) -> list[Answer]:
        named = sum(isinstance(item, Mapping) for item in items)
        if named == 0:
            return [self._stamp(answer) for answer in engine.many(items)]
        if named == len(items):
            return [self._stamp(Tensors(outputs)) for outputs in engine.many_named(items)]
        wanted = "a list of raw inputs, or a list of dicts"
        got = f"{named} dicts among {len(items)} items"
        hint = "call predict once for each kind"
        raise WrapperError("EDGE-WRAPPER-006", "predict", wanted=wanted, got=got, hint=hint)

    def _stamp(self, answer: Answer) -> Any:
        return with_ran_on(answer, self.ran_on)


def _policy(fallback: object, deadline: float | None) -> Fallback | None:
    """The contract that is asked for, with the caller's deadline in place of its own."""
    if fallback is None:
        return None
    from edgeserve.wrapper.fallback.policy import parse_policy

    contract = parse_policy(fallback)
    if deadline is None:
        return contract
    is_number = type(deadline) in (int, float)  # what is none, the contract refuses by name
    return msgspec.structs.replace(contract, deadline_ms=1e3 * deadline if is_number else deadline)


def _router(
    contract: Fallback | None,
    wrapper: Wrapper,
    unavailable: tuple[str, EdgeError] | None,
    stack: contextlib.ExitStack,
) -> FallbackRouter | None:
    """Who decides which input an endpoint is asked about; None: there is no contract.

    Raises:
        EdgeError: nothing can run here, and the contract lets no endpoint stand in for that.
    """
    if contract is None:
        return None
    from edgeserve.wrapper.fallback.router import FallbackRouter

    local = None if unavailable else wrapper._on_device
    router = FallbackRouter(contract, wrapper.manifest, wrapper._around, local, unavailable)
    stack.callback(router.close)
    if unavailable and not (router.may_ask and {unavailable[0], "always"} & set(contract.triggers)):
        raise unavailable[1]
    return router


def _ran_on(chosen: Selection, manifest: Manifest, trouble: str) -> RanOn:
    artifact = chosen.candidate.artifact
    return RanOn(
        where="device",
        format=artifact.format,
        precision=artifact.precision,
        sha256=artifact.sha256,
        runtime=chosen.session.runtime,
        model_id=manifest.model_id,
        proof=chosen.proof,
        note="; ".join(filter(None, (_verdict_note(artifact), chosen.note, trouble))),
    )


def _verdict_note(artifact: Artifact) -> str:
    """What the caller should know of the gate's verdict; nothing when it is `pass`."""
    if artifact.verdict in (None, "pass"):
        return ""
    return f"the gate's verdict on {artifact.name} is {artifact.verdict}"


def _unexpected(error: Exception) -> WrapperError:
    """The coded error for whatever else stopped a call."""
    hint = "look at the exception behind this one (__cause__); if it is not yours, report it"
    if isinstance(error, MemoryError):
        hint = "free memory, send a smaller input, or call predict with fewer inputs at a time"
    got = first_line(error)
    return WrapperError("EDGE-WRAPPER-008", "predict", wanted="an answer", got=got, hint=hint)


def _closed_error() -> WrapperError:
    got = "one that is closed"
    hint = "predict inside the with block, or open the bundle again"
    return WrapperError("EDGE-WRAPPER-005", "Wrapper", wanted="an open one", got=got, hint=hint)


def with_sample_rate(x: Any, rate: int | None, medium: str) -> Any:
    """What ``x`` is once its arrays know their rate.

    Args:
        x: What a caller gave to `predict`: an array of samples, or a list of them.
        rate: Samples a second; None: nothing was said.
        medium: What the model takes.

    Raises:
        InputError: EDGE-INPUT-035, there is nothing here that needs one.
    """
    if rate is None:
        return x
    if medium == "audio" and isinstance(x, list | tuple):
        return [with_sample_rate(each, rate, medium) for each in x]
    if medium == "audio" and isinstance(x, np.ndarray):
        return Sound(x, rate)
    got = f"a {type(x).__name__}, for a model of {medium}"
    wanted = "an array of samples, or a list of arrays"
    hint = "leave rate= out: a WAV says its own, and nothing else has one"
    raise InputError("EDGE-INPUT-035", "rate=", wanted=wanted, got=got, hint=hint)
