"""What is in the zoo, and the dozen that every `make test` converts."""

from __future__ import annotations

_TRANSFORMERS = {
    "encoders": (
        "bert",
        "distilbert",
        "roberta",
        "albert",
        "electra",
        "mobilebert",
        "squeezebert",
        "deberta_v2",
        "modernbert",
        "mpnet",
        "xlm_roberta",
        "t5_encoder",
    ),
    "decoders": (
        "gpt2",
        "llama",
        "qwen3",
        "gemma3",
        "smollm3",
        "phi",
        "opt",
        "whisper_decoder_step",
        "t5_decoder_step",
    ),
    "pictures": (
        "vit",
        "deit",
        "beit",
        "dinov2",
        "swin",
        "swinv2",
        "convnext",
        "convnextv2",
        "resnet",
        "regnet",
        "mobilenet_v1",
        "mobilenet_v2",
        "mobilevit",
        "mobilevitv2",
        "efficientnet",
        "levit",
        "pvt_v2",
        "poolformer",
        "clip",
        "siglip",
    ),
    "scenes": ("segformer", "dpt", "depth_anything", "upernet", "yolos", "detr", "rt_detr_v2"),
    "audio": ("whisper_encoder", "wav2vec2", "hubert", "ast"),
}

#: Groups of the table; "ops" is what ``make zoo-ops`` runs.
GROUPS = ("transformers", "plain", "ops")

#: Models that reach every rewrite; the plain ones as one file, each with outputs of its own.
DOZEN = (
    "encoders:bert",
    "encoders:deberta_v2",
    "decoders:gemma3",
    "pictures:swin",
    "audio:wav2vec2",
    "plain:depthwise+fold_unfold+gru+unet+bicubic_antialias+roll+letterbox_nms+stft"
    "+conv_transpose3d",
)


def locations(group: str) -> list[str]:
    """``module:factory`` of a group, in the order of the table."""
    if group == "transformers":
        return [f"{module}:{name}" for module, names in _TRANSFORMERS.items() for name in names]
    from dev.zoo import ops, plain

    table = plain.FACTORIES if group == "plain" else ops.FACTORIES
    return [f"{group}:{name}" for name in table]
