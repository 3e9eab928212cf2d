"""Tensors of registered layouts: components and metadata in place of elements in memory.

A tensor of another layout is a plain `Tensor` with a shape, a dtype and a device, whose layout's
definition says what its components mean. docs/add-a-layout.md is the manual; `tangrad.plugin`
offers the names.

    definition  what is true of a layout: the class that a plugin derives from
    tensors     make, take apart, convert and overwrite such tensors, with derivatives
    calls       from a call with such a tensor to a kernel, or to the dense form
"""

from __future__ import annotations

from tangrad.layouts import calls as calls
from tangrad.layouts.definition import Layout as Layout
from tangrad.layouts.definition import LayoutWarning as LayoutWarning
from tangrad.layouts.tensors import component as component
from tangrad.layouts.tensors import components as components
from tangrad.layouts.tensors import layout_tensor as layout_tensor
from tangrad.layouts.tensors import metadata as metadata
from tangrad.layouts.tensors import replace_components as replace_components
from tangrad.layouts.tensors import to_layout as to_layout
