"""What the inputs and outputs of an exported graph stand for."""

from __future__ import annotations

import dataclasses
import enum

__all__ = [
    "ConstantArgument",
    "ExportGraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "TensorArgument",
]


@dataclasses.dataclass
class TensorArgument:
    """A tensor: the node of that name."""

    name: str


@dataclasses.dataclass
class ConstantArgument:
    """A value that is no tensor, which is that of the example."""

    name: str
    value: object


class InputKind(enum.Enum):
    """What an input of a graph is."""

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    """What an output of a graph is."""

    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


@dataclasses.dataclass
class InputSpec:
    """One input.

    Attributes:
        kind: what it is.
        arg: its node, or its value.
        target: the path of a parameter, buffer or constant in the module.
        persistent: of a buffer: whether it is part of `state_dict`.
    """

    kind: InputKind
    arg: TensorArgument | ConstantArgument
    target: str | None
    persistent: bool | None = None


@dataclasses.dataclass
class OutputSpec:
    """One output.

    Attributes:
        kind: what it is.
        arg: its node, or its value.
        target: unused: graphs write into their buffers.
    """

    kind: OutputKind
    arg: TensorArgument | ConstantArgument
    target: str | None


@dataclasses.dataclass
class ExportGraphSignature:
    """All inputs and outputs of a graph.

    Attributes:
        input_specs: parameters, buffers, constants and the user's inputs, in this order.
        output_specs: what the program returns.
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> dict[str, str]:
        specs = [spec for spec in self.input_specs if spec.kind is kind]
        return {spec.arg.name: str(spec.target) for spec in specs}

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        """The paths of parameters by the names of their nodes."""
        return self._targets(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        """The paths of buffers by the names of their nodes."""
        return self._targets(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        """The paths of constants by the names of their nodes."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The paths of parameters."""
        return tuple(self.inputs_to_parameters.values())

    @property
    def buffers(self) -> tuple[str, ...]:
        """The paths of buffers."""
        return tuple(self.inputs_to_buffers.values())

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The paths of constants."""
        return tuple(self.inputs_to_lifted_tensor_constants.values())

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """The paths of buffers that are no part of `state_dict`."""
        return tuple(str(spec.target) for spec in self.input_specs if spec.persistent is False)

    @property
    def user_inputs(self) -> tuple[object, ...]:
        """The names of the nodes of inputs, and the values of those that are no tensors."""
        specs = [spec for spec in self.input_specs if spec.kind is InputKind.USER_INPUT]
        return tuple(_name_or_value(spec.arg) for spec in specs)

    @property
    def user_outputs(self) -> tuple[object, ...]:
        """The names of the nodes of outputs, and the values of those that are no tensors."""
        return tuple(_name_or_value(spec.arg) for spec in self.output_specs)


def _name_or_value(arg: TensorArgument | ConstantArgument) -> object:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name
