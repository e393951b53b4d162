"""Writes ONNX nodes as arithmetic: ``(a + 1) * b`` on `Value` adds the nodes of this expression to a `Graph`."""

from typing import Any

import numpy as np


class Graph:
    """Nodes and constants of an ONNX graph under construction; ``graph("Relu", x)`` adds a node.

    Args:
        prefix: prefix of the names of its values, so that they differ from the names in a graph that it is joined to.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, kind: str, *inputs: Any, name: str | None = None, **attributes: Any) -> "Value":
        """Adds a node and returns its output; numbers among the inputs become constants, floats in double precision."""
        from onnx import helper

        name = name or f"{self.prefix}{len(self.nodes)}"
        inputs = tuple(each.name if isinstance(each, Value) else self._constant(each) for each in inputs)
        self.nodes.append(
            helper.make_node(kind, inputs, [name], name=f"{self.prefix}{kind}{len(self.nodes)}", **attributes)
        )
        return Value(self, name)

    def _constant(self, value: Any) -> str:
        from onnx import numpy_helper

        array = value if isinstance(value, np.ndarray) else np.asarray(float(value))
        self.constants.append(numpy_helper.from_array(array, f"{self.prefix}constant{len(self.constants)}"))
        return str(self.constants[-1].name)


class Value:
    """An input or the output of a node; arithmetic on it adds nodes."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Any) -> "Value":
        return self.graph("Add", self, other)

    def __radd__(self, other: Any) -> "Value":
        return self.graph("Add", other, self)

    def __sub__(self, other: Any) -> "Value":
        return self.graph("Sub", self, other)

    def __rsub__(self, other: Any) -> "Value":
        return self.graph("Sub", other, self)

    def __mul__(self, other: Any) -> "Value":
        return self.graph("Mul", self, other)

    def __rmul__(self, other: Any) -> "Value":
        return self.graph("Mul", other, self)

    def __truediv__(self, other: Any) -> "Value":
        return self.graph("Div", self, other)

    def __lt__(self, other: Any) -> "Value":
        return self.graph("Less", self, other)

    def __and__(self, other: Any) -> "Value":
        return self.graph("And", self, other)

    def where(self, yes: Any, no: Any) -> "Value":
        """Returns ``yes`` where this value is true, else ``no``."""
        return self.graph("Where", self, yes, no)

    def cast(self, kind: int) -> "Value":
        """Returns the value as another type, one of ``onnx.TensorProto``."""
        return self.graph("Cast", self, to=kind)
