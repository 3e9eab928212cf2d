"""Offer, in one place, all that a package needs that extends tangrad.

A plugin imports from here, or from the module for its author, and nowhere else below `tangrad`,
the public namespace aside:

- `op`: who defines ops, `device`: who brings a device, `layout`: who brings a layout;
- `observe`: who watches programs, `trace`: who records them;
- `package`: what every package needs that registers itself or public names;
- `render`: who makes kernels from definitions, and compilers; `sharing`: who sends tensors to other
  processes of the machine.

All names of the first six are seen here, too. What each means is told where it is defined; the
hooks are told in `tangrad.discovery.hookspecs`, a device in `tangrad.devices.driver`. Every
package states, once, the version it was made for: `API = 1` in its outermost module.

`tangrad.plugin.compiled`, of the package tangrad-source-kernels, has the base class of devices that
compile C-like source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tangrad.plugin.names import OFFERED, offered

if TYPE_CHECKING:  # the module `op` can be called, which type checkers do not see
    from tangrad._C import Parameter as Parameter
    from tangrad.ops.definition.define import op as op

_ALL = {name: where for names in OFFERED.values() for name, where in names.items()}
_find, __dir__ = offered(__name__, _ALL)


def __getattr__(name: str) -> Any:
    if name not in _ALL:  # such as `compiled`, of a package of its own
        from tangrad.discovery.namespaces import resolve

        return resolve(f"plugin.{name}")
    value = globals()[name] = _find(name)
    return value
