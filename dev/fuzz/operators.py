"""The operators of random programs: templates of calls, which `dev.fuzz.generate` fills.

- ``{f}``, ``{i}``, ``{b}``, ``{n}``, ``{x}``: a float, integer, bool, numeric, or any operand;
- ``{m}``: another of its dtype with which it broadcasts, or a number; ``{s}``: one of its shape;
- ``{d}``, ``{e}``: one of its dimensions; ``{k}``: 1, 2 or 3; ``{j}``: -3 to 3; ``{c}``: a float;
- ``{one|other}``: one of these texts;
- ``{w:SIZES}``, ``{p:HIGH,SIZES}``: a weight, and constant places below a number;
- ``{=EXPRESSION}``: its value. Expressions read the first operand's shape ``S`` and rank ``R``, and
  ``D``, which is the ``{d}`` of the call.

What does not fit raises in eager PyTorch, and another call is drawn.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

#: How a result may differ between two correct implementations: not at all; by rounding of each
#: element; by rounding at the scale of the whole result, because many terms are added.
Rounding = Literal["none", "element", "whole"]


class Operator(NamedTuple):
    """How to write a call, and how its result may be rounded.

    Attributes:
        call: The template.
        rounding: See `Rounding`.
        ordered: The result depends on the order of equal elements, which PyTorch leaves open.
    """

    call: str
    rounding: Rounding
    ordered: bool = False


#: Templates by rounding, separated by semicolons; NAME stands for each of the words before it.
_TEMPLATES: dict[Rounding, str] = {
    "none": """
neg abs relu sign: torch.NAME({n}); floor ceil round trunc isnan isfinite signbit: torch.NAME({f});
relu6 hardtanh: f.NAME({f}); maximum minimum lt le gt ge eq ne: torch.NAME({n}, {m});
logical_and logical_or logical_xor: torch.NAME({x} > 0, {s} > 1); torch.logical_not({x}); ~{i};
bitwise_and bitwise_or bitwise_xor floor_divide remainder fmod: torch.NAME({i}, {m});
torch.div({i}, {m}, rounding_mode='trunc'); {i} + {m}; {m} - {i}; {i} * {m};
{i}.clamp(-99, 99) << {k}; {i} >> {k}; {i}.clamp(-9, 9) ** {k}; {n}.clamp(-{k}, 2);
{n}.clamp(min={j}); torch.clamp({n}, max={s}); torch.where({n} > {j}, {f}, {i});
torch.where({x} > 0, {x}, {s}); torch.where({n} > {m}, {n}, {j}); torch.copysign({f}, {m});
{n}.masked_fill({n} > {m}, {j}); int32 int64 float32 bool: {x}.to(torch.NAME);
f.threshold({f}, 0.5, {c}); torch.nan_to_num({f} / 0, 1.0, 2.0, -3.0);
transpose movedim: {x}.NAME({d}, {e}); flatten squeeze unsqueeze unbind: {x}.NAME({d});
{x}.permute({=tuple(range(R))[::-1]}); {x}.permute({=(*range(1,R),0)}); {x}.reshape({=S[::-1]});
{x}.reshape({-1|2, -1|=(S[0],-1)}); {x}.reshape({=(-1,*S[2:],1)});
{x}.unflatten({d}, (2, -1)); {x}.expand({k}, *{x}.shape); torch.broadcast_tensors({n}, {m});
{x}[{1:|:-1|::2|-1:|0|None}, {..., 0|1:|::2|...|-1}]; {x}[..., {:2|-2:|1::2}, {0|None, 1:|:}];
{x}.narrow({d}, 1, {k}); {x}.select({d}, {j}); torch.cat([{i}.flatten(), {f}.flatten()]);
cat stack: torch.NAME([{x}, {s}, {x}], {d}); cat stack: torch.NAME([{x}, {s}], {d});
split chunk tensor_split repeat_interleave: {x}.NAME({k}, {d}); {x}.flip({d}, {e});
f.pad({x}, ({0|1|-1}, {0|2}), '{constant|reflect|replicate|circular}');
f.pad({x}, (1, 0, {0|1}, 2));
{x}.roll({j}, {d}); {x}.rot90({k}, ({d}, {e})); {x}.repeat({k}, *[2] * ({x}.dim() - 1));
{x}.tile(({k}, 1)); tril triu: {x}.NAME({j}); {x}.diagonal({j}, {d}, {e}); torch.diag_embed({x});
{x}.unfold({d}, 2, {k}); {x}[[0, -1, 0]]; {x}[[0, -1], [1, 0]]; {x}.index_select({d}, {p:S[D],3});
{x}.index_copy({d}, {p:S[D],1}, {x}.narrow({d}, 0, 1)); {x}.index_fill({d}, {p:S[D],2}, 1);
{x}.gather({d}, {p:S[D],*S}); {x}.take({p:min(S),*S}); {x}.scatter({d}, {p:S[D],*S}, 2);
{n}.scatter_reduce({d}, {p:S[D],*S}, -{n}, '{amax|amin}'); f.embedding({i} % 5, {w:5,3});
{x}.select_scatter({x}.select({d}, -1), {d}, 0); {x}.index_put((torch.tensor([0, -1]),), {x}[:1]);
{x}.slice_scatter({x}.narrow({d}, 0, 1), {d}, 1, 2); f.one_hot({i}.to(torch.int64) % 4, 4);
{n}.amax(({d}, {e}), keepdim=True); {n}.amin({d}); {n}.max(); {x}.count_nonzero({d});
{x}.to(torch.bool).any({d}); {x}.to(torch.bool).all({d}, keepdim=True);
sum cumsum: {i}.NAME({d}); ({n} > {j}).sum({d}, keepdim=True); {i}.clamp(-3, 3).prod({d});
{n}.sort({d}, descending=True)[0]; {n}.topk({k}, {d}, largest=False)[0]; {n}.kthvalue({k}, {d})[0];
median cummax cummin: {n}.NAME({d})[0]; torch.msort({n}); f.adaptive_max_pool2d({f}, ({k}, 2));
f.max_pool{1|2|3}d({f}, {2|3}, {1|2}, {0|1}, {1|1|2}, {False|True});
f.max_pool2d({f}, {2|3}, {1|2}, {0|1}, {1|1|2}, {False|True});
pixel_shuffle pixel_unshuffle channel_shuffle: f.NAME({f}, 2); f.interpolate({f}, scale_factor={k});
torch.bucketize({f}, torch.tensor([-1.0, 0.0, 0.5]), right=True);
torch.searchsorted(torch.tensor([-1, 0, 2]), {i}); {x} + torch.full_like({x}, {k});
{n} + torch.arange({n}.shape[-1]); torch.meshgrid({n}[0], {n}[0], indexing='ij');
torch.block_diag({n}, {m})""",
    "element": """
sin cos tanh sigmoid erf atan square frac sinc asinh: torch.NAME({f});
exp expm1 sinh cosh exp2: torch.NAME({f}.clamp(-4, 4)); torch.log1p({f}.abs());
log sqrt rsqrt log2 log10 reciprocal lgamma: torch.NAME({f}.abs() + 0.1);
asin acos atanh erfinv logit: torch.NAME({f}.clamp(-0.9, 0.9));
gelu silu mish elu selu celu softplus hardswish hardsigmoid leaky_relu: f.NAME({f});
logsigmoid softsign tanhshrink hardshrink softshrink: f.NAME({f});
add mul atan2 hypot logaddexp: torch.NAME({f}, {m}); {m} - {f}; torch.sub({f}, {s}, alpha={c});
{f} / ({s}.abs() + 0.5); {m} / ({f}.abs() + 0.5); {i} / ({i}.abs() + {k}); {i} * {f} + {c};
torch.div({f}, {c}, rounding_mode='floor'); torch.div({f}, {s}.abs() + 0.5, rounding_mode='trunc');
fmod remainder: torch.NAME({f}, {c}); fmod remainder: torch.NAME({f}, {s}.abs() + 0.5);
torch.addcmul({f}, {s}, {s}, value={c}); torch.addcdiv({f}, {s}, {f}.abs() + 0.5);
torch.lerp({f}, {s}, 0.3); {f} ** {k}; ({f}.abs() + 0.1) ** {s}.clamp(-2, 2);
2.0 ** {f}.clamp(-4, 4); f.gelu({f}, approximate='tanh'); f.glu({f}, {d});
f.prelu({f}, {w:S[1]}); torch.xlogy({f}, {f}.abs() + 0.1); f.dropout({f}, 0.5, False);
torch.polar({f}.abs(), {f}).imag""",
    "whole": """
sum mean prod var std logsumexp cumsum cumprod logcumsumexp norm: {f}.NAME({d});
softmax log_softmax softmin: f.NAME({f}, {d}); {f}.sum(({d}, {e}), keepdim=True); {f}.mean();
torch.var_mean({f}, {d}, correction=0); torch.linalg.vector_norm({f}, 1, ({d}, {e}));
f.softmax({i}.to(torch.float32) / 8, {d}); f.normalize({f} + 0.1, dim={d});
f.cosine_similarity({f} + 0.1, {s} + 0.3, {d}); {n}.diff(dim={d}); {f}.trace();
f.linear({f}, {w:3,S[-1]}, {None|w:3}); {f} @ {w:S[-1],2}; {w:3,S[0]} @ {f};
{f} @ {f}.transpose(-1, -2); torch.bmm({f}, {f}.transpose(1, 2)); {f} @ {w:S[-1]};
torch.baddbmm({f}[:, :, :1], {f}, {f}.transpose(1, 2), beta=0.5, alpha=2);
torch.addmm({f}[0, 0], {f}, {f}.t(), alpha=0.5); outer kron: torch.NAME({f}, {s});
torch.tensordot({f}, {s}, ([-1], [-1])); torch.einsum('...a,ab->{...b|b...}', {f}, {w:S[-1],3});
torch.einsum('abc,{a|}bd->{adc|cad|dc|ad}', {f}, {w:*S[:2],2});
torch.einsum('abc,dbc->{ad|bda}', {f}, {f});
f.scaled_dot_product_attention({f}, {f} * 2, {f} + 1{|, is_causal=True});
f.scaled_dot_product_attention({f}, {s}, {f}, {f}[..., :1] > {f}[..., :1].transpose(-1, -2) - 1);
f.conv1d({f}, {w:4,S[-2],3}, {None|w:4}, {1|2}, {0|1|2}, {1|2});
f.conv1d({f}, {w:2,S[-2],2}, None, 1, 'same');
f.conv2d({f}, {w:4,S[-3],3,2}, {None|w:4}, {1|2}, {0|1|(1, 0)}, {1|2});
f.conv2d({f}, {w:S[-3]*2,1,2,3}, None, {1|2}, 1, 1, {=S[-3]}); f.conv2d({f}, {w:2,S[-3],1,1});
f.conv3d({f}, {w:2,S[-4],2,1,2}, None, {1|2}, {0|1});
f.conv3d({f}, {w:S[-4],1,2,2,1}, None, 1, 1, 1, {=S[-4]});
f.conv_transpose1d({f}, {w:S[-2],3,3}, {None|w:3}, {1|2}, {0|1}, 0, 1, {1|2});
f.conv_transpose2d({f}, {w:S[-3],2,3,2}, None, 2, {0|1}, {0|1});
f.conv_transpose2d({f}, {w:S[-3],1,2,3}, None, {1|2}, 1, 0, {=S[-3]});
f.conv_transpose3d({f}, {w:S[-4],2,2,1,3}, None, {1|2}, {0|1});
f.avg_pool{1|2|3}d({f}, {2|3}, {1|2}, {0|1}, {False|True}, {False|True});
f.avg_pool2d({f}, {2|3}, {1|2}, {0|1}, {False|True}, {False|True});
f.layer_norm({f}, {=S[-1:]}, {w:S[-1]}, {w:S[-1]}); f.layer_norm({f}, {=S[-2:]});
f.rms_norm({f}, {=S[-1:]}, {w:S[-1]}); f.group_norm({f}, {1|=S[1]}, {w:S[1]}, {w:S[1]});
f.instance_norm({f}, weight={w:S[1]}); f.batch_norm({f}, {w:S[1]}, {w:S[1]}.abs() + 0.5, {w:S[1]});
f.local_response_norm({f}, 2); f.adaptive_avg_pool2d({f}, ({k}, 2)); f.unfold({f}, 2, padding=1);
f.lp_pool2d({f}.abs() + 0.1, 2, 2); f.interpolate({f}, size=5, mode='linear');
f.interpolate({f}, size=(5, 4), mode='{bilinear|bicubic}', align_corners={True|False});
f.interpolate({f}, scale_factor=2, mode='bilinear'); torch.cdist({f}, {s} + 1.5);
{n}.index_put((torch.tensor([0, -1]),), {n}[:1], accumulate=True);
torch.linalg.cross({f}, {s}, dim={d});
{n}.scatter_add({d}, {p:S[D],*S}, {n}); {f}.scatter_reduce({d}, {p:S[D],*S}, {f}, '{mean|sum}');
{n}.index_add({d}, {p:S[D],2}, {n}.narrow({d}, 0, 2))""",
}

_ORDERED = """
argmax argsort sort max: {n}.NAME({d}); argmin min: {n}.NAME({d}, keepdim=True); {n}.argmax();
{n}.topk({k}, {d})"""


def _operators(templates: str, rounding: Rounding, ordered: bool = False) -> dict[str, Operator]:
    found = {}
    for entry in " ".join(templates.split()).split("; "):
        words, _, call = entry.partition(": ") if "NAME" in entry else ("", "", entry)
        for word in words.split() or [""]:
            text = call.replace("NAME", word)
            found[text] = Operator(text, rounding, ordered)
    return found


#: By the text of the template.
OPERATORS: dict[str, Operator] = _operators(_ORDERED, "none", ordered=True)
for _rounding, _text in _TEMPLATES.items():
    OPERATORS |= _operators(_text, _rounding)
