"""Labels alone: what unlabelled images must add to. With labels at the server, only the server trains."""

from __future__ import annotations

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.data.loader import ClientData
from fedmatch_tf.learners.batches import ClientRound, Minibatches, minibatches, slices
from fedmatch_tf.learners.joint import JointLearner


class Labels(JointLearner):
    """lambda_s times the cross-entropy of labelled images. A client without labels takes no step."""

    def num_examples(self, data: ClientData) -> int:
        """The labelled ones: with none, a client sends back what it received, and does not count."""
        return 0 if data.labeled is None else len(data.labeled)

    def batches(self, given: ClientRound) -> Minibatches:
        """Of the labelled images; none without them."""
        labeled = slices(self.num_examples(given.views[0].data), self.config.batch_size_client)
        return minibatches(self.config, given, [(rows, None) for rows in labeled])


ENTRY = LearnerEntry("labels", Labels, depends_on_end=False, passes=0.0, place=2)
