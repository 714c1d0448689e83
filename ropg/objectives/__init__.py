"""Objectives as pure functions on tensors: Eq. 1-4 of the paper, and what goes beyond them.

Shapes, everywhere in this package:

    B  queries of the batch
    K  candidates per query, padded to the longest row
    S  draws per query
    k  documents of a set

A mask is boolean, True at a real document. A row without any True is *dead*: its log-probabilities are
all −inf and it counts nowhere. Losses are scalars, means over the live rows; without a live row the loss
is 0 with zero gradient. What stands at masked places is ignored, NaN and infinities included; a
non-finite number at a real place raises ValueError. Scores in half precision are raised to float32.

Eq. 4 is misprinted in the paper (minimised as printed it trains backwards); what is minimised here is
KL(p_t ‖ π) = Σ p_t log(p_t / π), without a factor T².

    policy            Eq. 1: π; its entropy, its divergence from another policy
    policy_gradient   Eq. 2 and 3; baselines, several draws, the scale of advantages
    distillation      Eq. 4; the reverse divergence and margin-MSE beside it
    ranking           a LambdaLoss-style objective on pairs
    sets              Plackett-Luce over ordered sets of documents
    draws             random numbers that neither padding nor the split into batches changes
"""

from ropg.objectives.distillation import distillation_loss, margin_mse_loss, reverse_distillation_loss
from ropg.objectives.policy import policy_divergence, policy_entropy, policy_log_probs
from ropg.objectives.policy_gradient import (
    Estimator,
    advantage_scale,
    expected_reward,
    leave_one_out,
    mean_reward,
    policy_gradient_loss,
    score_function_loss,
)
from ropg.objectives.ranking import lambda_loss
from ropg.objectives.sets import (
    first_set,
    sample_sets,
    set_log_probs,
    set_policy_gradient_loss,
    set_rewards,
)

__all__ = [
    "Estimator",
    "advantage_scale",
    "distillation_loss",
    "expected_reward",
    "first_set",
    "lambda_loss",
    "leave_one_out",
    "margin_mse_loss",
    "mean_reward",
    "policy_divergence",
    "policy_entropy",
    "policy_gradient_loss",
    "policy_log_probs",
    "reverse_distillation_loss",
    "sample_sets",
    "score_function_loss",
    "set_log_probs",
    "set_policy_gradient_loss",
    "set_rewards",
]
