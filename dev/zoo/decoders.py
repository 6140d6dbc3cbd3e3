"""Causal language models of transformers, shrunk, and one step of two decoders."""

from __future__ import annotations

from typing import Any

from dev.zoo.model_helpers import Made, ids, mask, noise, text, tiny

_SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LOGITS = ("logits",)


def _decoder(name: str, kind: str | None = None, config: str | None = None, **more: Any) -> Made:
    import transformers

    made = getattr(transformers, config or f"{name}Config")(**{**_SIZES, **more})
    return tiny(kind or f"{name}ForCausalLM", made, text(), _LOGITS, use_cache=False)


def gpt2() -> Made:
    from transformers import GPT2Config

    config = GPT2Config(
        vocab_size=100,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    return tiny("GPT2LMHeadModel", config, text(), _LOGITS, use_cache=False)


def llama() -> Made:
    return _decoder("Llama", num_key_value_heads=2)


def qwen3() -> Made:
    return _decoder("Qwen3", num_key_value_heads=2, head_dim=8)


def gemma3() -> Made:
    return _decoder(
        "Gemma3",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        num_key_value_heads=1,
        head_dim=8,
        sliding_window=8,
        query_pre_attn_scalar=8,
    )


def smollm3() -> Made:
    return _decoder("SmolLM3", num_key_value_heads=2)


def phi() -> Made:
    return _decoder("Phi")


def opt() -> Made:
    from transformers import OPTConfig

    config = OPTConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=48,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    )
    return tiny("OPTForCausalLM", config, text(), _LOGITS, use_cache=False)


def whisper_decoder_step() -> Made:
    """The words so far, and what the encoder made of the sound: the next words' scores."""
    from dev.zoo.audio import whisper_config

    given = {"decoder_input_ids": ids(90, 1, 6), "encoder_outputs": noise(1, 50, 32)}
    return tiny(
        "WhisperForConditionalGeneration",
        whisper_config(),
        given,
        _LOGITS,
        part=_Step,
        use_cache=False,
    )


def t5_decoder_step() -> Made:
    """The words so far, and what the encoder made of the text: the next words' scores."""
    from transformers import T5Config

    config = T5Config(
        vocab_size=100,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        decoder_start_token_id=0,
    )
    given = {
        "decoder_input_ids": ids(90, 1, 6),
        "encoder_outputs": noise(1, 12, 32),
        "attention_mask": mask(1, 12, 9),
    }
    return tiny("T5ForConditionalGeneration", config, given, _LOGITS, part=_Step, use_cache=False)


def _Step(model: Any) -> Any:  # noqa: N802
    """The model, told the encoder's answer as a tensor."""
    from torch import nn
    from transformers.modeling_outputs import BaseModelOutput

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, encoder_outputs: Any, **given: Any) -> Any:
            wrapped = BaseModelOutput(last_hidden_state=encoder_outputs)
            return self.model(encoder_outputs=wrapped, **given)

    return Step()
