"""Losses of `nn` as the code of archives: signatures of `forward`, and bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import nn

__all__ = ["LOSSES", "LOSS_SIGNATURES"]

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}

Text = Callable[[Any], str]


def _called(name: str, *parts: str) -> Text:
    """Return what writes a call of an inner op: of names, and in braces of attributes."""

    def text(module: Any) -> str:
        values = {key: repr(value) for key, value in vars(module).items()}
        values["number"] = str(_REDUCTIONS[module.reduction])
        given = ", ".join(part.format(**values) for part in parts)
        return f"return torch.{name}({given})"

    return text


def _smooth_l1(module: Any) -> str:
    if module.beta == 0:
        return _called("l1_loss", "input", "target", "{number}")(module)
    return _called("smooth_l1_loss", "input", "target", "{number}", "{beta}")(module)


def _kl_div(module: Any) -> str:
    number = 2 if module.reduction == "batchmean" else _REDUCTIONS[module.reduction]
    call = f"torch.kl_div(input, target, {number}, log_target={module.log_target})"
    if module.reduction == "batchmean":
        call = f"torch.div({call}, torch.size(input, 0))"
    return f"return {call}"


def _multi_label_soft_margin(module: Any) -> str:
    lines = [
        "one = torch.mul(target, torch.log_sigmoid(input))",
        "other = torch.mul(torch.rsub(target, 1), torch.log_sigmoid(torch.neg(input)))",
        "loss = torch.neg(torch.add(one, other))",
    ]
    if module.weight is not None:
        lines.append("loss = torch.mul(loss, self.weight)")
    lines.append("loss = torch.mean(loss, [-1])")
    reduced = {"none": "loss", "mean": "torch.mean(loss)", "sum": "torch.sum(loss)"}
    return "\n".join([*lines, f"return {reduced[module.reduction]}"])


_TWO = ("input", "target", "{number}")
LOSSES: dict[type, Text] = {
    nn.L1Loss: _called("l1_loss", *_TWO),
    nn.MSELoss: _called("mse_loss", *_TWO),
    nn.SoftMarginLoss: _called("soft_margin_loss", *_TWO),
    nn.MultiLabelMarginLoss: _called("multilabel_margin_loss", *_TWO),
    nn.SmoothL1Loss: _smooth_l1,
    nn.HuberLoss: _called("huber_loss", *_TWO, "{delta}"),
    nn.KLDivLoss: _kl_div,
    nn.BCELoss: _called("binary_cross_entropy", "input", "target", "self.weight", "{number}"),
    nn.BCEWithLogitsLoss: _called(
        "binary_cross_entropy_with_logits",
        *("input", "target", "self.weight", "self.pos_weight", "{number}"),
    ),
    nn.NLLLoss: _called(
        "nll_loss_nd", "input", "target", "self.weight", "{number}", "{ignore_index}"
    ),
    nn.CrossEntropyLoss: _called(
        "cross_entropy_loss",
        *("input", "target", "self.weight", "{number}", "{ignore_index}", "{label_smoothing}"),
    ),
    nn.PoissonNLLLoss: _called(
        "poisson_nll_loss", "log_input", "target", "{log_input}", "{full}", "{eps}", "{number}"
    ),
    nn.MarginRankingLoss: _called(
        "margin_ranking_loss", "input1", "input2", "target", "{margin}", "{number}"
    ),
    nn.CosineEmbeddingLoss: _called(
        "cosine_embedding_loss", "input1", "input2", "target", "{margin}", "{number}"
    ),
    nn.HingeEmbeddingLoss: _called(
        "hinge_embedding_loss", "input", "target", "{margin}", "{number}"
    ),
    nn.TripletMarginLoss: _called(
        "triplet_margin_loss",
        *("anchor", "positive", "negative", "{margin}", "{p}", "{eps}", "{swap}", "{number}"),
    ),
    nn.MultiMarginLoss: _called(
        "multi_margin_loss", "input", "target", "{p}", "{margin}", "self.weight", "{number}"
    ),
    nn.MultiLabelSoftMarginLoss: _multi_label_soft_margin,
}

_PAIR = ("input: Tensor", "target: Tensor")
_THREE = ("input1: Tensor", "input2: Tensor", "target: Tensor")
#: Class -> the parameters of `forward`.
LOSS_SIGNATURES: dict[type, tuple[str, ...]] = {
    **dict.fromkeys(LOSSES, _PAIR),
    nn.PoissonNLLLoss: ("log_input: Tensor", "target: Tensor"),
    nn.MarginRankingLoss: _THREE,
    nn.CosineEmbeddingLoss: _THREE,
    nn.TripletMarginLoss: ("anchor: Tensor", "positive: Tensor", "negative: Tensor"),
}
