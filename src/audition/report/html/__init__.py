"""The HTML report of a run: one file, no network, charts by Observable Plot. See ``docs/decisions/0009-report-charts.md``.

What must not live here: figures of its own. Every figure comes from ``audition.judge``; here it is only laid out, thinned for
drawing, and escaped.
"""

from audition.report.html.page import bare_html, is_report, report_html

__all__ = ["bare_html", "is_report", "report_html"]
