"""A foreign .pt2 is looked into before torch reads it; each attack below is shown to be real."""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edgeserve.backends.torch.program.pt2_safety import sanitized_copy
from edgeserve.errors import ConvertError

Members = dict[str, bytes]


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("table", torch.arange(3), persistent=False)

    def forward(self, x: torch.Tensor, pair: Any, n: int) -> dict[str, torch.Tensor]:
        y = torch.cat([self.linear(x), x], 0)[: x.shape[0] * 2 - 1]
        return {"y": y * n + pair[0], "z": torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A harmless program with all that programs usually hold."""
    path = tmp_path_factory.mktemp("pt2") / "whole.pt2"
    dim = torch.export.Dim("n", min=2, max=9)
    examples = (torch.ones(4, 3), (torch.ones(3), torch.ones(2)), 2)
    program = torch.export.export(
        Plain(), examples, dynamic_shapes={"x": {0: dim}, "pair": (None, None), "n": None}
    )
    torch.export.save(program, path)
    return path


def members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, held: Members) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return path


def key(held: Members, end: str) -> str:
    return next(name for name in held if name.endswith(end))


def edit(held: Members, change: Callable[[Any], None]) -> None:
    name = key(held, "models/model.json")
    program = json.loads(held[name])
    change(program)
    held[name] = json.dumps(program).encode()


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_harmless_program_is_copied_and_loads(whole: Path, tmp_path: Path) -> None:
    copy = sanitized_copy(whole, tmp_path / "copy.pt2")
    x, pair = torch.randn(5, 3), (torch.ones(3), torch.ones(2))
    wanted = torch.export.load(whole).module()(x, pair, 2)
    got = torch.export.load(copy).module()(x, pair, 2)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def refused(path: Path, tmp_path: Path) -> str:
    with pytest.raises(ConvertError) as error:
        sanitized_copy(path, tmp_path / "copy.pt2")
    assert error.value.code == "EDGE-CONVERT-018"
    return error.value.message


def fires(path: Path, mark: Path) -> bool:
    """Whether loading the file as it is, and running it, runs the attacker's code."""
    try:
        program = torch.export.load(path)
        program.module()(torch.ones(4, 3), (torch.ones(3), torch.ones(2)), 2)
    except Exception:
        pass
    return mark.exists()


def example_inputs(held: Members, mark: Path) -> None:
    out = io.BytesIO()
    torch.save(((torch.ones(4, 3), Bomb(mark)), {}), out)
    held[key(held, "sample_inputs/model.pt")] = out.getvalue()


def plain_pickle(held: Members, mark: Path) -> None:
    held[key(held, "sample_inputs/model.pt")] = pickle.dumps(Bomb(mark), protocol=2)


def weight(held: Members, mark: Path) -> None:
    out = io.BytesIO()
    torch.save(Bomb(mark), out)
    held[key(held, "weights/weight_0")] = out.getvalue()
    name = key(held, "model_weights_config.json")
    config = json.loads(held[name])
    next(iter(config["config"].values()))["use_pickle"] = True
    held[name] = json.dumps(config).encode()


def size(held: Members, mark: Path) -> None:
    def change(program: Any) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        expression = f"__import__('pathlib').Path({str(mark)!r}).touch()"
        values["x"]["sizes"][0]["as_expr"]["expr_str"] = expression

    edit(held, change)


def guard(held: Members, mark: Path) -> None:
    code = f"__import__('pathlib').Path({str(mark)!r}).touch() or True"
    edit(held, lambda program: program.update(guards_code=[code]))


ATTACKS = [example_inputs, plain_pickle, weight, size]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_is_refused(attack: Any, whole: Path, tmp_path: Path) -> None:
    mark = tmp_path / "fired"
    held = members(whole)
    attack(held, mark)
    path = write(tmp_path / "evil.pt2", held)
    refused(path, tmp_path)
    assert not mark.exists(), "looking into it must not run it"
    assert fires(path, mark), "the attack is not one: this test would pass for nothing"


def test_guards_as_source_code_are_left_out(whole: Path, tmp_path: Path) -> None:
    held, mark = members(whole), tmp_path / "fired"
    guard(held, mark)
    copy = sanitized_copy(write(tmp_path / "evil.pt2", held), tmp_path / "copy.pt2")
    assert not fires(copy, mark)
    assert "pathlib" not in copy.read_bytes().decode("latin-1")


@pytest.mark.parametrize(
    "name",
    [
        "data/aotinductor/model/x.so",
        "data/constants/custom_obj_0",
        "data/constants/opaque_obj_0",
        "data/weights/model.pt",
        "extra/notes.txt",
        "../x",
        "code/x.py",
    ],
)
def test_members_of_other_kinds_are_refused(name: str, whole: Path, tmp_path: Path) -> None:
    held = members(whole)
    held["whole/" + name] = b"x"
    assert name in refused(write(tmp_path / "more.pt2", held), tmp_path)


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "torch.hub.load",
        "math.__loader__",
        "torch.os.system",
        "_operator.call",
        "_operator.methodcaller",
        "torch.ops.aten.__class__.mro",
        "torch.load",
        "torch.ops.mylib.op.default",
        "#extension:x",
    ],
)
@pytest.mark.parametrize("where", ["target", "as_operator"])
def test_names_that_lead_out_of_aten_are_refused(
    target: str, where: str, whole: Path, tmp_path: Path
) -> None:
    held = members(whole)
    edit(held, lambda p: p["graph_module"]["graph"]["nodes"][0].update({where: target}))
    assert target in refused(write(tmp_path / "op.pt2", held), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "s0.__class__",
        "print(1)",
        "eval('1')",
        "lambda: 1",
        "[s0]",
        "s0 if s0 else s1",
        "open",
        "exit()",
        "s0;s1",
        "f'{s0}'",
        "s0 + os",
        "__builtins__",
        "0x10",
        "True.real",
        "1 .real",
        "s77" * 9000,
    ],
)
def test_expressions_of_anything_but_symbols_are_refused(
    text: str, whole: Path, tmp_path: Path
) -> None:
    held = members(whole)

    def change(program: Any) -> None:
        sizes = program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0]["as_expr"]["expr_str"] = text

    edit(held, change)
    refused(write(tmp_path / "size.pt2", held), tmp_path)


def test_trees_of_other_types_are_refused(whole: Path, tmp_path: Path) -> None:
    for spec in (
        '[1, {"type": "collections.defaultdict", "context": "x", "children_spec": []}]',
        '[1, {"type": "builtins.dict", "context": {"__enum__": true, "fqn": "os:x"}}]',
    ):
        held = members(whole)

        def change(program: Any, spec: str = spec) -> None:
            program["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = spec

        edit(held, change)
        refused(write(tmp_path / "tree.pt2", held), tmp_path)


def test_odd_archives_are_refused(whole: Path, tmp_path: Path) -> None:
    held = members(whole)
    with zipfile.ZipFile(tmp_path / "packed.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    assert "compressed" in refused(tmp_path / "packed.pt2", tmp_path)
    twice = [*held.items(), *held.items()]
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "twice.pt2", "w") as archive:
        warnings.simplefilter("ignore")
        for name, data in twice:
            archive.writestr(name, data)
    assert "each name once" in refused(tmp_path / "twice.pt2", tmp_path)
    two = {**held, "other/byteorder": b"little"}
    assert "one folder" in refused(write(tmp_path / "two.pt2", two), tmp_path)


@pytest.mark.parametrize("cut", [0, 10, 2000])
def test_what_is_no_archive_is_unreadable(cut: int, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.pt2").write_bytes(whole.read_bytes()[:cut])
    with pytest.raises(ConvertError) as error:
        sanitized_copy(tmp_path / "cut.pt2", tmp_path / "copy.pt2")
    assert error.value.code == "EDGE-CONVERT-019"


def test_a_program_that_is_no_json_is_unreadable(whole: Path, tmp_path: Path) -> None:
    held = members(whole)
    name = key(held, "models/model.json")
    for broken in (b"{", b"\xff", b"[" * 100_000):
        held[name] = broken
        with pytest.raises(ConvertError) as error:
            sanitized_copy(write(tmp_path / "json.pt2", held), tmp_path / "copy.pt2")
        assert error.value.code == "EDGE-CONVERT-019"
    del held[name]
    with pytest.raises(ConvertError) as error:
        sanitized_copy(write(tmp_path / "none.pt2", held), tmp_path / "copy.pt2")
    assert error.value.code == "EDGE-CONVERT-019"
