"""Retrieval sets in both forms, whole evaluations of them, and every refusal."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval

import selfguide
from selfguide.comparison.texts import DatasetLocator, text_of_sources
from selfguide.data import TextOptions
from selfguide.errors import SelfguideError
from selfguide.evaluation import retrieval
from selfguide.evaluation.embedder import embedder
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.retrieval_sets import read_retrieval
from selfguide.models.encoders import load_encoder
from toys import toy_sentences

SENTENCES = toy_sentences(90)
DOCUMENTS = {f"d{number:02d}": f"{SENTENCES[number]} {SENTENCES[number + 1]}" for number in range(60)}
# The last document repeats the first: a tie in every ranking.
DOCUMENTS["d60"] = DOCUMENTS["d00"]
QUERIES = {f"q{number}": SENTENCES[number * 7 % 80] for number in range(10)}
GRADES = {
    name: {f"d{(7 * place + step) % 61:02d}": step + 1 for step in range(3)} for place, name in enumerate(QUERIES)
}


def write_tsv(folder: Path, ignore: dict[str, str] | None = None) -> Path:
    folder.mkdir(parents=True)
    for name, rows in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        (folder / f"{name}.tsv").write_text("".join(f"{key}\t{text}\n" for key, text in rows.items()))
    lines = [f"{query}\t{document}\t{grade}\n" for query, known in GRADES.items() for document, grade in known.items()]
    (folder / "qrels.tsv").write_text("".join(lines))
    if ignore:
        (folder / "ignore.tsv").write_text("".join(f"{query}\t{document}\n" for query, document in ignore.items()))
    return folder


def write_beir(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": key, "title": "", "text": text, "metadata": {}} for key, text in DOCUMENTS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"_id": key, "text": text} for key, text in {**QUERIES, "unjudged": "never asked"}.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    lines = [f"{query}\t{document}\t{grade}\n" for query, known in GRADES.items() for document, grade in known.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nunjudged\td00\t1\n")
    return folder


def hashed(sentences: list[str]) -> np.ndarray:
    """A bag of words with fixed random vectors: an encoder that needs no library."""
    rows = []
    for sentence in sentences:
        draws = [
            np.random.default_rng(sum(word.encode()) * 7919 + len(word)).normal(size=24) for word in sentence.split()
        ]
        rows.append(np.sum(draws, axis=0))
    return np.stack(rows).astype(np.float32)


def by_pytrec_eval(dropped: dict[str, str] | None = None) -> dict[str, float]:
    """Score the same vectors by somebody else's code; the first document and its repetition are tied for every query."""
    documents, queries = (hashed(list(texts.values())).astype(np.float64) for texts in (DOCUMENTS, QUERIES))
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    run: dict[str, dict[str, float]] = {}
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    for name, row in zip(QUERIES, (queries @ documents.T).astype(np.float32), strict=True):
        run[name] = dict(zip(DOCUMENTS, map(float, row), strict=True))
        run[name].pop((dropped or {}).get(name, ""), None)
    metrics = {"ndcg_cut_10", "map", "recall_100", "recip_rank"}
    found = pytrec_eval.RelevanceEvaluator(GRADES, metrics).evaluate(run)
    return {metric: 100 * float(np.mean([scores[metric] for scores in found.values()])) for metric in metrics}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "BLOCK", 16)


def test_both_forms_give_the_numbers_of_pytrec_eval(tmp_path: Path, small_blocks: None) -> None:
    write_tsv(tmp_path / "data" / "retrieval" / "ours")
    write_beir(tmp_path / "beir" / "theirs")
    for folder, name in (("data", "ours"), ("beir", "theirs"), ("beir/theirs", "theirs")):
        score = selfguide.evaluate(hashed, "retrieval", data=tmp_path / folder, bootstrap=50)[name]
        wanted = by_pytrec_eval()
        assert score.metric == "nDCG@10 cosine"
        assert score.value == pytest.approx(wanted["ndcg_cut_10"], abs=1e-4)
        for ours, theirs in (("map", "map"), ("recall_100", "recall_100"), ("mrr", "recip_rank")):
            assert score.details[ours] == pytest.approx(wanted[theirs], abs=1e-4)
        assert score.interval is not None
        assert score.interval[0] <= score.value <= score.interval[1]
        assert (score.details["documents"], score.details["queries"], score.data.rows) == (61, 10, 10)
        assert score.protocol == {"similarity": "cosine", "text": "raw", "bootstrap": 50, "seed": 1}
        assert 10 < score.value < 90


def test_ignored_pairs_are_dropped_and_said_so(tmp_path: Path, small_blocks: None) -> None:
    ignore = {"q0": "d03", "q3": "d11"}
    write_tsv(tmp_path / "mine", ignore)
    score = selfguide.evaluate(hashed, "retrieval", data=tmp_path)["mine"]
    assert score.value == pytest.approx(by_pytrec_eval(ignore)["ndcg_cut_10"], abs=1e-4)
    assert score.notes == ("2 pairs of ignore.tsv are dropped from the rankings.",)


def test_a_document_that_is_the_query_itself_is_dropped(tmp_path: Path) -> None:
    folder = write_tsv(tmp_path / "mine")
    corpus = (folder / "corpus.tsv").read_text()
    # The same id alone is no reason: many sets number documents and queries alike.
    (folder / "corpus.tsv").write_text(corpus + f"q0\t{QUERIES['q0']}\nq1\tanother text\n")
    score = selfguide.evaluate(hashed, "retrieval", data=tmp_path)["mine"]
    assert score.details["query_itself_dropped"] == 1
    assert "1 document that is the query itself" in " ".join(score.notes)


def test_titles_are_put_before_texts_and_prompts_before_both(tmp_path: Path, bert: Path) -> None:
    folder = write_beir(tmp_path / "theirs")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({**row, "title": "A title"}) + "\n" for row in rows))
    seen: list[str] = []

    def listening(sentences: list[str]) -> np.ndarray:
        seen.extend(sentences)
        return hashed(sentences)

    selfguide.evaluate(listening, "retrieval", data=tmp_path)
    assert f"A title {DOCUMENTS['d01']}" in seen
    model = load_encoder(bert)
    model.prompts = {"query": "query: ", "passage": "passage: "}
    vectors = embedder(model)
    plain = embedder(load_encoder(bert))
    np.testing.assert_allclose(vectors.queries(["a b"]), plain(["query: a b"]), atol=1e-5)
    np.testing.assert_allclose(vectors.documents(["a b"]), plain(["passage: a b"]), atol=1e-5)
    np.testing.assert_allclose(vectors(["a b"]), plain(["a b"]), atol=1e-5)


def test_vectors_of_documents_are_not_kept(tmp_path: Path) -> None:
    write_tsv(tmp_path / "mine")
    vectors = embedder(hashed)
    data = load_tasks("retrieval", (), tmp_path, Protocol())
    retrieval.score_retrieval(data[0], vectors, Protocol(bootstrap=0))
    assert not set(vectors._row) & set(DOCUMENTS.values())


def test_the_same_score_from_gzip_and_a_changed_grade_is_another_set(tmp_path: Path) -> None:
    folder = write_tsv(tmp_path / "mine")
    before = read_retrieval(folder).digest
    raw = (folder / "corpus.tsv").read_bytes()
    (folder / "corpus.tsv").unlink()
    (folder / "corpus.tsv.gz").write_bytes(gzip.compress(raw))
    assert read_retrieval(folder).digest == before
    (folder / "qrels.tsv").write_text((folder / "qrels.tsv").read_text().replace("\t3\n", "\t2\n", 1))
    assert read_retrieval(folder).digest != before


def test_a_judged_document_that_is_missing_counts_as_not_found(tmp_path: Path) -> None:
    folder = write_tsv(tmp_path / "mine")
    with (folder / "qrels.tsv").open("a") as target:
        target.write("q0\tnowhere\t3\nq0\telsewhere\t1\n")
    score = selfguide.evaluate(hashed, "retrieval", data=tmp_path)["mine"]
    assert score.notes == ("2 judged documents are not in the corpus, and count as not found.",)


@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        ("corpus.tsv", "d1\ta\nd1\tb\n", "has the id 'd1' twice"),
        ("corpus.tsv", "", "corpus.tsv"),
        ("corpus.tsv", "d1 a\n", "line 1 has 1 tab-separated column: every line must be id<TAB>text"),
        ("corpus.tsv", "\ta\n", "has the id '': an id has 1 to 512 bytes"),
        ("queries.tsv", "q0\ta\nq0\tb\n", "has the id 'q0' of an earlier query"),
        ("queries.tsv", "other\ta\n", "judges 10 queries that queries.tsv does not have, such as 'q0'"),
        ("qrels.tsv", "q0\td01\tgood\nq0\td02\tbad\n", "line 2 has the grade 'bad', where a whole number is wanted"),
        ("qrels.tsv", "q0\td01\t1\nq0\td01\t2\n", "grades document 'd01' of query 'q0' a second time"),
        ("qrels.tsv", "query\tdocument\tgrade\n", "has no judgements"),
        ("ignore.tsv", "q0\n", "every line must be query<TAB>document"),
    ],
)
def test_faulty_files(tmp_path: Path, file: str, data: str, words: str) -> None:
    folder = write_tsv(tmp_path / "mine")
    (folder / file).write_text(data)
    with pytest.raises(SelfguideError, match=words):
        read_retrieval(folder)


def test_faulty_beir_folders(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "theirs")
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "a"}\n{"_id": "d2", "text": 3}\n')
    with pytest.raises(SelfguideError, match=r'line 2 is not a JSON object with "_id" and "text"'):
        read_retrieval(folder)
    write_beir(tmp_path / "again")
    (tmp_path / "again" / "qrels" / "test.tsv").rename(tmp_path / "again" / "qrels" / "dev.tsv")
    with pytest.raises(SelfguideError, match=r"has dev.tsv, train.tsv and no test.tsv"):
        read_retrieval(tmp_path / "again")
    (tmp_path / "again" / "qrels" / "train.tsv").unlink()
    assert read_retrieval(tmp_path / "again").retrieval.qrels == "qrels/dev.tsv"


def test_a_known_set_must_be_complete(tmp_path: Path) -> None:
    write_tsv(tmp_path / "retrieval" / "scifact")
    with pytest.raises(SelfguideError, match=r"has 61 rows where SciFact \(corpus\) has 5,183: it is cut short"):
        selfguide.evaluate(hashed, "retrieval", data=tmp_path)
    score = selfguide.evaluate(hashed, "scifact", data=tmp_path, allow_partial=True)["scifact"]
    assert any("Partial: 61 of the 5,183 rows" in note for note in score.notes)
    with pytest.raises(SelfguideError, match=r"There is no data for Cranfield.*BEIR's folder"):
        selfguide.evaluate(hashed, "cranfield", data=tmp_path, download=False)


def test_a_set_is_a_text_of_documents_without_queries(tmp_path: Path) -> None:
    write_tsv(tmp_path / "retrieval" / "scifact")
    locator = DatasetLocator(tmp_path, allow_partial=True)
    text = text_of_sources(["data:scifact"], locator, TextOptions())
    assert list(text.sentences) == list(dict.fromkeys(DOCUMENTS.values()))


def test_the_command_shows_retrieval(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_beir(tmp_path / "beir" / "theirs")
    outcome = command("eval", "mini", "--tasks", "retrieval", "--data", tmp_path / "beir", "-o", tmp_path / "scores")
    assert outcome.code == 0
    assert "theirs" in outcome.out
    assert "nDCG@10 cosine" in outcome.out
    kept = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert set(kept[0]["details"]["ndcg_10_by_query"]) == set(QUERIES)
    assert (
        "1 of 1 task scored before"
        in command("eval", "mini", "--tasks", "retrieval", "--data", tmp_path / "beir", "-o", tmp_path / "scores").err
    )
