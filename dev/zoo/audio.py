"""Audio nets of transformers, shrunk."""

from __future__ import annotations

from typing import Any

from dev.zoo.model_helpers import Made, noise, tiny

_STATE = ("last_hidden_state",)


def whisper_config() -> Any:
    from transformers import WhisperConfig

    return WhisperConfig(
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
        max_source_positions=50,
        vocab_size=100,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        num_mel_bins=16,
        max_target_positions=32,
    )


def whisper_encoder() -> Made:
    given = {"input_features": noise(1, 16, 100)}
    return tiny("WhisperModel", whisper_config(), given, _STATE, part=lambda model: model.encoder)


def _wave(name: str, **more: Any) -> Made:
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": 32,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "conv_dim": (16, 16, 16),
        "conv_kernel": (10, 3, 3),
        "conv_stride": (5, 2, 2),
        "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "apply_spec_augment": False,
    }
    config = getattr(transformers, f"{name}Config")(**{**sizes, **more})
    return tiny(f"{name}Model", config, {"input_values": noise(1, 2000)}, _STATE)


def wav2vec2() -> Made:
    return _wave("Wav2Vec2")


def hubert() -> Made:
    return _wave("Hubert")


def ast() -> Made:
    from transformers import ASTConfig

    config = ASTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_length=64,
        num_mel_bins=32,
        num_labels=7,
    )
    given = {"input_values": noise(1, 64, 32)}
    return tiny("ASTForAudioClassification", config, given, ("logits",))
