"""Detectors, segmenters and depth estimators of transformers, shrunk."""

from __future__ import annotations

from typing import Any

from dev.zoo.model_helpers import Made, noise, tiny

_BOXES = ("logits", "pred_boxes")
_TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}


def _scene(kind: str, config: Any, side: int, outputs: tuple[str, ...], batch: bool = True) -> Made:
    given = {"pixel_values": noise(1, 3, side, side)}
    return tiny(kind, config, given, outputs, batch=batch)


def segformer() -> Made:
    from transformers import SegformerConfig

    config = SegformerConfig(
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=24,
        num_labels=7,
    )
    return _scene("SegformerForSemanticSegmentation", config, 64, ("logits",))


def dpt() -> Made:
    from transformers import DPTConfig

    config = DPTConfig(
        **_TOWER,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 16, 24, 32],
        fusion_hidden_size=24,
        reassemble_factors=[4, 2, 1, 0.5],
        is_hybrid=False,
    )
    return _scene("DPTForDepthEstimation", config, 32, ("predicted_depth",))


def _dinov2() -> Any:
    from transformers import Dinov2Config

    return Dinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        mlp_ratio=2,
        image_size=56,
        patch_size=14,
        out_indices=[1, 2, 3, 4],
        apply_layernorm=True,
        reshape_hidden_states=False,
    )


def depth_anything() -> Made:
    from transformers import DepthAnythingConfig

    config = DepthAnythingConfig(
        backbone_config=_dinov2(),
        reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 16, 24, 32],
        fusion_hidden_size=24,
        head_hidden_size=16,
        patch_size=14,
    )
    return _scene("DepthAnythingForDepthEstimation", config, 56, ("predicted_depth",))


def upernet() -> Made:
    from transformers import ConvNextConfig, UperNetConfig

    backbone = ConvNextConfig(
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = UperNetConfig(
        backbone_config=backbone,
        hidden_size=24,
        num_labels=7,
        auxiliary_in_channels=32,
        auxiliary_channels=16,
        use_auxiliary_head=False,
    )
    return _scene("UperNetForSemanticSegmentation", config, 64, ("logits",))


def yolos() -> Made:
    from transformers import YolosConfig

    config = YolosConfig(
        **{**_TOWER, "image_size": [32, 48]},
        num_detection_tokens=10,
        num_labels=5,
        use_mid_position_embeddings=False,
    )
    given = {"pixel_values": noise(1, 3, 32, 48)}
    return tiny("YolosForObjectDetection", config, given, _BOXES)


def _resnet() -> Any:
    from transformers import ResNetConfig

    return ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 24, 32, 48],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
        layer_type="basic",
    )


def detr() -> Made:
    from transformers import DetrConfig

    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=_resnet(),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_queries=10,
        num_labels=5,
    )
    return _scene("DetrForObjectDetection", config, 64, _BOXES)


def rt_detr_v2() -> Made:
    from transformers import RTDetrResNetConfig, RTDetrV2Config

    backbone = RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 24, 32, 48],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = RTDetrV2Config(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[24, 32, 48],
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        d_model=32,
        num_queries=12,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=48,
        decoder_layers=2,
        decoder_attention_heads=4,
        num_labels=5,
        decoder_n_points=2,
        num_feature_levels=3,
    )
    return _scene("RTDetrV2ForObjectDetection", config, 64, _BOXES)
