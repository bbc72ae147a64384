"""Export: an encoder as files that run without selfguide and without PyTorch.

===============  =======================================================================================================
``export``       :func:`~selfguide.exporting.export.export`, the one entry point
``graphs``       the ONNX graphs, and their fp16 kind
``onnx_folder``  a folder for onnxruntime and transformers.js
``openvino_folder``  a folder for OpenVINO
``static``       a table of token vectors in place of the Transformer
``agreement``    how far exported embeddings are from the encoder's own, on a text
``folders``      what all folders share: tokenizer, configuration, README, record
===============  =======================================================================================================
"""
