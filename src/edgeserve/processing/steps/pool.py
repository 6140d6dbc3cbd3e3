"""pool/1: the vectors of each row's tokens to one vector."""

from __future__ import annotations

from typing import Literal

import numpy as np

from edgeserve.processing.arrays import no_mask, wrong_outputs
from edgeserve.types.steps import Feed, FieldKind, OutputStep

PoolMode = Literal["mean", "cls", "max", "last"]
_LEAST_COUNT = np.float32(1e-9)


class Pool(OutputStep, frozen=True, tag_field="step", tag="pool/1"):
    """Token vectors [tokens, d] of one sample's ``output`` to one vector [d], in float32.

    A sample without tokens pools to zeros.

    Attributes:
        output: The output to pool; its result takes the output's place.
        mask: The input that holds the attention mask (1 for tokens, 0 for padding).
        mode: "mean" of the tokens' vectors, "cls" the first token's, "max" the largest of each
            component over the tokens, "last" the last token's.
    """

    output: str
    mask: str
    mode: PoolMode = "mean"

    def field(self, integers: bool) -> FieldKind:
        """See `OutputStep.field`."""
        return FieldKind("embedding")

    def apply(self, value: np.ndarray, feed: Feed) -> np.ndarray:
        """See `OutputStep.apply`.

        Raises:
            ProcessingError: EDGE-PROCESS-008 another form, -026 no feed to take the mask from.
        """
        if feed is None or self.mask not in feed:
            raise no_mask(self.tag, self.output, self.mask, feed)
        mask = feed[self.mask]
        if value.ndim != 3 or value.dtype.kind != "f" or value.shape[:2] != mask.shape:
            wanted = (
                f"output {self.output!r} as floats [batch, tokens, d], {list(mask.shape)} of them"
            )
            raise wrong_outputs(wanted, f"{value.dtype} {list(value.shape)}")
        return pool(value, mask, self.mode)


def pool(tokens: np.ndarray, mask: np.ndarray, mode: PoolMode) -> np.ndarray:
    """pool/1: the vectors of each row's tokens to one vector, in float32.

    What stands at padding has no say, not even NaN; a row without tokens pools to zeros.

    Args:
        tokens: [batch, tokens, d].
        mask: [batch, tokens], 0 where there is padding.
        mode: How.

    Returns:
        float32 [batch, d].
    """
    real = mask != 0
    tokens = np.asarray(tokens, np.float32)
    if mode == "mean":
        count = real.sum(axis=1, dtype=np.float32)[:, None]
        return np.asarray(_total(tokens, real) / np.maximum(count, _LEAST_COUNT))
    if not real.shape[1]:
        return np.zeros((tokens.shape[0], tokens.shape[2]), np.float32)
    if mode == "max":
        picked = np.where(real[..., None], tokens, np.float32(-np.inf)).max(axis=1)
    else:
        last = real.shape[1] - 1 - real[:, ::-1].argmax(axis=1)
        at = real.argmax(axis=1) if mode == "cls" else last
        picked = tokens[np.arange(len(tokens)), at]
    return np.asarray(np.where(real.any(axis=1)[:, None], picked, np.float32(0)))


def _total(tokens: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Sum of each row's real tokens, float32 [batch, d]."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.matmul(real[:, None, :].astype(np.float32), tokens)[:, 0]
    if np.isfinite(total).all():
        return np.asarray(total)
    # Either a token is not finite, or padding is, which must not show: 0 * NaN is NaN.
    return np.asarray(np.where(real[..., None], tokens, np.float32(0)).sum(axis=1))
