"""Text encoders of transformers, shrunk."""

from __future__ import annotations

from typing import Any

from dev.zoo.model_helpers import Made, text, tiny

_SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
_STATE = ("last_hidden_state",)


def _encoder(name: str, outputs: tuple[str, ...] = _STATE, **more: Any) -> Made:
    import transformers

    config = getattr(transformers, f"{name}Config")(**{**_SIZES, **more})
    return tiny(f"{name}Model", config, text(), outputs)


def bert() -> Made:
    return _encoder("Bert", (*_STATE, "pooler_output"))


def distilbert() -> Made:
    from transformers import DistilBertConfig

    config = DistilBertConfig(
        vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64
    )
    return tiny("DistilBertModel", config, text(), _STATE)


def roberta() -> Made:
    return _encoder("Roberta")


def xlm_roberta() -> Made:
    return _encoder("XLMRoberta")


def mpnet() -> Made:
    return _encoder("MPNet")


def albert() -> Made:
    return _encoder("Albert", embedding_size=16)


def electra() -> Made:
    return _encoder("Electra", embedding_size=16)


def mobilebert() -> Made:
    return _encoder(
        "MobileBert", embedding_size=16, intra_bottleneck_size=16, num_feedforward_networks=2
    )


def squeezebert() -> Made:
    return _encoder("SqueezeBert", embedding_size=32)


def deberta_v2() -> Made:
    return _encoder(
        "DebertaV2",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        max_relative_positions=-1,
        position_biased_input=False,
        type_vocab_size=0,
    )


def modernbert() -> Made:
    return _encoder(
        "ModernBert",
        local_attention=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    )


def t5_encoder() -> Made:
    from transformers import T5Config

    config = T5Config(
        vocab_size=100,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
    )
    return tiny("T5EncoderModel", config, text(), _STATE)
