"""transformers.js in Chromium loads an exported folder from localhost and gives the encoder's embeddings.

The npm package is taken from ``SELFGUIDE_NODE_MODULES`` (a folder with ``@huggingface/transformers``), else installed into a
temporary folder; where neither is possible the test is skipped and says so.
"""

from __future__ import annotations

import functools
import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selfguide
from browser import BROWSER

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium here")]

SENTENCES = ["It rains.", "The train is late, again: 3.5 hours!", "Größe, naïve café", "", " ".join(["long"] * 400)]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
PAGE = """<!doctype html><meta charset="utf-8"><script type="module">
const told = {};
try {
  const { AutoModel, AutoTokenizer, env } = await import("/node_modules/@huggingface/transformers/dist/transformers.min.js");
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "/";
  env.backends.onnx.wasm.wasmPaths = "/node_modules/onnxruntime-web/dist/";
  const tokenizer = await AutoTokenizer.from_pretrained("exported");
  const sentences = SENTENCES;
  const rows = (tensor) => ({ dims: tensor.dims, data: Array.from(tensor.data, Number) });
  for (const [name, file, dtype] of [
    ["default", "sentence_embedding", undefined], ["fp32", "sentence_embedding", "fp32"],
    ["q8", "sentence_embedding", "q8"], ["tokens", "model", "fp32"],
  ]) {
    const model = await AutoModel.from_pretrained("exported", { model_file_name: file, dtype });
    const batch = tokenizer(sentences, { padding: true, truncation: true });
    const output = await model(batch);
    told[name] = rows(output.sentence_embedding ?? output.last_hidden_state);
    told.ids = rows(batch.input_ids);
  }
} catch (error) {
  told.error = String(error?.stack ?? error);
}
await fetch("/told", { method: "POST", body: JSON.stringify(told) });
</script>"""


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("SELFGUIDE_NODE_MODULES")
    if given:
        return Path(given)
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("neither npm nor SELFGUIDE_NODE_MODULES here")
    folder = tmp_path_factory.mktemp("npm")
    words = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "@huggingface/transformers@4"]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, timeout=240)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not answer here")
    if done.returncode:
        pytest.skip(f"npm cannot install @huggingface/transformers here: {done.stderr.decode()[-200:]}")
    return folder / "node_modules"


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and takes what the page posts."""

    told: queue.Queue[Any] = queue.Queue()

    def do_POST(self) -> None:
        self.told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, node_modules: Path) -> Iterator[Path]:
    """A folder that is served; its address is in the file ``address``."""
    root = tmp_path / "site"
    root.mkdir()
    (root / "node_modules").symlink_to(node_modules.resolve())
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    (root / "address").write_text(f"http://127.0.0.1:{server.server_port}/")
    yield root
    server.shutdown()
    server.server_close()


def visited(site: Path, profile: Path) -> dict[str, Any]:
    """What the page finds."""
    words = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", (site / "address").read_text() + "index.html"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return Handler.told.get(timeout=300)
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_the_browser_gives_the_same_embeddings(site: Path, tmp_path: Path) -> None:
    model = selfguide.load_encoder("mini", max_length=64, device="cpu")
    selfguide.export(model, site / "exported", int8=True, show_progress=False)
    (site / "index.html").write_text(PAGE.replace("SENTENCES", json.dumps(SENTENCES)), encoding="utf-8")
    told = visited(site, tmp_path / "profile")
    assert "error" not in told, told["error"]
    found = {name: np.array(value["data"]).reshape([int(one) for one in value["dims"]]) for name, value in told.items()}
    inputs = model.tokenizer(SENTENCES, padding=True, truncation=True, max_length=64, return_tensors="np")
    np.testing.assert_array_equal(found["ids"][:-1], inputs["input_ids"][:-1])
    # transformers.js cuts a sentence that is too long off without its closing [SEP].
    np.testing.assert_array_equal(found["ids"][-1, :-1], inputs["input_ids"][-1, :-1])
    expected = model.encode(SENTENCES)
    np.testing.assert_allclose(found["fp32"][:-1], expected[:-1], atol=1e-3)
    assert found["tokens"].shape == (*inputs["input_ids"].shape, expected.shape[1])
    real = inputs["attention_mask"][..., None]
    mean = (found["tokens"] * real).sum(axis=1) / real.sum(axis=1)
    np.testing.assert_allclose(mean[:-1], expected[:-1], atol=1e-3)
    np.testing.assert_array_equal(found["default"], found["q8"])  # as config.json says
    cosines = (found["q8"] * expected).sum(1) / np.linalg.norm(found["q8"], axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines[:-1].min() > 0.95
