"""A finished ``.onnx`` file as a source: it is itself the reference, run by ONNX Runtime.

Its bytes are copied as they are. What is known of it is read through the backend of its format, and
every claim about sizes is tried: a dynamic first axis counts as the batch because a batch of two
gives answers of two.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from edgeserve import backends
from edgeserve.backends import Graph, Session
from edgeserve.backends.onnx.inspect import dim_word
from edgeserve.backends.torch import EXAMPLES
from edgeserve.backends.versions import versions
from edgeserve.convert.onnx_checks import check_model, check_valid, data_files, read_proto
from edgeserve.convert.source import check_packages
from edgeserve.data.npz_io import write_arrays
from edgeserve.errors import BackendError, ConvertError, FilesError
from edgeserve.files import LOCAL, describe, sha256_bytes, write_atomic
from edgeserve.jobs import progress
from edgeserve.types.artifact import Artifact, FileEntry
from edgeserve.types.source import Exported, Source, Weight
from edgeserve.types.tensors import IO, DType, Signature, TensorSpec

#: Where the file and its weights lie in an export: nothing else may lie beside them.
_FOLDER = "onnx"
_MODEL = f"{_FOLDER}/model.onnx"
#: Package and the module that it brings.
_NEEDED = {"onnx": "onnx", "onnx-ir": "onnx_ir", "onnxruntime": "onnxruntime"}
_MAX_SIZE = 2**31 - 1
#: Sizes tried for dynamic axes other than the batch, until the model answers; of pictures first
#: those that people send.
_SIZES = (8, 16, 32, 48, 64, 128, 224, 256, 512, 576, 1024, 1, 2, 3)
_IMAGE_SIZES = (224, 256, 320, 512, 640, 128, 64, 48, *_SIZES)

Feed = dict[str, np.ndarray]


def export_onnx_file(source: Source, out: Path) -> Exported:
    """Take an ONNX file over into ``out``: its bytes, a signature, examples that it answers.

    Raises:
        ConvertError: EDGE-CONVERT-060 a package is missing, -064 and -065 its external data, -072
            to -075 the file cannot be used.
        FilesError: the disk is full, or a file has a name that no bundle may hold.
    """
    check_packages("an ONNX file", _NEEDED)
    path = Path(source.location)
    model = read_proto(path)
    names = data_files(model, path.parent)
    check_model(model)
    program, data = _copy_files(path, names, out)
    declared = check_valid(out / program.path, model, path.name)
    artifact = Artifact(
        format="onnx",
        precision="fp32",
        entry=program.path,
        files=_sorted(program, data),
        io=IO(inputs=(), outputs=()),  # until the file has been looked into
    )
    graph = backends.get("onnx").inspect(artifact, out)
    progress("run the model on generated examples")
    signature, examples, notes = _infer_signature(artifact, graph, out, declared)
    return Exported(
        source=source,
        program=program,
        program_data=data,
        examples=_write_examples(examples, out),
        signature=signature,
        weights=_weights(out / program.path),
        graph_sha256=_files_sha256(program, data),
        notes=("the source is an ONNX file: its examples are generated", *notes),
        tools=versions("onnx", "onnx-ir", "onnxruntime", "numpy")
        | {"python": platform.python_version()},
    )


def _copy_files(path: Path, names: list[str], out: Path) -> tuple[FileEntry, tuple[FileEntry, ...]]:
    """The file and its external data, byte by byte, under the names that it calls them by."""
    pairs = [(path, _MODEL), *((path.parent / name, f"{_FOLDER}/{name}") for name in names)]
    entries = []
    try:
        for origin, name in pairs:
            target = out / name
            LOCAL.mkdir(target.parent)
            LOCAL.unlink(target)
            LOCAL.copy(origin, target)
            entries.append(describe(out, name))
    except OSError as error:
        got = error.strerror or str(error)
        hint = "free some disk space, or choose another folder with -o"
        raise FilesError("EDGE-FILES-001", str(out), got=got, hint=hint) from error
    return entries[0], tuple(entries[1:])


def _infer_signature(
    artifact: Artifact, graph: Graph, root: Path, right: bool
) -> tuple[Signature, Feed, tuple[str, ...]]:
    """A signature that holds, examples that show it, and what of the file's own words does not.

    Args:
        artifact: The file.
        graph: What it says.
        root: The folder that it lies in.
        right: The shapes that it declares follow from its operators.
    """
    declared = IO(inputs=graph.inputs, outputs=graph.outputs)
    artifact = msgspec.structs.replace(artifact, io=declared)
    try:
        session = backends.get("onnx").load(artifact, root, threads=1)
    except BackendError as error:
        raise _unrunnable("the model", error.got) from error
    with session:
        examples, answers = _run_on_generated(session, declared)
        found = _correct_output_shapes(declared, answers, right)
        notes = tuple(
            f"output {new.name!r} has the shape {list(new.shape)}, not {list(old.shape)} as the"
            " file says"
            for old, new in zip(declared.outputs, found.outputs, strict=True)
            if old != new
        )
        declared = found
        batched = all(_free_first(spec) for spec in (*declared.inputs, *declared.outputs))
        batched = batched and _is_batched(session, declared, examples)
    name = _batch_name(declared) if batched else ""
    inputs = tuple(_with_batch_dim(spec, name) for spec in declared.inputs)
    outputs = tuple(_with_batch_dim(spec, name) for spec in declared.outputs)
    dims = {dim for spec in inputs for dim in spec.shape if isinstance(dim, str)}
    ranges = dict.fromkeys(sorted(dims), (1, _MAX_SIZE))
    return Signature(inputs=inputs, outputs=outputs, dims=ranges), examples, notes


def _correct_output_shapes(io: IO, answers: Feed, right: bool) -> IO:
    """The outputs' shapes as they come out where the file says nothing of them, or what is wrong.

    Sizes of a model with dynamic inputs stay open then: one run does not tell which are fixed.
    """
    free = any(isinstance(dim, str) for spec in io.inputs for dim in spec.shape)
    outputs = []
    for spec in io.outputs:
        got = answers[spec.name].shape
        if not (right and _fits(spec, got)):
            names = (f"{dim_word(spec.name)}_dim{i}" for i in range(len(got)))
            spec = msgspec.structs.replace(spec, shape=tuple(names) if free else got)
        outputs.append(spec)
    return IO(inputs=io.inputs, outputs=tuple(outputs))


def _fits(spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    pairs = zip(spec.shape, shape, strict=False)
    same = all(isinstance(dim, str) or dim == size for dim, size in pairs)
    return len(spec.shape) == len(shape) and same


def _free_first(spec: TensorSpec) -> bool:
    return bool(spec.shape) and isinstance(spec.shape[0], str)


def _batch_name(io: IO) -> str:
    """The first input's own name for its first axis; "batch" where it has none."""
    first = io.inputs[0]
    name = str(first.shape[0])
    return "batch" if name == f"{first.name}_dim0" else name


def _with_batch_dim(spec: TensorSpec, batch: str) -> TensorSpec:
    if not batch:
        return spec
    return msgspec.structs.replace(spec, shape=(batch, *spec.shape[1:]))


def _run_on_generated(session: Session, io: IO) -> tuple[Feed, Feed]:
    """Generated inputs that the model answers, and the answers.

    Raises:
        ConvertError: EDGE-CONVERT-075.
    """
    got = "nothing"
    for feed in _feeds(io):
        try:
            outputs = session.run(feed)
        except BackendError as error:
            got = error.got
            continue
        if not all(array.size for array in outputs.values()):
            got = "nothing in an answer"  # too small for it
            continue
        _check_answer(io, outputs)
        return feed, outputs
    raise _unrunnable("generated inputs", got)


def _feeds(io: IO) -> Iterator[Feed]:
    """Inputs of one size after another; one only where no axis but the first is free."""
    free = any(isinstance(dim, str) for spec in io.inputs for dim in spec.shape[1:])
    first = {spec.shape[0] for spec in io.inputs if _free_first(spec)}
    tried = _IMAGE_SIZES if any(_is_image(spec) for spec in io.inputs) else _SIZES
    for size in dict.fromkeys(tried) if free else _SIZES[:1]:
        rng = np.random.default_rng(0)
        sizes = {dim: 1 for dim in first if isinstance(dim, str)}
        yield {spec.name: _random_tensor(spec, sizes, size, rng) for spec in io.inputs}
        others = {d for spec in io.inputs[1:] for d in spec.shape if isinstance(d, str)}
        others -= {d for d in io.inputs[0].shape if isinstance(d, str)}
        if others - first:  # nameless dimensions of a state are its batch
            sizes |= dict.fromkeys(others, 1)
            yield {spec.name: _random_tensor(spec, sizes, size, rng) for spec in io.inputs}


def _is_image(spec: TensorSpec) -> bool:
    """[batch, 1 or 3 colours, height, width] with free sizes."""
    free = len(spec.shape) == 4 and all(isinstance(dim, str) for dim in spec.shape[2:])
    return free and spec.shape[1] in (1, 3)


def _random_tensor(
    spec: TensorSpec, sizes: Mapping[str, int], size: int, rng: np.random.Generator
) -> np.ndarray:
    """Floats in -1..1; ones for what is called a mask; other integers 0 or 1, ids of any table.

    Dimensions of one name have one size: a recurrent state has its batch on another axis.
    """
    shape = tuple(dim if isinstance(dim, int) else sizes.get(dim, size) for dim in spec.shape)
    if spec.dtype.startswith("float"):
        return rng.uniform(-1, 1, shape).astype(spec.dtype)
    if "mask" in spec.name:
        return np.ones(shape, spec.dtype)
    return rng.integers(0, 2, shape).astype(spec.dtype)


def _check_answer(io: IO, outputs: Feed) -> None:
    """What comes out has the declared type."""
    for spec in io.outputs:
        got = outputs[spec.name]
        if str(got.dtype) != spec.dtype:
            raise ConvertError(
                "EDGE-CONVERT-075",
                f"output {spec.name!r}",
                wanted=f"{spec.dtype}, as the file says",
                got=str(got.dtype),
                hint="correct the output's type in the file, or export it again",
            )


def _is_batched(session: Session, io: IO, examples: Feed) -> bool:
    """Whether two samples give two answers."""
    twice = {name: np.concatenate([array, array]) for name, array in examples.items()}
    try:
        outputs = session.run(twice)
    except BackendError:
        return False
    return all(outputs[spec.name].shape[0] == 2 for spec in io.outputs)


def _write_examples(examples: Feed, out: Path) -> FileEntry:
    contiguous = {name: np.asarray(array, order="C") for name, array in examples.items()}
    write_atomic(out / EXAMPLES, write_arrays(contiguous))
    return describe(out, EXAMPLES)


def _weights(path: Path) -> tuple[Weight, ...]:
    """Each initializer with the sha256 of its little-endian C-order bytes, sorted by name."""
    import onnx_ir as ir

    found = []
    for name, value in ir.load(path).graph.initializers.items():
        if (tensor := value.const_value) is not None:
            array = tensor.numpy()
            dtype: DType = msgspec.convert(str(array.dtype), DType)
            digest = sha256_bytes(tensor.tobytes())
            found.append(Weight(name=name, dtype=dtype, shape=tuple(array.shape), sha256=digest))
    return tuple(sorted(found, key=lambda weight: weight.name))


def _files_sha256(program: FileEntry, data: tuple[FileEntry, ...]) -> str:
    """sha256 over one line a file, in path order: what stands for the graph's text."""
    lines = [f"{file.sha256}  {file.path}\n" for file in _sorted(program, data)]
    return sha256_bytes("".join(lines).encode())


def _sorted(program: FileEntry, data: tuple[FileEntry, ...]) -> tuple[FileEntry, ...]:
    return tuple(sorted((program, *data), key=lambda file: file.path))


def _unrunnable(thing: str, got: str) -> ConvertError:
    wanted = "answers from ONNX Runtime"
    hint = "fix its dynamic sizes (onnxruntime.tools.make_dynamic_shape_fixed), or export it again"
    return ConvertError("EDGE-CONVERT-075", thing, wanted=wanted, got=got, hint=hint)
