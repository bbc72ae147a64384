"""The figures of the pages: what a mark may say, what it becomes, and that every page is as the results have it."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest
from scipy.stats import ttest_rel

from experiments.pages import __main__ as command
from experiments.pages.expressions import evaluate
from experiments.pages.render import PAGES, Stale, rendered
from experiments.pages.sources import ROOT, Spread, Unknown, value
from experiments.pages.strict import unsourced


@pytest.fixture(scope="module")
def main_rows() -> dict[str, Any]:
    path = ROOT / "experiments" / "results" / "main-table" / "comparison.json"
    rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


class TestPages:
    @pytest.mark.parametrize("page", PAGES)
    def test_is_as_the_results_have_it(self, page: str) -> None:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert rendered(text) == text, "run `python -m experiments.pages`"

    @pytest.mark.parametrize("page", PAGES)
    def test_names_a_source_for_every_figure(self, page: str) -> None:
        found = list(unsourced(page, (ROOT / page).read_text(encoding="utf-8")))
        assert not found, "\n".join(f"{page}:{line}: {words}" for line, words in found)

    def test_command_fails_on_a_page_that_differs_and_mends_it(
        self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = tmp_path / "page.md"
        page.write_text("SG-OPT has 12.3<!--=main:sg-opt-->.\n", encoding="utf-8")
        monkeypatch.setattr(command, "PAGES", ("page.md",))
        monkeypatch.setattr(command, "ROOT", tmp_path)
        assert command.main(["--check"]) == 1
        assert "+SG-OPT has 68.3<!--" in capsys.readouterr().err
        assert command.main([]) == 0
        assert page.read_text(encoding="utf-8") == "SG-OPT has 68.3<!--=main:sg-opt-->.\n"
        assert command.main(["--check"]) == 0


class TestValues:
    def test_paths_lead_to_rows_columns_and_entries_of_lists(self, main_rows: dict[str, Any]) -> None:
        assert float(value("main:sg-opt")) == main_rows["sg-opt"]["values"]["sts avg"]["mean"]
        assert float(value("main:fused/sts14")) == main_rows["fused"]["values"]["sts14"]["mean"]
        assert value("main:#") == len(main_rows)
        assert value("temperature:sg-opt/0.1/steps") == 417
        assert float(value("ablation:'0 instead of 4096'")) > float(value("ablation:SG-OPT"))

    def test_arithmetic_and_tests_over_seeds(self, main_rows: dict[str, Any]) -> None:
        one, other = (main_rows[name]["values"]["sts avg"]["by_seed"] for name in ("fused", "bt"))
        gaps = [one[seed] - other[seed] for seed in one]
        difference = evaluate("difference(main:fused, main:bt)")
        assert isinstance(difference, Spread)
        assert difference.mean == pytest.approx(sum(gaps) / 8)
        assert difference.deviation == pytest.approx(statistics.stdev(gaps))
        wanted = ttest_rel(list(one.values()), [other[seed] for seed in one]).pvalue
        assert evaluate("p(main:fused, main:bt)") == pytest.approx(wanted)
        assert evaluate("(main:fused - main:bt) * 2") == pytest.approx(2 * sum(gaps) / 8)
        assert evaluate("main:sg-opt > main:mean and p(main:fused, main:bt) > 0.05") is True

    @pytest.mark.parametrize(
        ("expression", "words"),
        [
            ("main:sg-opt/sts99", "no 'sts99'"),
            ("temperature:sg-opt", "no single value"),
            ("main:sg-opt +", "no expression"),
            ("open(main:sg-opt)", "not understood"),
            ("nothing:sg-opt", "no expression"),
            ("deviation(main:mean)", "run once"),
        ],
    )
    def test_what_there_is_not_is_refused(self, expression: str, words: str) -> None:
        with pytest.raises(Unknown, match=words):
            evaluate(expression)


class TestMarks:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("0.0<!--=main:sg-opt-->", "68.3<!--=main:sg-opt-->"),
            ("**0.00 ± 0.0**<!--=main:sg-opt-->", "**68.29 ± 0.2**<!--=main:sg-opt-->"),
            ("0<!--=inputs:nli/rows-->", "44,237<!--=inputs:nli/rows-->"),
            ("+0.0<!--=main:sg-opt - main:simcse-->", "−2.0<!--=main:sg-opt - main:simcse-->"),
            ("+0.0<!--=main:simcse - main:sg-opt-->", "+2.0<!--=main:simcse - main:sg-opt-->"),
            ("p < 0.001<!--=p(main:fused, main:simcse)-->", "p < 0.001<!--=p(main:fused, main:simcse)-->"),
            (
                "0 %<!--=evidence:'frequent words'/view/'variance that counts of frequent words explain, %'-->",
                "14 %<!--",
            ),
            ("1e-6<!--=fused-cost:'largest difference of a cosine'/'to the two parts computed apart'-->", "5e-7<!--"),
        ],
    )
    def test_figures_keep_the_form_in_which_they_are_written(self, before: str, after: str) -> None:
        assert rendered(before).startswith(after)

    def test_a_bound_that_no_longer_holds_gives_way(self) -> None:
        assert rendered("p < 0.001<!--=p(main:fused, main:bt)-->").startswith("p = 0.49")

    def test_a_p_value_is_never_written_as_0(self) -> None:
        assert rendered("p = 0.00<!--=p(main:fused, main:simcse)-->").startswith("p < 0.01<!--")
        assert rendered("p = 0.00<!--=p(main:fused, main:bt)-->").startswith("p = 0.49<!--")

    def test_a_claim_must_hold(self) -> None:
        rendered("SG-OPT is above the mean<!--?main:sg-opt > main:mean-->.")
        with pytest.raises(Stale, match="main:sg-opt > main:fused"):
            rendered("SG-OPT is first<!--?main:sg-opt > main:fused-->.")

    def test_a_mark_without_a_figure_or_an_end_is_refused(self) -> None:
        with pytest.raises(Unknown, match="no figure before it"):
            rendered("SG-OPT<!--=main:sg-opt--> is good.")
        with pytest.raises(Unknown, match="no end"):
            rendered("<!-- made: readme -->\n\n| a |\n")
        with pytest.raises(Unknown, match="no table nonsense"):
            rendered("<!-- made: nonsense -->\n\n<!-- /made -->")

    def test_a_deviation_that_there_is_not_is_refused(self) -> None:
        with pytest.raises(Unknown, match="deviation that the results do not have"):
            rendered("55.9 ± 0.1<!--=main:mean-->")


class TestStrict:
    def test_a_figure_without_a_source_is_found_with_its_line(self) -> None:
        text = "# Title\n\nIt has 68.3<!--=main:sg-opt--> here\nand 70.9 there.\n"
        assert [line for line, _ in unsourced("docs/results/x.md", text)] == [4]

    @pytest.mark.parametrize(
        "text",
        [
            "`--rate 70.9`",
            "```bash\nrun --rate 70.9\n```",
            "torch 2.11.0",
            "76.25<!--from: Gao et al.-->",
            "<!-- not results: 0.05 70.9 -->\n\nwith 70.9",
            "[page](a-70.9.md)",
        ],
    )
    def test_what_is_no_result_passes(self, text: str) -> None:
        assert not list(unsourced("docs/results/x.md", text))

    @pytest.mark.parametrize("text", ["it gains +0.4", "it is 6.9 × faster", "66 ± 0.2", "with p = 0.04", "has 68.3"])
    def test_outside_the_results_what_looks_like_a_result_is_found(self, text: str) -> None:
        assert list(unsourced("docs/guides/x.md", text))

    def test_outside_the_results_settings_pass(self) -> None:
        assert not list(unsourced("docs/guides/x.md", "a temperature of 0.05 and 0.1, in 0.5 steps"))
