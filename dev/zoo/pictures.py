"""Image classifiers and encoders of transformers, shrunk."""

from __future__ import annotations

from typing import Any

from dev.zoo.model_helpers import Made, ids, mask, noise, tiny

_LOGITS = ("logits",)
_TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}


def _picture(
    name: str,
    side: int = 32,
    kind: str | None = None,
    outputs: tuple[str, ...] = _LOGITS,
    **more: Any,
) -> Made:
    import transformers

    config = getattr(transformers, f"{name}Config")(num_labels=7, **more)
    given = {"pixel_values": noise(1, 3, side, side)}
    return tiny(kind or f"{name}ForImageClassification", config, given, outputs)


def vit() -> Made:
    return _picture("ViT", **_TOWER)


def deit() -> Made:
    return _picture("DeiT", **_TOWER)


def beit() -> Made:
    return _picture("Beit", use_relative_position_bias=True, **_TOWER)


def dinov2() -> Made:
    sizes = {key: value for key, value in _TOWER.items() if key != "intermediate_size"}
    return _picture("Dinov2", **sizes, mlp_ratio=2)


def swin() -> Made:
    return _picture(
        "Swin",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    )


def swinv2() -> Made:
    return _picture(
        "Swinv2",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    )


def convnext() -> Made:
    return _picture("ConvNext", 64, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 2, 1])


def convnextv2() -> Made:
    return _picture("ConvNextV2", 64, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 2, 1])


def resnet() -> Made:
    return _picture(
        "ResNet", 64, embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 2, 1]
    )


def regnet() -> Made:
    return _picture(
        "RegNet",
        64,
        embedding_size=16,
        hidden_sizes=[16, 24, 32, 48],
        depths=[1, 1, 2, 1],
        groups_width=8,
    )


def mobilenet_v1() -> Made:
    return _picture("MobileNetV1", 64, image_size=64, depth_multiplier=0.25)


def mobilenet_v2() -> Made:
    return _picture("MobileNetV2", 64, image_size=64, depth_multiplier=0.35)


_MOBILEVIT: dict[str, Any] = {
    "image_size": 64,
    "hidden_sizes": [24, 32, 40],
    "num_attention_heads": 4,
    "neck_hidden_sizes": [8, 16, 24, 24, 32, 40, 48],
}


def mobilevit() -> Made:
    return _picture("MobileViT", 64, **_MOBILEVIT)


def mobilevitv2() -> Made:
    return _picture(
        "MobileViTV2", 64, image_size=64, width_multiplier=0.5, base_attn_unit_dims=[16, 24, 32]
    )


def efficientnet() -> Made:
    return _picture(
        "EfficientNet",
        64,
        image_size=64,
        width_coefficient=0.25,
        depth_coefficient=0.3,
        hidden_dim=320,
    )


def levit() -> Made:
    return _picture(
        "Levit",
        64,
        image_size=64,
        hidden_sizes=[32, 48, 64],
        num_attention_heads=[2, 3, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
        patch_size=16,
    )


def pvt_v2() -> Made:
    return _picture(
        "PvtV2",
        64,
        image_size=64,
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 4, 4],
        mlp_ratios=[2, 2, 2, 2],
    )


def poolformer() -> Made:
    return _picture("PoolFormer", 64, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1])


def clip() -> Made:
    """A text and an image, how well they fit."""
    return _pair("CLIP", {"max_position_embeddings": 16, "eos_token_id": 2})


def siglip() -> Made:
    return _pair("Siglip", {"max_position_embeddings": 16})


def _pair(name: str, more: dict[str, Any]) -> Made:
    import transformers

    words = {
        "vocab_size": 100,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        **more,
    }
    if name == "CLIP":
        words["projection_dim"] = 24
    config = getattr(transformers, f"{name}Config")(
        text_config=words, vision_config=dict(_TOWER), projection_dim=24
    )
    given = {
        "input_ids": ids(100, 1, 16),
        "pixel_values": noise(1, 3, 32, 32),
        "attention_mask": mask(1, 16, 16),
    }
    outputs = ("logits_per_image", "text_embeds", "image_embeds")
    return tiny(f"{name}Model", config, given, outputs, batch=False)
