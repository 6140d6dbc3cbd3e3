"""Figures of a comparison: tensors, rates with their bounds, and what true labels say."""

from __future__ import annotations

from edgeserve.types.base import Number, Value


class OutputDiff(Value, frozen=True):
    """How far one field of an output is from the reference's, over all inputs compared.

    Attributes:
        output: The output's name.
        scale: What ``relative`` divides by: the field's own, not below the floor.
        max_abs: Largest absolute difference.
        mean_abs: Mean absolute difference.
        relative: ``max_abs / scale``.
        worst: Id of the input with the largest difference.
        field: What it holds: "boxes", "scores", "classes", "mask", "logits", "embedding", "values".
        part: Which channels of the output, in words ("channels 4-83"); empty: all.
        channel: Index of the channel that is furthest off on its own scale; None where the output
            has no channels.
        channel_relative: How far that channel is off, on its own scale.
        snr: Power of the reference around its mean over that of the difference, in dB; None on
            generated inputs and for whole numbers.
        channel_snr: The smallest of any channel, each on at least a twentieth of the mean power.
        noisiest: Index of that channel.
        kl: Mean divergence of the softmax of logits from the reference's, in nats.
        kl_worst: The largest at any position.
        position: Where along the other axes (tokens, frames, rows and columns) the field is
            furthest off on that place's own scale; None where the output has no such axis.
        position_relative: How far it is off there, on that scale.
        position_share: Share of all squared error that lies there; even would be one over the
            number of positions.
    """

    output: str
    scale: Number
    max_abs: Number
    mean_abs: Number
    relative: Number
    worst: str
    field: str = ""
    part: str = ""
    channel: int | None = None
    channel_relative: Number = 0.0
    snr: Number | None = None
    channel_snr: Number | None = None
    noisiest: int | None = None
    kl: Number | None = None
    kl_worst: Number | None = None
    position: tuple[int, ...] | None = None
    position_relative: Number = 0.0
    position_share: Number = 0.0


class Rate(Value, frozen=True):
    """A share of inputs with its 95 % bounds over the effective number of inputs.

    Attributes:
        count: How many.
        n: Of how many inputs.
        rate: ``count / n``.
        lower: Lower 95 % bound.
        upper: Upper 95 % bound; with no event ``1 - 0.05 ** (1 / n_eff)``.
        n_eff: Effective number of inputs.
    """

    count: int
    n: int
    rate: Number
    lower: Number
    upper: Number
    n_eff: Number


class EmbeddingStats(Value, frozen=True):
    """How near vectors are to the reference's, whatever they decide.

    Attributes:
        cosine_mean: Mean cosine between an input's vector and the reference's.
        cosine_min: The smallest of them.
        rank: Spearman's rank correlation between an input's cosines to all others and the
            reference's, mean over the inputs: 1 where every ranking is the reference's.
    """

    cosine_mean: Number
    cosine_min: Number
    rank: Number


class LabelStats(Value, frozen=True):
    """Where true labels are known: how often reference and artifact are right on the same inputs.

    Attributes:
        metric: What "right" means: "top-1".
        inputs: How many inputs have a label that the model knows.
        groups: How many independent groups they fall into.
        reference: Share on which the reference is right.
        artifact: Share on which the artifact is right.
        lost: Inputs on which the reference alone is right.
        won: Inputs on which the artifact alone is right.
        lower: Lower 95 % bound of ``artifact - reference``.
        upper: Upper 95 % bound of it.
        p: Probability that chance alone gives so many lost ones among those that differ (McNemar's
            exact test, one-sided).
    """

    metric: str
    inputs: int
    groups: int
    reference: Number
    artifact: Number
    lost: int
    won: int
    lower: Number
    upper: Number
    p: Number


class MetricStats(Value, frozen=True):
    """A task's metric against true labels, on the same inputs for both.

    Attributes:
        metric: "wer" (word errors a word of the transcript), "perplexity" (of a text's next
            tokens); "map50" and "map" (mean average precision of boxes, at an overlap of 0.5 and
            over overlaps from 0.5 to 0.95), "miou" (mean overlap of classes over the photos'
            pixels), "f1" (of spans, of frames with speech).
        inputs: How many inputs have a label.
        groups: How many independent groups they fall into.
        reference: What the reference comes to.
        artifact: What the artifact comes to.
        lower: Lower 95 % bound of ``artifact - reference``, one-sided.
        upper: Upper 95 % bound of it.
        lost: Groups in which the artifact does worse.
        won: Groups in which it does better.
        p: Probability that chance alone gives so many lost ones among those that differ (sign
            test, exact, one-sided).
        more_is_better: As of precisions, overlaps and F1; of the others less is.
    """

    metric: str
    inputs: int
    groups: int
    reference: Number
    artifact: Number
    lower: Number
    upper: Number
    lost: int
    won: int
    p: Number
    more_is_better: bool = False
