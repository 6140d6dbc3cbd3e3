"""What the zoo's factories are made with: lively weights, named inputs, and what may vary.

A random net as its library makes it often answers the same to everything: scales of 1e-27, normal
distributions of 0.02 on top of each other. A comparison of such answers proves nothing. `lively`
gives each weight the scale at which signals keep theirs, and batch normalisations the statistics of
what really passes through them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dev.zoo.inputs import perturbed_inputs

#: What a factory returns, as `edgeserve.convert` takes it.
Made = tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]


def noise(*shape: int, seed: int = 1) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ids(high: int, *shape: int, low: int = 3) -> Tensor:
    """Whole numbers from ``low`` to below ``high``, int64."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1))


def mask(rows: int, length: int, kept: int) -> Tensor:
    """An attention mask, int64: ones, then zeros."""
    return (torch.arange(length) < kept).long().expand(rows, length).clone()


class Named(nn.Module):
    """A model of transformers, fed by position, that gives the outputs of some names."""

    def __init__(
        self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str], **fixed: Any
    ) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs, self.fixed = model, inputs, outputs, fixed

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(self.inputs, tensors, strict=True))
        found = self.model(**given, **self.fixed)
        return tuple(found[name] for name in self.outputs)


class Function(nn.Module):
    """Any function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


class Pack(nn.Module):
    """Modules beside each other: the inputs of all in, the outputs of all out."""

    def __init__(self, modules: Sequence[nn.Module], counts: Sequence[int]) -> None:
        super().__init__()
        self.parts, self.counts = nn.ModuleList(modules), tuple(counts)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        start = 0
        for part, count in zip(self.parts, self.counts, strict=True):
            found += tree_leaves(part(*tensors[start : start + count]))
            start += count
        return tuple(found)


def pack_of(made: dict[str, Made]) -> Made:
    """Several factories' answers as one; outputs are called ``name__0``, ``name__1``, ..."""
    inputs = [
        f"{name}__in{i}" for name, (_, examples, _) in made.items() for i in range(len(examples))
    ]
    with torch.no_grad():
        counts = {name: len(tree_leaves(m(*examples))) for name, (m, examples, _) in made.items()}
    outputs = [f"{name}__{i}" for name, count in counts.items() for i in range(count)]
    whole = Pack([m for m, _, _ in made.values()], [len(e) for _, e, _ in made.values()])
    examples = tuple(each for _, given, _ in made.values() for each in given)
    options: dict[str, Any] = {"input_names": inputs, "output_names": outputs}
    if all("dynamic_shapes" in given for _, _, given in made.values()):
        options["dynamic_shapes"] = {name: {0: ("batch", 1, 4)} for name in inputs}
    return whole.eval(), examples, options


def randomize_weights(module: nn.Module, examples: Sequence[Tensor], seed: int = 2) -> nn.Module:
    """Give a module's weights, and its batch normalisations, scales at which answers vary."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            _fill(name, parameter, id(parameter) in embeddings, generator)
    module.eval()
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    _see(module, norms, examples)
    return module


def _fill(name: str, parameter: nn.Parameter, embedding: bool, generator: torch.Generator) -> None:
    drawn = torch.randn(parameter.shape, generator=generator)
    if parameter.dim() == 0:
        return
    if parameter.dim() == 1:
        middle = 0.0 if "bias" in name.rpartition(".")[2] else 1.0
        parameter.copy_(middle + 0.1 * drawn)
    elif embedding or "embed" in name.rpartition(".")[2] or "token" in name.rpartition(".")[2]:
        parameter.copy_(drawn * 0.7)
    else:
        wide = max(1, math.prod(parameter.shape[1:]))
        parameter.copy_(drawn * math.sqrt(1.4 / wide))


def _see(module: nn.Module, norms: list[Any], examples: Sequence[Tensor]) -> None:
    """Batch normalisations, one after the other, take the statistics of what reaches them.

    Several samples go through at once: of one alone a small map has a handful of values, and what
    their spread happens to be would blow every other sample up.
    """

    def note(norm: Any, given: tuple[Tensor, ...]) -> None:
        axes = [axis for axis in range(given[0].dim()) if axis != 1]
        norm.running_mean.copy_(given[0].mean(axes))
        norm.running_var.copy_(given[0].var(axes, unbiased=False) + 5e-2)

    hooks = [n.register_forward_pre_hook(note) for n in norms if n.track_running_stats]
    if hooks:
        many = [
            tuple(examples),
            *(perturbed_inputs(tuple(examples), seed) for seed in range(10, 17)),
        ]
        with torch.no_grad():
            module(*map(torch.cat, zip(*many, strict=True)))
    for hook in hooks:
        hook.remove()


def input_options(names: Sequence[str], **axes: dict[int, Any]) -> dict[str, Any]:
    """Options that name inputs and let the batch vary, and further axes of some."""
    shapes = {name: {0: ("batch", 1, 4), **axes.get(name, {})} for name in names}
    return {"input_names": list(names), "dynamic_shapes": shapes}


def tiny(
    kind: str,
    config: Any,
    inputs: dict[str, Tensor],
    outputs: Sequence[str],
    batch: bool = True,
    part: Callable[[nn.Module], nn.Module] | None = None,
    **fixed: Any,
) -> Made:
    """A model class of transformers over a small configuration."""
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).eval()
    model = part(model) if part else model
    module = Named(model, tuple(inputs), tuple(outputs), **fixed).eval()
    examples = tuple(inputs.values())
    randomize_weights(module, examples)
    options = input_options(tuple(inputs)) if batch else {"input_names": list(inputs)}
    return module, examples, options | {"output_names": list(outputs)}


def text(length: int = 16, words: int = 100, masked: bool = True) -> dict[str, Tensor]:
    """Inputs of a text model: words, and which of them count."""
    given = {"input_ids": ids(words, 1, length)}
    return given | {"attention_mask": mask(1, length, length - 4)} if masked else given
