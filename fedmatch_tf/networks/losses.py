"""The terms of the losses, each a small pure function of probabilities [batch, classes] or of parameters."""

from __future__ import annotations

from collections.abc import Sequence

from fedmatch_tf.base.quiet import tf

_EPSILON = 1e-7  # probabilities are kept this far from 0 and 1, as Keras' losses do outside a graph


def cross_entropy(targets: tf.Tensor, probs: tf.Tensor) -> tf.Tensor:
    """Mean over the batch of CE(target, p)."""
    probs = tf.clip_by_value(probs, _EPSILON, 1.0 - _EPSILON)
    return -tf.reduce_mean(tf.reduce_sum(targets * tf.math.log(probs), axis=-1))


def inter_client_kl(helper_probs: tf.Tensor, probs: tf.Tensor) -> tf.Tensor:
    """Eq. 1: mean over helpers and rows of KL(p_helper || p). helper_probs: [helpers, batch, classes]."""
    helper_probs = tf.clip_by_value(helper_probs, _EPSILON, 1.0)
    probs = tf.clip_by_value(probs, _EPSILON, 1.0)
    return tf.reduce_mean(tf.reduce_sum(helper_probs * tf.math.log(helper_probs / probs), axis=-1))


def agreement_labels(probs: tf.Tensor, helper_probs: tf.Tensor) -> tf.Tensor:
    """Eq. 3: one-hot class with most votes among own and helpers' predictions; a tie goes to the lowest class.

    helper_probs: [helpers, batch, classes]; with no helpers the result is the own prediction.
    """
    classes = probs.shape[-1]
    own = tf.one_hot(tf.argmax(probs, axis=-1), classes)
    votes = own + tf.reduce_sum(tf.one_hot(tf.argmax(helper_probs, axis=-1), classes), axis=0)
    return tf.one_hot(tf.argmax(votes, axis=-1), classes)


def l1(psis: Sequence[tf.Tensor]) -> tf.Tensor:
    """Sum of |psi| over all kernels."""
    return tf.add_n([tf.reduce_sum(tf.abs(psi)) for psi in psis])


def sum_of_squares(kernels: Sequence[tf.Tensor]) -> tf.Tensor:
    """Sum of squares over all kernels: weight decay, or with sigma - psi the L2 term of eq. 5."""
    return 2 * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])


def tsa_threshold(share_done: tf.Tensor, num_classes: int) -> tf.Tensor:
    """UDA's training-signal annealing, exponential: from about 1 / classes to 1 as share_done goes from 0 to 1."""
    uniform = 1.0 / num_classes
    return tf.exp(5.0 * (share_done - 1.0)) * (1.0 - uniform) + uniform


def annealed_cross_entropy(targets: tf.Tensor, probs: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """Mean CE over the rows whose right class has not more than the threshold's probability; 0 if there is none."""
    probs = tf.clip_by_value(probs, _EPSILON, 1.0 - _EPSILON)
    right = tf.reduce_sum(targets * probs, axis=-1)
    counted = tf.cast(right <= threshold, tf.float32)  # 1 for rows that are not learnt yet
    return -tf.reduce_sum(counted * tf.math.log(right)) / tf.maximum(tf.reduce_sum(counted), 1.0)


def proximal(variables: Sequence[tf.Tensor], reference: Sequence[tf.Tensor]) -> tf.Tensor:
    """Half the sum of squared differences between the parameters and those that were received."""
    return 0.5 * tf.add_n([tf.reduce_sum(tf.square(variable - start)) for variable, start in zip(variables, reference)])
