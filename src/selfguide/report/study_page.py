"""The page of a study, from ``study.json`` alone: every number on it comes from that file."""

from __future__ import annotations

from typing import Any

from selfguide.report.figures import is_empty
from selfguide.report.formatting import duration, setting
from selfguide.report.page import render
from selfguide.report.plots import figure_from_dict
from selfguide.report.study_table import study_table


def study_page(found: dict[str, Any]) -> str:
    """Make the page of a study.

    Args:
        found: What ``study.json`` holds.

    Returns:
        The HTML file.
    """
    given = found["setting"]
    drawn = [figure for content in found["figures"] if not is_empty(figure := figure_from_dict(content))]
    tables = [study_table(content) for content in found["tables"]]
    dev = f" Checkpoints of tuned methods were chosen by {given['dev']}." if given["dev"] else ""
    small = "" if found["full"] else " A demonstration in the small setting, not a result."
    reference = f" After {found['reference']}." if found["reference"] else ""
    return render(
        "study",
        title=found["title"],
        kicker="Report of a study",
        lead=f"{found['question']}{small}{reference} Text: {given['text']} ({given['sentences']:,} sentences).{dev}",
        facts={
            "encoder": given["encoder"],
            "seeds": str(len(given["seeds"])),
            "computing": duration(found["seconds"]),
            "date": found["date"],
        },
        sections={
            "figures": ("Figures" if len(drawn) > 1 else "Figure", drawn),
            "tables": ("Tables" if len(tables) > 1 else "Table", tables or found["notes"]),
            "failures": ("Failed", found["failed"]),
            "warnings": ("Warnings", found["warnings"]),
            "configuration": ("Configuration", True),
            "repeat": ("Reproduce", True),
        },
        found=found,
        drawn=drawn,
        tables=tables,
        varied={
            "setting": "full" if found["full"] else "small, a demonstration",
            "seeds": ", ".join(map(str, given["seeds"])),
            "settings of the methods": ", ".join(given["settings"]) or "their defaults",
            **{name: ", ".join(map(setting, values)) for name, values in given["values"].items()},
        },
        data_settings={
            "encoder": f"{given['encoder']} ({given['encoder_digest']})",
            "text": f"{given['text']} ({given['text_digest'][:16]})",
            "dev pairs": f"{given['dev']} ({given['dev_digest']})" if given["dev"] else None,
            **{f"task {name}": digest for name, digest in given["tasks"].items()},
            **{f"protocol: {name}": value for name, value in given["protocol"].items()},
        },
        measurements={
            key: {"function": item["identity"]["function"], "arguments": item["identity"]["arguments"]}
            for key, item in found["measurements"].items()
        },
    )
