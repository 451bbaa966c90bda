"""ONNX graphs, opened by onnxruntime on the CPU."""

from typing import TYPE_CHECKING

from varscale.core.extras import needs

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def open_session(graph: str | bytes, where: str = "The graph") -> "InferenceSession":
    """Open a file or the bytes of one; raise ValueError if it is not a graph.

    Args:
        graph: Path of the file, or its content.
        where: Its name in messages.
    """
    with needs("onnx", where):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        why = " ".join(str(error).split())[:200].rstrip(".")
        raise ValueError(f"{where} is not a readable ONNX file: {why}.") from error
