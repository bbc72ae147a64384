"""Fine-tuning an encoder, whatever the method.

=====================  =================================================================================================
``settings``           training settings shared by all methods; imports no torch
``configuration``      what determines a run, and the record of it that ``run.json`` keeps
``trainer``            :func:`~selfguide.training.trainer.fine_tune`, the one fine-tuning path
``callbacks``          best weights, progress, checkpoints, stopping on Ctrl-C
``monitors``           a loss that is not finite, embeddings that collapse
``stages``             methods that train in several stages
``translated_text``    back-translations of the training text, cached in the run's work folder
``distributed``        device, and synchronisation of processes
=====================  =================================================================================================
"""
