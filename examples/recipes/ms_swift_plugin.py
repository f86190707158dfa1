"""ms-swift (4.6): SCAPO's GRPO trainer, with a credit per subsentence, in the place of ms-swift's.

    SCAPO_TRUTH=truth.npz SCAPO_VOCABULARY=dopa160 swift rlhf --rlhf_type grpo \
        --external_plugins examples/recipes/ms_swift_plugin.py --reward_funcs scapo --loss_type dapo ...

The data set needs a column ``image_id``. For a response-level reward under ms-swift's own advantages (the paper's
comparison) set SCAPO_REWARD='{"level": "cap"}' and, below the import, ``TrainerFactory.TRAINER_MAPPING["grpo"]`` of
``swift.trainers`` back to ``swift.rlhf_trainers.GRPOTrainer``.
"""

import scapo_eval.integrations.ms_swift  # noqa: F401 (importing it is what puts it in place)
