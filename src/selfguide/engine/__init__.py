"""The engine: running encoders fast, for encoding and for training.

* Encoding: :mod:`~selfguide.engine.encode` (the entry points) over :mod:`~selfguide.engine.backends`, which choose
  :mod:`~selfguide.engine.torch_runner` or :mod:`~selfguide.engine.onnx_runner`.
* Training: :mod:`~selfguide.engine.packing`, :mod:`~selfguide.engine.views`, :mod:`~selfguide.engine.view_cache`,
  :mod:`~selfguide.engine.gradient_cache` and :mod:`~selfguide.engine.cuda_graphs`.
* Shared: :mod:`~selfguide.engine.tokens`, :mod:`~selfguide.engine.cache` (the cache folder) and
  :mod:`~selfguide.engine.digest`.
"""
