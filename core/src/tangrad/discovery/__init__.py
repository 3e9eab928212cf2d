"""Find, load and isolate what other distributions add to tangrad.

`discovery` reads entry points and keeps failures, `hooks` calls the 1:N hooks that `hookspecs`
documents, `namespaces` answers for `tangrad.<name>`. Nothing here is loaded before it is needed.
"""

from __future__ import annotations

#: Version of the core, which every package of the same minor fits; what `tangrad.__version__` ends
#: with.
VERSION = "0.2.0"

#: Version of the plugin interface; a package says `API = 1` for the one it was made for.
API_VERSION = 1

#: The oldest version whose plugins still work: a version is deprecated, with a warning, for one
#: minor release before it is dropped.
OLDEST_API_VERSION = 1
