"""The model in torch: the same weights, by the same names, as a `Checkpoint`."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tidemill.model.checkpoint import Checkpoint, ModelConfig
from tidemill.model.reference import rope_angles

__all__ = ["Net"]

#: Arrays that the model has once and not in every layer.
UNSTACKED = ("embed", "final_norm", "head")


class Net(nn.Module):
    """Decoder of llama type.

    Parameters are the arrays of `ModelConfig.shapes()`: matrices (outputs, inputs), stacked over
    layers. Initial values come from torch's global generator.

    Parameters
    ----------
    config
        The shape.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.ones(shape)) for name, shape in config.shapes().items()}
        )
        for name, weight in self.weights.items():
            if name in ("embed", "head"):
                nn.init.normal_(weight, std=0.02)
            elif name in ("wo", "w2"):
                # What the layers add to the residual starts small, the smaller the more there are.
                nn.init.normal_(weight, std=0.02 * (2 * config.layers) ** -0.5)
            elif not name.endswith("norm"):
                nn.init.normal_(weight, std=0.6 * config.dim**-0.5)
        angle = torch.from_numpy(rope_angles(config.context, config.head_dim, config.theta))
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def _norm(self, x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (self.config.dim,), gain, self.config.eps)

    def _heads(self, y: torch.Tensor, count: int) -> torch.Tensor:
        """(batch, time, count * head_dim) to (batch, count, time, head_dim)."""
        return y.unflatten(-1, (count, self.config.head_dim)).transpose(1, 2)

    def _rope(self, y: torch.Tensor) -> torch.Tensor:
        """Rotate the pairs (0, 1), (2, 3), ... of every head by their position's angle."""
        time = y.shape[2]
        cos, sin = self.cos[:time], self.sin[:time]
        even, odd = y[..., 0::2], y[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (batch, time, vocab) of `tokens` (batch, time), positions from 0 on."""
        c = self.config
        # Once for all layers: the gradient of one slice is as large as the whole stack.
        w = {n: a.unbind() for n, a in self.weights.items() if n not in UNSTACKED}
        x = functional.embedding(tokens, self.weights["embed"])
        for i in range(c.layers):
            n = self._norm(x, w["attn_norm"][i])
            q = self._rope(self._heads(n @ w["wq"][i].T, c.heads))
            k = self._rope(self._heads(n @ w["wk"][i].T, c.kv_heads))
            v = self._heads(n @ w["wv"][i].T, c.kv_heads)
            k, v = (y.repeat_interleave(c.group, 1) for y in (k, v))
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + o.transpose(1, 2).flatten(-2) @ w["wo"][i].T
            n = self._norm(x, w["mlp_norm"][i])
            h = functional.silu(n @ w["w1"][i].T) * (n @ w["w3"][i].T)
            x = x + h @ w["w2"][i].T
        head = self.weights["embed" if c.tied else "head"]
        return self._norm(x, self.weights["final_norm"]) @ head.T

    def loss(self, windows: torch.Tensor) -> torch.Tensor:
        """Mean nats per token of `windows` (batch, time + 1): each but the first is predicted."""
        logits = self(windows[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())

    def checkpoint(self) -> Checkpoint:
        """The weights as they are now, ready to be saved as a llama2.c file."""
        arrays = {n: w.detach().cpu().numpy().copy() for n, w in self.weights.items()}
        arrays.setdefault("head", arrays["embed"])
        return Checkpoint(config=self.config, **arrays)
